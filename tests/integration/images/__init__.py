"""Images on a real engine and a real registry."""
