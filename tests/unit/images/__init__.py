"""The images: definitions, versions, catalogue."""
