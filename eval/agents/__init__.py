"""Agents: base (the protocol), batcher, scripted, baselines (commonest, nearest), transformers, config."""
