"""Checked jobs and a profile -> runs: immutable, complete, named by their hash."""
