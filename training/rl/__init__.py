"""Reinforcement learning on whole episodes, many turns each: `python -m training.rl`."""
