"""Runs written straight into a store, as a runtime would have left them: for tests of everything that only reads."""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from launcher.protocol.records import Beat, Cancel, Claim, Exit, Placement, Result
from launcher.reasons import Reason
from launcher.spec.hashing import encode_job, group_id, run_id, work_hash
from launcher.spec.model import Code, Image, Input, Output, ResolvedJob, Resources, Role
from launcher.store import layout
from launcher.store.base import Store
from launcher.store.find import GroupRecord

START = 1_780_000_000.0  # seconds since the epoch: a day in 2026


@dataclass
class FakeAttempt:
    """One attempt; `logs` and `metrics` are pieces by first byte, `outputs` files by output and path."""

    started: float = START
    ended: float | None = START + 60.0
    reason: Reason = Reason.SUCCEEDED
    message: str = ""
    beat: Beat | None = None
    logs: Mapping[str, Mapping[int, bytes]] = field(default_factory=dict)
    metrics: Sequence[tuple[str, float, float]] = ()  # name, step, value
    outputs: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    checkpoints: Sequence[int] = ()
    code: int | None = 0
    image: str = ""  # the id that its claims name


def fake_job(name: str, **changes: Any) -> ResolvedJob:
    role = Role(
        command=("python", "-m", "training.sft"),
        image=Image(environment=hashlib.sha256(b"environment").hexdigest()),
        resources=changes.pop("resources", Resources(cpus=2.0)),
        replicas=changes.pop("replicas", 1),
    )
    values: dict[str, Any] = {"roles": {"main": role}, "store": "file:///store", "backend": "local"}
    return ResolvedJob(name=name, **{**values, **changes})


def write_run(
    store: Store,
    job: ResolvedJob,
    attempts: Sequence[FakeAttempt] = (FakeAttempt(),),
    *,
    outcome: str | None = "succeeded",
    data: Mapping[str, str] | None = None,
    cancelled: bool = False,
) -> str:
    """Writes a run; `outcome` None leaves it without a result. Returns its id."""
    run = run_id(job)
    keys = layout.RunKeys(run)
    store.create(keys.job, encode_job(job))
    if cancelled:
        store.create(keys.cancel, msgspec.json.encode(Cancel(by="someone", time=START, nonce="c")))
    for number, attempt in enumerate(attempts, 1):
        write_attempt(store, job, run, number, attempt)
    if outcome is not None:
        last = attempts[-1] if attempts else FakeAttempt(reason=Reason.CANCELLED)
        total = sum((one.ended or one.started) - one.started for one in attempts)
        result = Result(
            outcome=outcome,
            attempt=len(attempts),
            reason=last.reason,
            message=last.message,
            time=(last.ended or last.started) + 1,
            nonce=f"nonce-{run}",
            work=work_hash(job),
            data=dict(data or {}),
            running=total,
            written_by="main-0",
        )
        store.create(keys.result, msgspec.json.encode(result))
    return run


