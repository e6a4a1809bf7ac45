"""Agents: base (the protocol), computer (for loops of their own), batcher, scripted, baselines (commonest, nearest),
transformers, served (an OpenAI-compatible endpoint; wire: what such agents share), config."""
