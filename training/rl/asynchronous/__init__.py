"""Rollouts in a process of their own while the training trains: the queue, the worker, and vLLM as its sampler."""
