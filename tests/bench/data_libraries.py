"""Our packed datasets beside libraries that do the same: `python -m tests.bench.data_libraries [LIBRARY...]`.

Needs beside the lock: webdataset, pylance, mosaicml-streaming, torchdata, s3fs (versions: dependencies.md in docs).
A library that is not installed has a line that says so. mosaicml-streaming asks for older transformers and numpy than
ours: install it without its dependencies, and those that it imports by hand.

Each library writes the same steps (SLIPWAY_BENCH_STEPS, 100,000 unless said otherwise), reads them, resumes in the
middle, is killed with SIGKILL and resumed, mixes two datasets, and reads from a real S3 server with two loader
processes. Each part is a process of its own, and a library's files are deleted before the next one writes.
SLIPWAY_BENCH_READ bounds how many steps are read for a rate, SLIPWAY_BENCH_KILLS how often each loader is killed.
SLIPWAY_BENCH_PARTS chooses among read, correct (kills and mixtures, on at most 30,000 steps) and s3;
SLIPWAY_BENCH_JSON names a file that gets the figures.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from tests.bench.data import peak, together
from tests.bench.libraries import BATCH, EPISODE, LIBRARIES, Loader, Place, library

STEPS = int(os.environ.get("SLIPWAY_BENCH_STEPS", "100000"))
READ = int(os.environ.get("SLIPWAY_BENCH_READ", "50000"))
KILLS = int(os.environ.get("SLIPWAY_BENCH_KILLS", "3"))
CHOSEN = os.environ.get("SLIPWAY_BENCH_PARTS", "read,correct,s3").split(",")
KILLED = 200  # batches of a loader that is killed and resumed
SAVED = 10  # batches between two states that it keeps
WEIGHTS = (3.0, 1.0)
WINDOW = 1_000  # steps of a mixture whose shares are counted
IMPORTED = {  # before anything is measured
    "ours": ("training.data.source", "training.data.packed.stream", "training.data.packed.writer", "eval.prompts"),
    "datasets_mapped": (),
    "datasets_streamed": ("torchdata.stateful_dataloader",),
    "webdataset": ("webdataset",),
    "lance": ("lance",),
    "mosaic": ("streaming",),
}
NAMES = {
    "ours": "ours",
    "datasets_mapped": "datasets, mapped",
    "datasets_streamed": "datasets, streamed",
    "webdataset": "webdataset",
    "lance": "Lance",
    "mosaic": "mosaicml-streaming",
}


def read(opening: Callable[[], Loader]) -> dict[str, Any]:
    """Seconds from opening to the first batch, the rate after it, and the mean number of episodes in a batch.

    Seconds of CPU, all threads together, because other work on the machine does not change them; `wall` and `wall_rate`
    are of the clock.
    """
    began, busy = time.perf_counter(), time.process_time()
    batches = iter(opening())
    next(batches)
    wall, first = time.perf_counter() - began, time.process_time() - busy
    began, busy = time.perf_counter(), time.process_time()
    count = episodes = taken = 0
    for batch in itertools.islice(batches, READ // BATCH):
        count += len(batch)
        taken += 1
        episodes += len({number // EPISODE for number, _, _ in batch})
    rate, wall_rate = count / (time.process_time() - busy), count / (time.perf_counter() - began)
    return {"first": first, "wall": wall, "rate": rate, "wall_rate": wall_rate, "episodes": episodes / max(1, taken)}


def write_part(name: str, folder: Path, more: dict[str, Any]) -> dict[str, Any]:
    steps = more.get("steps", STEPS)
    busy = time.process_time()
    library(name).write(folder, steps, more.get("start", 0))
    took = time.process_time() - busy
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"rate": steps / took, "MB": size / 1e6, "peak": peak()}


def read_part(name: str, folder: Path, more: dict[str, Any]) -> dict[str, Any]:
    """In order, then shuffled; writes the state after half of the steps to a file."""
    which, place = library(name), Place(folder)
    ordered = read(lambda: which.open_loader(place, shuffled=False, workers=0))
    shuffled = read(lambda: which.open_loader(place, shuffled=True, workers=0))
    highest = peak()
    half = STEPS // BATCH // 2
    state: Any = half if name == "webdataset" else half * BATCH
    if name in ("datasets_streamed", "mosaic"):  # their states are known only when that much was read
        loader = which.open_loader(place, shuffled=True, workers=0)
        for _ in itertools.islice(loader, half):
            pass
        state = loader.state()
    Path(more["state"]).write_text(json.dumps(state))
    return {"in order": ordered, "shuffled": shuffled, "peak": highest}


def resume_part(name: str, folder: Path, more: dict[str, Any]) -> dict[str, Any]:
    which, state = library(name), json.loads(Path(more["state"]).read_bytes())
    busy, began = time.process_time(), time.perf_counter()
    next(iter(which.open_loader(Place(folder), shuffled=True, workers=0, state=state)))
    return {"first": time.process_time() - busy, "wall": time.perf_counter() - began}


def kill_part(name: str, folder: Path, more: dict[str, Any]) -> dict[str, Any]:
    """Prints the numbers of each batch, and keeps a state after every SAVED of them; the parent kills it."""
    kept = Path(more["state"])
    done, state = json.loads(kept.read_bytes()) if kept.exists() else (0, None)
    loader = library(name).open_loader(Place(folder), shuffled=True, workers=2, state=state)
    for batch in itertools.islice(loader, KILLED - done):
        print(json.dumps([done, [number for number, _, _ in batch]]), flush=True)
        done += 1
        if done % SAVED == 0:
            fresh = kept.with_suffix(".new")
            fresh.write_text(json.dumps((done, loader.state())))
            fresh.replace(kept)
    print(json.dumps([-1, []]), flush=True)
    os._exit(0)  # the loader's processes prepare batches that nobody reads


def mix_part(name: str, folder: Path, more: dict[str, Any]) -> dict[str, Any]:
    """The worst share of the first source in a window, and how often the steps of the smaller source came."""
    numbers = library(name).mix([folder, Path(more["small"])], list(WEIGHTS))
    if numbers is None:
        return {}
    limit = (more["steps"] * 4) // 3 // WINDOW * WINDOW
    drawn = list(itertools.islice(numbers, limit))
    windows = [drawn[at : at + WINDOW] for at in range(0, len(drawn) - WINDOW + 1, WINDOW)]
    shares = [sum(number < more["steps"] for number in window) / WINDOW for window in windows]
    target = WEIGHTS[0] / sum(WEIGHTS)
    often = Counter(number for number in drawn if number >= more["steps"])
    times = [often[number] for number in range(more["steps"], more["steps"] + more["others"])]
    worst = max((abs(share - target) for share in shares), default=None)
    return {"drawn": len(drawn), "worst": worst, "fewest": min(times), "most": max(times)}


def s3_part(name: str, folder: Path, more: dict[str, Any]) -> dict[str, Any]:
    """Two loader processes; the rates are of the clock, as the work is done by those processes and by the server."""
    which, place = library(name), Place(folder, more["options"], Path(more["local"]))
    with together() as memory:
        figures = read(lambda: which.open_loader(place, shuffled=True, workers=2))
    local = sum(path.stat().st_size for path in place.local.rglob("*") if path.is_file()) if place.local.exists() else 0
    print(json.dumps({**figures, "memory": memory[0], "local": local / 1e6}), flush=True)
    os._exit(0)


PARTS: dict[str, Callable[[str, Path, dict[str, Any]], dict[str, Any]]] = {
    "write": write_part,
    "read": read_part,
    "resume": resume_part,
    "kill": kill_part,
    "mix": mix_part,
    "s3": s3_part,
}


def started(part: str, name: str, folder: Path, more: dict[str, Any]) -> tuple[int, IO[str]]:
    """A fork that runs a part in a session of its own: (its process id, what it prints).

    Forked after the imports, which take longer than most parts. Of a fork the peak of memory begins anew.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, os.fdopen(reading, encoding="utf-8")
    try:
        os.setsid()
        os.dup2(writing, 1)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
        tempfile.tempdir = str(folder.parent)
        print(json.dumps(PARTS[part](name, folder, more)), flush=True)
    except BaseException as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"[:200]}), flush=True)
    finally:
        os._exit(0)


