"""The Model Context Protocol: a client of it, and the tools as which our actions go over it."""
