"""Jobs that are read and checked, but not yet resolved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from launcher.spec.values.types import Context

if TYPE_CHECKING:
    from launcher.spec.code.overlay import Overlay


class Variant(msgspec.Struct, frozen=True):
    """One combination of a matrix. A job without a matrix has a single variant; its `chosen` is empty."""

    values: Mapping[str, Any]  # checked, in final form: seconds, bytes, texts
    chosen: Mapping[str, Any]  # matrix path -> value
    at: Context


class LoadedJob(msgspec.Struct, frozen=True):
    """One document."""

    name: str
    folder: Path  # of the file; local paths are relative to it
    variants: tuple[Variant, ...]
    at: Context
    code: Overlay | None = None  # as in the file; `resolve` adds the folders that are never packed


class Loaded(msgspec.Struct, frozen=True):
    """Jobs; each comes after the jobs that it takes inputs from."""

    jobs: tuple[LoadedJob, ...]
