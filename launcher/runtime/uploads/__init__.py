"""Sends logs, metrics, checkpoints and outputs to the store while the command runs."""
