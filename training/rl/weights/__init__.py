"""The trained weights on their way to whatever samples rollouts: published files, gathered shards, LoRAs for vLLM."""
