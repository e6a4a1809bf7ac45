"""Chats in tables as a folder of chats: parquet files, or a repository `hf://datasets/OWNER/NAME[@REVISION]` of a hub.

The package `datasets` reads them, one row at a time; pictures (Image columns) are written once, by their sha256. The
folder is made once for a revision and split, beside the cache of `datasets`, and read by `training.data.chat`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from eval.config import ConfigError

HUB: Final = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?/?")
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
SUFFIXES: Final = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg", b"RIFF": "webp", b"GIF8": "gif"}
COMMITS: Final[dict[str, str]] = {}  # what this process read: hf://datasets/OWNER/NAME[@REVISION] -> its commit then
FORM: Final = 1  # raise it when the same rows are written otherwise


def is_table(place: str) -> bool:
    """Whether `place` is a repository of data sets, or a folder with parquet files."""
    if place.startswith("hf://"):
        if HUB.fullmatch(place) is None:
            raise ConfigError(f"data: {place}: a data set of the hub is hf://datasets/OWNER/NAME[@REVISION]")
        return True
    return Path(place).is_dir() and next(Path(place).rglob("*.parquet"), None) is not None


def chat_folder(place: str, split: str) -> Path:
    """The folder of chats that a table becomes. Raises ConfigError."""
    import datasets

    if (found := HUB.fullmatch(place)) is not None:
        name, revision = found[1], _commit(found[1], found[2])
        COMMITS[place] = revision
        key: list[Any] = [FORM, name, revision, split]
    else:
        name, revision = place, None
        files = sorted(path for path in Path(place).resolve().rglob("*") if path.is_file())
        key = [FORM, split, [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files]]
    root = Path(datasets.config.HF_DATASETS_CACHE) / "slipway-chats"
    folder = root / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{folder.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of several processes writes, the others wait for it
        if not folder.is_dir():
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            _write(_reading(place, lambda: _rows(name, revision, split)), place, partial)
            partial.rename(folder)
    return folder


def _rows(name: str, revision: str | None, split: str) -> Any:
    from datasets import load_dataset

    return load_dataset(name, revision=revision, split=split, streaming=True).decode(False)


def _reading(place: str, read: Callable[[], Any]) -> Any:
    """Raises ConfigError for what `datasets` and the hub refuse."""
    try:
        return read()
    except Exception as error:
        # the hub's client has errors of its HTTP library besides these
        if not isinstance(error, ValueError | OSError | LookupError) and not type(error).__module__.startswith("http"):
            raise
        raise ConfigError(f"data: {place}: {' '.join(str(error).split())[:300]}") from None


def _commit(name: str, revision: str | None) -> str:
    """The commit of a revision. A commit is asked nothing. Raises ConfigError."""
    if revision is not None and COMMIT.fullmatch(revision):
        return revision
    from huggingface_hub import HfApi

    sha = _reading(f"hf://datasets/{name}", lambda: HfApi().dataset_info(name, revision=revision).sha)
    return str(sha)


def _write(rows: Any, place: str, folder: Path) -> None:
    """Raises ConfigError."""
    (folder / "images").mkdir(parents=True)
    iterator = iter(rows)
    with (folder / "chats.jsonl").open("w", encoding="utf-8") as out:
        while (row := _reading(place, lambda: next(iterator, None))) is not None:
            out.write(json.dumps(_named(row, folder), ensure_ascii=True, default=str) + "\n")


def _named(value: Any, folder: Path) -> Any:
    """A row's value with each picture's bytes as the name of their file."""
    if isinstance(value, dict):
        if value.keys() == {"bytes", "path"} and isinstance(value["bytes"], bytes):
            data = value["bytes"]
            suffix = next((suffix for magic, suffix in SUFFIXES.items() if data.startswith(magic)), "img")
            name = f"images/{hashlib.sha256(data).hexdigest()}.{suffix}"
            if not (folder / name).exists():
                (folder / name).write_bytes(data)
            return name
        return {key: _named(inner, folder) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_named(inner, folder) for inner in value]
    return value
