"""What the pages ask of the database."""
