"""Processes, signals and threads of this machine, and why a command ended."""
