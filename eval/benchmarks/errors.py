"""What benchmarks raise."""

from __future__ import annotations


class BenchError(ValueError):
    """A file of a benchmark that cannot be read, or lacks a field; the message names file and place."""