def write_attempt(store: Store, job: ResolvedJob, run: str, number: int, attempt: FakeAttempt) -> None:
    keys = layout.RunKeys(run).attempt(number)
    for rank, member in enumerate(job.members()):
        place = Placement(kind="process", where="host/queue", host="host", boot="boot", pid=100 + rank, start=7)
        claim = Claim(placement=place, nonce=f"{number}-{member}", time=attempt.started, image=attempt.image)
        store.create(keys.claim(member), msgspec.json.encode(claim))
        if attempt.beat is not None:
            store.put(keys.beat(member), msgspec.json.encode(attempt.beat))
        for first, body in attempt.logs.get(member, {}).items():
            store.put(keys.log_piece(member, first), body)
        if rank == 0:
            lines = [{"step": s, "name": n, "value": v, "time": attempt.started} for n, s, v in attempt.metrics]
            if lines:
                store.put(keys.metrics_piece(member, 0), b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        if attempt.ended is not None:
            end = Exit(
                member=member,
                reason=attempt.reason,
                code=attempt.code,
                message=attempt.message,
                started=attempt.started,
                ended=attempt.ended,
                running=attempt.ended - attempt.started,
                nonce=f"exit-{number}-{member}",
            )
            store.create(keys.exit(member), msgspec.json.encode(end))
    for step in attempt.checkpoints:
        store.create(keys.checkpoint_complete(step), b"{}")
    for name, files in attempt.outputs.items():
        write_output(store, keys, name, files)


def write_output(store: Store, keys: layout.AttemptKeys, name: str, files: Mapping[str, bytes]) -> None:
    for path, body in files.items():
        store.put(keys.output(name) + path, body)
    entries = {path: {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()} for path, body in files.items()}
    manifest = {"files": entries, "time": START, "nonce": name}
    store.create(keys.output_manifest(name), json.dumps(manifest).encode())


def write_group(
    store: Store,
    runs: Sequence[str],
    names: Mapping[str, str] | None = None,
    edges: Mapping[str, Sequence[str]] | None = None,
) -> str:
    group = group_id(runs)
    record = GroupRecord(
        id=group,
        runs=tuple(runs),
        names=dict(names or {run: run.rpartition("-")[0] for run in runs}),
        edges={run: tuple(above) for run, above in (edges or {}).items()},
    )
    store.create(layout.group(group), msgspec.json.encode(record))
    return group


def eval_files(outcomes: Sequence[bool | None], *, benchmark: str = "login", agent: str = "") -> dict[str, bytes]:
    """summary.json and tasks.jsonl of an evaluation; an outcome of None is an infrastructure failure."""
    from launcher.results.stats import wilson

    scored = [one for one in outcomes if one is not None]
    rate = wilson(sum(scored), len(scored))
    summary = [
        {
            "benchmark": benchmark,
            "version": "1",
            "split": "test",
            "metric": "success",
            "value": rate.value if rate else None,
            "ci_low": rate.low if rate else None,
            "ci_high": rate.high if rate else None,
            "n": len(scored),
            "infra_failures": len(outcomes) - len(scored),
            "seeds": [0],
            **({"agent": agent} if agent else {}),
        }
    ]
    tasks = [
        {
            "benchmark": benchmark,
            "task_id": f"task-{index % 4}",
            "seed": index,
            "score": None if one is None else float(one),
            "success": one,
            "outcome": "infra" if one is None else "scored",
        }
        for index, one in enumerate(outcomes)
    ]
    lines = "".join(json.dumps(task) + "\n" for task in tasks)
    return {"summary.json": json.dumps(summary).encode(), "tasks.jsonl": lines.encode()}


def png(width: int, height: int, boxes: Sequence[tuple[int, int, int, int, tuple[int, int, int]]]) -> bytes:
    """A picture of filled rectangles (x, y, w, h, colour) on light grey."""
    rows = [bytearray(b"\xf0\xf1\xf3" * width) for _ in range(height)]
    for x, y, w, h, colour in boxes:
        for row in rows[y : y + h]:
            row[3 * x : 3 * (x + w)] = bytes(colour) * w
    raw = b"".join(b"\0" + bytes(row) for row in rows)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def episode_files(
    episode: str, success: bool | None, seed: int = 0, *, instruction: str = "Log in as alice.", thought: str = ""
) -> dict[str, bytes]:
    """One login episode of four steps with its frames, under episodes/<id>/."""
    rng = random.Random(seed)
    w, h = 320, 240
    dx, dy = rng.randint(-12, 12), rng.randint(-12, 12)
    grey, white, blue = (150, 155, 162), (255, 255, 255), (37, 99, 201)
    fields = [(70 + dx, 60 + dy), (70 + dx, 110 + dy)]
    button = (110 + dx, 165 + dy, 100, 30)
    frames = []
    for filled in (0, 0, 1, 1, 2):
        boxes = [(30 + dx, 30 + dy, 260, 185, white)]
        for k, (x, y) in enumerate(fields):
            boxes += [(x - 1, y - 1, 182, 30, grey), (x, y, 180, 28, white)]
            if k < filled:
                boxes.append((x + 8, y + 10, 60, 8, (40, 40, 40)))
        frames.append(png(w, h, [*boxes, (*button, blue)]))

    def click(x: float, y: float) -> dict[str, Any]:
        return {"type": "click", "x": x / w, "y": y / h}

    actions: list[dict[str, Any] | None] = [
        click(fields[0][0] + 90, fields[0][1] + 14),
        {"type": "type", "text": "alice"},
        click(fields[1][0] + 90, fields[1][1] + 14),
        click(button[0] + 50, button[1] + 15) if success else click(40, 220),
    ]
    steps = [
        {
            "index": k,
            "screenshot": f"{k:03d}.png",
            "action": action,
            "response": "Action: ...",
            "thought": thought or None,
        }
        for k, action in enumerate(actions)
    ]
    head = {
        "schema_version": "1.0.0",
        "episode_id": episode,
        "task_id": "login",
        "instruction": instruction,
        "goal": instruction,
        "seed": seed,
        "success": success,
        "score": None if success is None else float(success),
        "outcome": "infra" if success is None else "scored",
        "error": None,
        "steps": len(steps),
        "screen": [w, h],
        "agent": "tiny",
        "environment": "login",
        "duration_ms": 1850,
    }
    files = {f"{k:03d}.png": frame for k, frame in enumerate(frames)}
    files["steps.jsonl"] = "".join(json.dumps(step) + "\n" for step in steps).encode()
    files["episode.json"] = json.dumps(head).encode()
    return {f"episodes/{episode}/{name}": body for name, body in files.items()}


def loss_curve(steps: int, seed: int = 0) -> list[tuple[str, float, float]]:
    rng = random.Random(seed)
    lines = []
    for step in range(steps):
        lines.append(("loss", float(step), 2.6 * math.exp(-step / (steps / 4)) + 0.08 + 0.1 * rng.random()))
        lines.append(("learning_rate", float(step), 1e-3 * (1 - step / steps)))
        if step % 20 == 0:
            lines.append(("token_accuracy", float(step), 1 - 0.85 * math.exp(-step / (steps / 3))))
    return lines


@dataclass(frozen=True)
class Pipeline:
    group: str
    data: str
    before: str
    sft: str
    after: str


def login_pipeline(store: Store, *, n: int = 100, thought: str = "") -> Pipeline:
    """The demo's four runs, finished: episodes, evaluation before, training with a lost attempt, evaluation after."""
    rng = random.Random(1)
    digest = hashlib.sha256(b"overlay").hexdigest()
    store.put(layout.blob_note(digest), json.dumps({"commit": "1f3a5b7c9d" * 4, "dirty": True}).encode())
    data_job = fake_job("episodes", outputs={"episodes": Output()}, code=Code(digest))
    data = write_run(store, data_job, [FakeAttempt(ended=START + 14, outputs={"episodes": {"a": b"1"}})])
    episodes = Input(work=work_hash(data_job), output="episodes")
    before_job = fake_job("eval-before", outputs={"results": Output(sync="live")}, code=Code(digest))
    outcomes = [rng.random() < 0.02 for _ in range(n)]
    files = eval_files(outcomes) | episode_files("e-000", False, 0)
    logs = {"main-0": {0: b"loading the model\n100 episodes\n"}}
    before = write_run(
        store, before_job, [FakeAttempt(started=START + 2, ended=START + 33, outputs={"results": files}, logs=logs)]
    )
    sft_job = fake_job(
        "sft",
        inputs={"episodes": episodes},
        outputs={"model": Output(), "checkpoints": Output(kind="checkpoints")},
        code=Code(digest),
    )
    curve = loss_curve(300)
    lost = FakeAttempt(
        started=START + 15, ended=START + 61, reason=Reason.PREEMPTED, message="the machine was reclaimed", code=-15,
        metrics=[line for line in curve if line[1] < 140], checkpoints=[50, 100],
    )  # fmt: skip
    again = FakeAttempt(
        started=START + 66, ended=START + 160, outputs={"model": {"m": b"2"}}, checkpoints=[200, 300],
        metrics=[line for line in curve if line[1] >= 100],
    )  # fmt: skip
    sft = write_run(store, sft_job, [lost, again], data={"episodes": hashlib.sha256(b"episodes").hexdigest()})
    after_job = fake_job(
        "eval-after",
        inputs={"model": Input(work=work_hash(sft_job), output="model")},
        outputs={"results": Output(sync="live")},
        code=Code(digest),
    )
    outcomes = [None if index == 17 else rng.random() < 0.93 for index in range(n)]
    files = eval_files(outcomes)
    for index in range(6):
        files |= episode_files(f"e-{index:03d}", index != 2, index, thought=thought)
    after = write_run(
        store, after_job, [FakeAttempt(started=START + 162, ended=START + 204, outputs={"results": files})]
    )
    edges = {before: [], sft: [data], after: [sft], data: []}
    names = {data: "episodes", before: "eval-before", sft: "sft", after: "eval-after"}
    group = write_group(store, [data, before, sft, after], names, edges)
    return Pipeline(group, data, before, sft, after)
