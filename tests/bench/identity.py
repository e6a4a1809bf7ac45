"""What it takes a training to know its model and its data by content: `python -m tests.bench.identity [GIB]`.

A model in files of 2 GiB and a folder of as many files as a recording's has, 20 GiB together, of holes: they take no
place on the disk, are read as zeros, and are hashed as any other bytes. Each later start is timed as a trainer does it:
the checkpoint's digests are read and compared with what lies there, and written into the next checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from training.common import identity

GIB: Final = 2**30
SHARD: Final = 2 * GIB
FRAMES: Final = 10_000


def hollow(file: Path, size: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        opened.truncate(size)


def material(root: Path, size: int) -> dict[str, Any]:
    """A configuration whose model has four fifths of `size` bytes, and its data the rest."""
    model, data = size * 4 // 5, size // 5
    for number in range(max(1, model // SHARD)):
        hollow(root / "model" / f"model-{number:05d}.safetensors", min(SHARD, model))
    for number in range(FRAMES):
        hollow(root / "data" / f"episode-{number // 20:05d}" / f"{number % 20:03d}.png", data // FRAMES)
    return {"model": str(root / "model"), "data": str(root / "data")}


def timed(of: Callable[[], object]) -> tuple[float, float]:
    """(seconds, seconds of a core)"""
    begun, worked = time.perf_counter(), time.process_time()
    of()
    return time.perf_counter() - begun, time.process_time() - worked


def start(config: Mapping[str, Any], checkpoint: Path) -> None:
    found = identity.identity(config, identity.load(str(checkpoint)))
    assert identity.check(found, str(checkpoint)) == []
    identity.save(found, checkpoint)


def main(gib: str = "20") -> int:
    with tempfile.TemporaryDirectory(prefix="slipway-identity-") as folder:
        root = Path(folder)
        config = material(root, int(gib) * GIB)
        checkpoint = root / "checkpoint-1"
        checkpoint.mkdir()
        rows = [("the first: all is read", *timed(lambda: identity.save(identity.identity(config), checkpoint)))]
        rows += [("a later one, of the same files", *timed(lambda: start(config, checkpoint))) for _ in range(3)]
        digests = {name: {"digest": f"sha256:{name}", "pinned": False} for name in ("model", "data")}
        os.environ |= {"SLIPWAY_INPUTS": str(root), "SLIPWAY_INPUT_DIGESTS": json.dumps(digests)}
        inputs = root / "checkpoint-2"
        inputs.mkdir()
        rows.append(("the first, of inputs of a run", *timed(lambda: identity.save(identity.identity(config), inputs))))
        rows.append(("a later one, of inputs of a run", *timed(lambda: start(config, inputs))))
        count = sum(len(files) for _, _, files in os.walk(root))
    print(f"{gib} GiB in {count:,} files\n\n| start | seconds | core-seconds |\n|---|---|---|")
    for name, wall, cpu in rows:
        print(f"| {name} | {wall:.2f} | {cpu:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
