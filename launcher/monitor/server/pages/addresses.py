"""What an address names: rows and parts of tables."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request


def row_id(text: str) -> int:
    """The id of a row. Raises HTTPException 404 for what no row can have."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) >= 2**63:
        raise HTTPException(404)
    return int(text)


def chosen_page(request: Request, count: int, shown: int) -> int:
    """The part of a long table that an address asks for."""
    last, text = max(0, (count - 1) // shown), request.query_params.get("page", "")
    return min(int(text), last) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
