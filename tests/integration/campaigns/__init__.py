"""Evaluations that are interrupted and go on, as real processes and as runs."""
