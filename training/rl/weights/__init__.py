"""The trained weights on their way to what samples rollouts: published files, gathered shards, LoRAs sent to vLLM."""
