"""Slipway's launcher: the laptop side and the in-container runtime.

Nothing here imports `training` or `eval`; they meet through files and argv only.
"""

__version__ = "0.1.0"
