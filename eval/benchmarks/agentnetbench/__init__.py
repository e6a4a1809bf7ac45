"""AgentNetBench, the offline benchmark of OpenCUA: data (its files), score (both revisions); see eval.agentnetbench."""
