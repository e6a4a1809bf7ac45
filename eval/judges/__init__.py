"""Judges that are models."""
