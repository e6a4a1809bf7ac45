"""Results in the formats of others, and as videos: `python -m eval.export osworld|atif|inspect|video RESULTS OUT`."""
