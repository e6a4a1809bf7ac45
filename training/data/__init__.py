"""From recordings to training samples: importers, packed datasets, mixtures, cards, leak checks, preference pairs."""
