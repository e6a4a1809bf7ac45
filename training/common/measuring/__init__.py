"""What a training measures of its model: scores and losses on held-out data, drawn answers, and of which weights."""
