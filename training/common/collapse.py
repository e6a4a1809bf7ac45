"""results/collapse.json: that a training ended itself because it had collapsed, and what is left from before. The
launcher's `notify` tells people of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_collapse(reason: Mapping[str, Any], out: Path, *, good: int) -> str | None:
    """Writes the reason, and the newest checkpoint from before the collapse, which it gives.

    reason  step, measure, value, bound, generations (in which it was out of the bound), text
    good    optimiser steps of the newest weights that sampled a generation within the bound
    """
    steps = [int(path.name.rpartition("-")[2]) for path in (out / "checkpoints").glob("checkpoint-*")]
    before = max((step for step in steps if step <= good), default=None)
    kept = None if before is None else f"checkpoints/checkpoint-{before}"
    file = out / "results" / "collapse.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}")
    temporary.write_text(json.dumps({**reason, "checkpoint_before": kept}, indent=1) + "\n", encoding="utf-8")
    temporary.replace(file)
    return kept
