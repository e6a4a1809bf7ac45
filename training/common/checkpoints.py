"""What lies in a checkpoint beside what transformers writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def also_save(trainer: Any, save: Callable[[Path], None]) -> None:
    """Every checkpoint of the trainer gets what `save` writes into its folder. What marks the checkpoint as whole is
    written later."""
    before = trainer._save_optimizer_and_scheduler

    def saved(folder: str) -> None:
        before(folder)
        save(Path(folder))

    trainer._save_optimizer_and_scheduler = saved