def child(part: str, name: str, folder: Path, **more: Any) -> dict[str, Any]:
    """The figures of a part in a process of its own; {"error"} in their place when it fails."""
    pid, output = started(part, name, folder, more)
    with output:
        lines = output.read().splitlines()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # loaders that a part left behind
    os.waitpid(pid, 0)
    figures: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": "it ended without a word"}
    if "error" in figures:
        print(f"{name}: {part}: {figures['error']}", file=sys.stderr, flush=True)
    return figures


def killed(name: str, folder: Path) -> dict[str, Any]:
    """A loader with two processes, killed KILLS times and resumed from its last state, against one left alone.

    Returns at how many batches the two differ (`different` of `batches`), and how many steps of the undisturbed order
    came never (`lost`) or twice (`twice`), counting for each batch what was given last.
    """

    def lines(state: Path, stop: int | None) -> Iterator[tuple[int, list[int]]]:
        pid, output = started("kill", name, folder, {"state": str(state)})
        try:
            for count, line in enumerate(output):
                told = json.loads(line)
                if isinstance(told, dict):  # an error
                    return
                place, numbers = told
                if place < 0 or count == stop:
                    return
                yield place, numbers
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            output.close()

    alone = dict(lines(folder.parent / "state-alone", None))
    rng, state = random.Random(3), folder.parent / "state-killed"
    got: dict[int, list[int]] = {}
    for _ in range(KILLS):
        got |= dict(lines(state, rng.randrange(15, 2 * KILLED // max(1, 3 * KILLS) + 15)))
    got |= dict(lines(state, None))
    if len(alone) < KILLED or len(got) < KILLED:
        return {"error": f"{len(got)} of {len(alone)} batches"}
    whole = Counter(number for numbers in got.values() for number in numbers)
    expected = [number for numbers in alone.values() for number in numbers]
    return {
        "batches": len(alone),
        "different": sum(got[place] != alone[place] for place in alone),
        "lost": sum(number not in whole for number in expected),
        "twice": sum(count - 1 for count in whole.values()),
    }


def stored(name: str, folder: Path) -> dict[str, Any]:
    """Reads from S3 with two loader processes, after an upload that is not timed."""
    import boto3
    from botocore.config import Config

    from tests.support import s3

    with s3.running() as server:
        bucket = server.bucket()
        client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            aws_access_key_id=s3.KEY,
            aws_secret_access_key=s3.SECRET,
            region_name=s3.REGION,
            config=Config(signature_version="s3v4"),  # of the signed addresses; the server reads no older ones
        )
        signed = {}
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            key = f"data/{path.relative_to(folder)}"
            client.upload_file(str(path), bucket, key)
            request = {"Bucket": bucket, "Key": key}
            if path.suffix == ".tar":
                signed[path.name] = client.generate_presigned_url("get_object", Params=request, ExpiresIn=36_000)
        client.close()
        options: dict[str, Any] = {"key": s3.KEY, "secret": s3.SECRET, "region": s3.REGION, "endpoint": server.endpoint}
        options |= {"bucket": bucket, "prefix": "data", "signed": signed}
        local = folder.parent / "local"
        return child("s3", name, folder, options=options, local=str(local))


def measure(name: str) -> dict[str, Any]:
    """All figures of a library, in a process that holds nothing but its imports."""
    from tests.support import s3

    folder = Path(tempfile.mkdtemp(prefix="slipway-bench-"))
    os.environ.update(s3.ENVIRONMENT, HF_DATASETS_CACHE=str(folder / "cache"))
    for module in ("torch.utils.data", "datasets", "boto3", *IMPORTED[name]):
        import_module(module)
    data, state = folder / "data", str(folder / "middle")
    figures: dict[str, Any] = {}
    try:
        figures["write"] = child("write", name, data)
        if "read" in CHOSEN:
            figures["read"] = child("read", name, data, state=state)
            figures["resume"] = child("resume", name, data, state=state)
        if "correct" in CHOSEN:
            big, small = min(STEPS, 30_000), min(STEPS // 10, 3_000)
            child("write", name, folder / "big", steps=big)
            child("write", name, folder / "small", steps=small, start=big)
            figures["killed"] = killed(name, folder / "big")
            figures["mix"] = child("mix", name, folder / "big", small=str(folder / "small"), steps=big, others=small)
        if "s3" in CHOSEN:
            shutil.rmtree(folder / "cache", ignore_errors=True)  # a machine that reads for the first time has none
            figures["s3"] = stored(name, data)
        return figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(found: dict[str, dict[str, Any]]) -> str:
    """Markdown: a column per library."""

    def cell(figures: dict[str, Any], path: str, form: str) -> str:
        value: Any = figures
        for key in path.split("/"):
            if "error" in value:
                return "failed"
            value = value.get(key)
            if value is None:
                return "-"
        return format(value, form)

    shown = [
        ("written, steps per s of CPU", "write/rate", ",.0f"),
        ("on disk, MB", "write/MB", ",.0f"),
        ("peak of the writer, MB", "write/peak", ",.0f"),
        ("first batch, first opening, s of CPU", "read/in order/first", ".1f"),
        ("first batch, opened again, s of CPU", "read/shuffled/first", ".1f"),
        ("read in order, steps per s of CPU", "read/in order/rate", ",.0f"),
        ("read shuffled, steps per s of CPU", "read/shuffled/rate", ",.0f"),
        (f"episodes in a shuffled batch of {BATCH}", "read/shuffled/episodes", ".1f"),
        ("peak of the reader, MB", "read/peak", ",.0f"),
        ("resumed in the middle: first batch, s of CPU", "resume/first", ".1f"),
        ("killed and resumed: batches that differ", "killed/different", ",d"),
        ("the same: steps lost", "killed/lost", ",d"),
        ("the same: steps given twice", "killed/twice", ",d"),
        (f"mixture 3 : 1: worst error of a share in {WINDOW:,} steps", "mix/worst", ".3f"),
        ("the same: a step of the smaller set came at least, times", "mix/fewest", ",d"),
        ("the same: at most", "mix/most", ",d"),
        ("S3, 2 processes: first batch, s", "s3/wall", ".1f"),
        ("S3, 2 processes: read shuffled, steps/s", "s3/wall_rate", ",.0f"),
        ("S3, 2 processes: memory of all, MB", "s3/memory", ",.0f"),
        ("S3: on the local disk after that, MB", "s3/local", ",.0f"),
    ]
    lines = [f"| {STEPS:,} steps | " + " | ".join(NAMES[name] for name in found) + " |"]
    lines.append("|---|" + "---:|" * len(found))
    for what, path, form in shown:
        lines.append(f"| {what} | " + " | ".join(cell(found[name], path, form) for name in found) + " |")
    return "\n".join(lines)


def main(names: list[str]) -> int:
    figures: dict[str, dict[str, Any]] = {}
    for name in names or LIBRARIES:
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.data_libraries", "--measure", name], stdout=subprocess.PIPE, check=True
        )
        figures[name] = json.loads(done.stdout.splitlines()[-1])
        if path := os.environ.get("SLIPWAY_BENCH_JSON"):
            Path(path).write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        sys.exit(main(sys.argv[1:]))
