"""One live attempt, one end (design 6): records, pure decisions over what was read, and the pure fold to a state."""
