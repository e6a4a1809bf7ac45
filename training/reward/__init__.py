"""Reward models of answers, from preference pairs, and of whole episodes: `python -m training.reward`."""
