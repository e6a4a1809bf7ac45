"""AgentNetBench, the offline benchmark of OpenCUA: data (its files), score (both revisions), __main__ (evaluation)."""
