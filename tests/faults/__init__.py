"""Small faults of the product, and the command that says which tier of tests notices each."""
