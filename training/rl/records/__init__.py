"""What a training writes: its records and screens, the metrics of each step, summary.json, successes as episodes."""
