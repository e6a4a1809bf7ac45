"""A run whose trainer and desktops are members of their own, and what must be true of it in the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from launcher.results import training_records as reading
from launcher.results.training_records import read_folder

GENERATIONS: Final = 5
ROLLOUTS: Final = 8  # of each
SERVER: Final = "eval.desktops.server"
TRAINER: Final = "training.rl"


def job(listen: str) -> dict[str, Any]:
    """`listen`: where a desktop's server listens. Without images and without the model."""
    server = ["python", "-m", SERVER, "--listen", listen, "--screen", "128x96"]
    return {
        "name": "rl-roles",
        "roles": {
            "trainer": {
                "leader": True,
                "needs": ["desktop"],
                "command": ["python", "-m", TRAINER, "--config", "$SLIPWAY_CONFIG"],
            },
            "desktop": {"replicas": 2, "restarts": 20, "command": server, "ports": {"http": 0}},
        },
        "secrets": ["DESKTOP_TOKEN"],
        "config": {
            "environment": "gtk-forms",
            "options": {"split": "train", "kinds": ["press"], "tree": False, "role": "desktop"},
            "tasks": {"count": 10, "seed": 0},
            "prompt": {"decimals": 2, "system": "", "history": 2, "images": 2},
            "limits": {"concurrency": 2, "attempts": 20, "backoff": 0.5, "parse_failures": 9, "max_steps": 3},
            "tasks_per_generation": 2,
            "group_size": 4,
            "steps": GENERATIONS,
            "batch_size": 5,
            "max_completion": 14,
            "save_every": 1,
            "log_every": 1,
        },
        "outputs": {
            "model": {},
            "results": {"sync": "live"},
            "checkpoints": {"kind": "checkpoints", "match": "checkpoint-*", "done": "trainer_state.json", "keep": 2},
        },
        "limits": {"deadline": "1h", "retries": 3},
        "timing": {"beat": "1s"},
        "env": {"OMP_NUM_THREADS": "1"},
    }


def processes(module: str, mark: str) -> list[int]:
    """Those that run a module themselves and have `mark` in their environment, also in containers here; neither
    their children nor what started them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            environ = (folder / "environ").read_bytes()
        except OSError:  # ended meanwhile
            continue
        if words[1:3] == [b"-m", module.encode()] and mark.encode() in environ:
            found.append(int(folder.name))
    return sorted(found)


def until(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.5)


def counted_once(gathered: Path) -> None:
    """Every generation has all its rollouts, each judged and told once."""
    (records,) = gathered.rglob("records")
    rollouts = [line for line in read_folder(records.parent) if isinstance(line, reading.RlRollout)]
    assert Counter(line.step for line in rollouts) == dict.fromkeys(range(1, GENERATIONS + 1), ROLLOUTS)
    assert len({(line.step, line.group, line.rollout) for line in rollouts}) == GENERATIONS * ROLLOUTS
    assert {line.outcome for line in rollouts} == {"scored"}
