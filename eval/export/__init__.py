"""Results in the formats of others, and as videos: `python -m eval.export osworld|atif|video RESULTS OUT`."""
