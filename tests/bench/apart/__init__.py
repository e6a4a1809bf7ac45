"""Checkers of linux-desktop tasks that were written apart from its judges: `python -m tests.bench.apart`."""
