"""The benchmark's files: one JSON per trajectory, screenshots in `images/` beside them, opened only when used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.actions.geometry import Box, Point
from eval.benchmarks.errors import BenchError
from eval.episodes.pictures import opened

if TYPE_CHECKING:
    from PIL import Image

POINTED = frozenset({"click", "doubleclick", "rightclick", "middleclick", "tripleclick", "moveto", "dragto"})
SCROLLS = frozenset({"scroll", "hscroll"})
KEYS = frozenset({"press", "hotkey"})
SAME_TYPE = {"vscroll": "scroll", "typewrite": "write", "type": "write"}
# One name per key; cmd on a Mac does what ctrl does elsewhere. Ground truth and predictions are both mapped.
SAME_KEY = {"cmd": "ctrl", "command": "ctrl", "control": "ctrl", "return": "enter", "escape": "esc"}


@dataclass(frozen=True)
class Act:
    """One low-level action, of the ground truth or of a prediction; a prediction has no boxes.

    type     lower case without underscores: click, tripleclick, moveto, write, ...
    point    normalised, for the click family, moveto and dragto; None where a prediction names no place
    amount   wheel clicks, signed: positive is up (right for hscroll); None where unknown
    """

    type: str
    point: Point | None = None
    boxes: tuple[Box, ...] = ()
    text: str = ""
    keys: tuple[str, ...] = ()
    amount: float | None = None
    status: str = ""


@dataclass(frozen=True)
class BenchStep:
    """One scored step. `options`: the ground truth and its alternatives; `code`: what the human did, in PyAutoGUI."""

    number: int
    image: Path
    code: str
    thought: str | None
    options: tuple[tuple[Act, ...], ...]

    def open(self) -> Image.Image:
        """The screenshot. Raises BadFrame."""
        return opened(self.image, self.image.name)


@dataclass(frozen=True)
class Trajectory:
    """One task of the benchmark. `digest`: the beginning of its file's sha256, so that no two editions are compared."""

    task_id: str
    goal: str
    steps: tuple[BenchStep, ...]
    digest: str = ""


def canonical_type(name: str) -> str:
    """`triple_click`, `tripleClick` and `tripleclick` are one type."""
    plain = name.lower().replace("_", "")
    return SAME_TYPE.get(plain, plain)


def canonical_keys(keys: Any) -> tuple[str, ...]:
    """Lower-case key names, each key under one name. Raises BenchError for anything but a list of strings."""
    values = [keys] if isinstance(keys, str) else keys
    if not isinstance(values, list | tuple) or not all(isinstance(key, str) for key in values):
        raise BenchError(f"keys must be a list of strings, not {keys!r}")
    return tuple(SAME_KEY.get(key.lower(), key.lower()) for key in values)


def _act(data: Mapping[str, Any]) -> Act:
    kind = canonical_type(data["type"])
    params: Mapping[str, Any] = data.get("params") or {}
    if kind in POINTED:
        boxes = (data.get("metadata") or {}).get("bboxes") or []
        position = params["position"]
        rectangles = [box["rel_bbox"] for box in boxes if box.get("rel_bbox")]
        return Act(
            kind,
            point=(float(position["x"]), float(position["y"])),
            boxes=tuple((float(x), float(y), float(w), float(h)) for x, y, w, h in rectangles),
        )
    if kind in SCROLLS:
        amount = params.get("amount", params.get("pixels"))
        if amount is None and params.get("direction") in ("up", "right", "down", "left"):
            return Act(kind, amount=1.0 if params["direction"] in ("up", "right") else -1.0, text="direction only")
        return Act(kind, amount=None if amount is None else float(amount))
    if kind == "write":
        return Act(kind, text=str(params["text"] if "text" in params else params["content"]))
    if kind in KEYS:
        return Act(kind, keys=canonical_keys(params.get("keys", params.get("key"))))
    if kind == "terminate":
        return Act(kind, status=str(params["status"]))
    return Act(kind)


def _acts(data: Any) -> tuple[Act, ...]:
    return tuple(_act(item) for item in data)


def load_trajectory(path: Path, images: Path) -> Trajectory:
    """One file. Raises BenchError, which names the file and the step."""
    number: Any = None
    try:
        body = path.read_bytes()
        data = json.loads(body)
        steps = []
        for item in data["steps"]:
            number = item["step_num"]
            options = [_acts(item["ground_truth_actions"]), *map(_acts, item.get("alternative_options") or [])]
            steps.append(
                BenchStep(
                    number=int(number),
                    image=images / item["image"],
                    code=item.get("action") or "",
                    thought=(item.get("inner_monologue") or {}).get("thought"),
                    options=tuple(options),
                )
            )
        goal = data.get("high_level_task_description") or data["user_task_description"]
        return Trajectory(data["task_id"], goal, tuple(steps), hashlib.sha256(body).hexdigest()[:12])
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        where = path.name if number is None else f"{path.name}: step {number}"
        problem = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise BenchError(f"{where}: {problem}") from None


def load(folder: Path) -> list[Trajectory]:
    """Every trajectory of a folder, sorted by file name. Raises BenchError."""
    trajectories = [load_trajectory(path, folder / "images") for path in sorted(folder.glob("*.json"))]
    if not trajectories:
        raise BenchError(f"{folder}: no trajectory (*.json)")
    if len({trajectory.task_id for trajectory in trajectories}) < len(trajectories):
        raise BenchError(f"{folder}: two trajectories have the same task_id")
    return trajectories
