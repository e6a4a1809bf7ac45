"""From episodes to a better agent. make_episodes: an expert's; tiny: a model to start from; samples: what a trainer
learns on; sft: the trainer, with collate, reporting and pictures. Entry points read top to bottom."""
