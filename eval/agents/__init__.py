"""Agents: base (the protocol), computer (for loops of their own), batcher, baselines (and the expert, and a person),
transformers, served (an OpenAI-compatible endpoint), claude and openai_computer (loops of SDKs, over driver; wire: what
agents behind an API share), config."""
