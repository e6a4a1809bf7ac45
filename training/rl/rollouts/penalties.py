"""What is added to a rollout's return for its turns and the length of its answers."""

from __future__ import annotations


def efficiency_penalty(turns: int, cost: float = 0.02) -> float:
    """What is added to a return for the turns that it took: -cost * turns."""
    return -cost * turns


def overlong_penalty(tokens: int, longest: int, buffer: int) -> float:
    """What is added to a return for a long answer: 0 up to `longest - buffer` tokens, then falling in a line to -1 at
    `longest`; without a buffer -1 from the first token beyond. Source: DAPO (arXiv 2503.14476), its soft punishment."""
    if tokens <= longest - buffer:
        return 0.0
    return -1.0 if tokens >= longest else (longest - buffer - tokens) / buffer
