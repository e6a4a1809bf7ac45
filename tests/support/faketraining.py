"""A training by reinforcement as its records tell it, made by hand: a baseline, two generations, an evaluation, a crash
with a resume, void rollouts, a dropped group."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from launcher.store.base import Store
from launcher.store.layout import RunKeys, live_file
from tests.support.fakerun import START, episode_files

MASKED = "not among the turns with the most entropy (entropy_share)"
SCREEN = (320, 240)


def piece(number: int, lines: Iterable[Mapping[str, Any]]) -> bytes:
    head = {"record": "piece", "schema_version": "1.2.0", "piece": number}
    return b"".join(json.dumps(line).encode() + b"\n" for line in (head, *lines))


def group_lines(
    phase: str, step: int, group: int, outcomes: Iterable[bool | None], *, seed: int = 0, pictures: bool = False
) -> list[dict[str, Any]]:
    """A group's rollouts; an outcome None is a void rollout. Rollouts part at their second turn."""
    outcomes = list(outcomes)
    flat = len({outcome for outcome in outcomes if outcome is not None}) < 2
    at = {"phase": phase, "step": step, "group": group}
    told: list[dict[str, Any]] = [
        {
            "record": "group",
            **at,
            "task_id": f"login-{group}",
            "seed": seed,
            "instruction": f"Log in as user {group}.",
            "environment": "login",
            "dropped": "all rollouts have the same return" if flat else None,
        }
    ]
    for number, outcome in enumerate(outcomes):
        place = {**at, "rollout": number}
        if outcome is None:
            told.append(
                {
                    "record": "rollout",
                    **place,
                    "outcome": "void",
                    "total": None,
                    "success": None,
                    "turns": 0,
                    "tokens": 0,
                    "error": "DesktopGone: the cable",
                    "time": START + step,
                }
            )
            continue
        for turn in range(2):
            if pictures:
                shot = {"screenshot": f"{turn:03d}.png", "size": SCREEN}
                told.append({"record": "observation", **place, "turn": turn, **shot})
            x = 0.5 if turn == 0 else 0.25 + 0.5 * outcome
            told.append(
                {
                    "record": "turn",
                    **place,
                    "turn": turn,
                    "response": f"CLICK(x={x}, y=0.5)",
                    "tokens": 3,
                    "advantage": None if flat or turn == 1 else (0.5 if outcome else -0.5),
                    "entropy": 0.25 * (turn + 1),
                    "token_ids": [7, 8 + number, 2],
                    "logprobs": [-0.01, -1.5 - number, -6.0],
                    "texts": ["CLICK", f"(x={x}, y=0.5)", "<end>"],
                    "entropies": [0.05, 0.7, 3.0] if turn == 0 else None,
                    "masked": None if flat or turn == 0 else MASKED,
                }
            )
            action = {"type": "click", "x": x, "y": 0.5}
            refused = "outside of the window" if outcome is False and turn == 1 else None
            told.append({"record": "action", **place, "turn": turn, "number": 0, "action": action, "refused": refused})
        detail = {"screen": "welcome" if outcome else "form"}
        told.append(
            {
                "record": "validation",
                **place,
                "by": "login",
                "score": float(outcome),
                "success": outcome,
                "detail": detail,
            }
        )
        told.append(
            {
                "record": "rollout",
                **place,
                "outcome": "scored",
                "total": float(outcome) - 0.04,
                "success": outcome,
                "turns": 2,
                "tokens": 6,
                "errors": {} if outcome else {"runtime": 1},
                "episode": episode(place) if pictures else None,
                "parts": {"score": float(outcome), "turns": -0.04},
                "version": max(0, step - 1),
                "seconds": 1.5,
                "time": START + step,
            }
        )
    return told


def episode(place: Mapping[str, Any]) -> str:
    return f"rollouts/{place['step']}-{place['group']}-{place['rollout']}"


def step_line(phase: str, step: int, **metrics: float | None) -> dict[str, Any]:
    return {"record": "step", "phase": phase, "step": step, "metrics": metrics, "time": START + 10 * step}


def status_line(status: str, step: int, **more: Any) -> dict[str, Any]:
    return {"record": "status", "status": status, "step": step, "progress": step / 4, "time": START + step, **more}


def training_pieces() -> list[bytes]:
    """Five pieces. The third was cut off by a crash; the resume of the fourth throws away what it says of step 2."""
    config = {"group_size": 3, "environment": "login"}
    start = {
        "record": "training",
        "name": "rl-login",
        "method": "grpo",
        "model": "tiny",
        "config": config,
        "time": START,
    }
    first = [start, status_line("started", 0), *group_lines("baseline", 0, 0, (False, False))]
    second = [
        step_line("baseline", 0, success=0.0),
        *group_lines("train", 1, 0, (True, False, None), seed=10, pictures=True),
        *group_lines("train", 1, 1, (False, False), seed=11),
        step_line("train", 1, loss=0.5, reward=1 / 3),
    ]
    crashed = [*group_lines("train", 2, 0, (False, True, True)), step_line("train", 2, loss=9.0)]
    torn = piece(3, crashed)[:-30]
    again = [
        status_line("resumed", 1),
        *group_lines("train", 2, 0, (True, False, True), seed=12),
        step_line("train", 2, loss=0.25),
        step_line("train", 2, train_runtime=7.0),
    ]
    last = [
        *group_lines("eval", 2, 0, (True, True), seed=20),
        step_line("eval", 2, success=1.0),
        status_line("done", 2),
    ]
    return [piece(1, first), piece(2, second), torn, piece(4, again), piece(5, last)]


def training_files() -> dict[str, bytes]:
    """The whole of such a training's results."""
    files = {f"records/{number:06d}.jsonl": body for number, body in enumerate(training_pieces(), 1)}
    for rollout in (0, 1):
        frames = episode_files("e", True, rollout)
        for turn in (0, 1):
            files[f"rollouts/1-0-{rollout}/{turn:03d}.png"] = frames[f"episodes/e/{turn:03d}.png"]
    return files


def write_live(
    store: Store, run: str, version: int, files: Mapping[str, bytes], before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One version of the results of attempt 1, as the runtime keeps them: files that changed since the version `before`
    are at keys of their own. Returns its files."""
    keys = RunKeys(run).attempt(1)
    entries: dict[str, Any] = {}
    for path, body in files.items():
        digest = hashlib.sha256(body).hexdigest()
        held = (before or {}).get(path)
        at = held["at"] if held is not None and held["sha256"] == digest else live_file(version, path)
        store.put(keys.output("results")[:-1] + at, body)
        entries[path] = {"size": len(body), "sha256": digest, "at": at}
    manifest = {"files": entries, "time": START, "nonce": str(version)}
    store.create(keys.live_manifest("results", version), json.dumps(manifest).encode())
    return entries
