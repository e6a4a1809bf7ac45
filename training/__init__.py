"""From episodes to a better agent: data, samples, trainers. Entry points read top to bottom."""
