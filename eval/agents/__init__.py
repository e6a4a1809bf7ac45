"""Agents: base (the protocol, the batcher), scripted, baselines (commonest action, nearest episode), transformers."""
