"""For environments without a desktop of ours: which actions no drawing can do, a text as a picture, and what somebody
else's server tells of tasks, pictures and rewards."""

from __future__ import annotations

import asyncio
import base64
import io
import textwrap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal, Protocol

import msgspec
from PIL import Image, ImageDraw

from eval.actions import Action, ActionType
from eval.desktop import ActionRefused, BadFrame, InfraError, Score, SetupFailed, Task

CANNOT: Final = {
    ActionType.GOTO: "there is no browser",
    ActionType.BACK: "there is no browser",
    ActionType.FORWARD: "there is no browser",
    ActionType.REFRESH: "there is no browser",
    ActionType.OPEN_APP: "there are no other programs",
    ActionType.CLOSE_APP: "there are no other programs",
    ActionType.SELECT_MONITOR: "there is one monitor",
    ActionType.WINDOW_FOCUS: "there are no windows",
    ActionType.WINDOW_RESIZE: "there are no windows",
    ActionType.WINDOW_MOVE: "there are no windows",
    ActionType.CURSOR_POSITION: "the pointer has no position between actions",
    ActionType.CALL_USER: "there is no user to call",
}


def check(action: Action) -> None:
    """Raises ActionRefused for an action that no drawn desktop can do."""
    if (why := CANNOT.get(action.type)) is not None:
        raise ActionRefused(why)


SIZE: Final = (640, 480)  # pixels
COLUMNS: Final = 100  # characters of Pillow's built-in font in a line
LINES: Final = 40
# what changes nothing in an environment whose time goes on with its steps alone
STILL: Final = (ActionType.DONE, ActionType.FAIL, ActionType.WAIT, ActionType.SCREENSHOT, ActionType.ZOOM)


def picture_of(text: str) -> Image.Image:
    """The text, black on white; what does not fit is left out."""
    image = Image.new("RGB", SIZE, "white")
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, COLUMNS) or [""]]
    plain = "\n".join(lines[:LINES]).encode("latin-1", "replace").decode("latin-1")
    ImageDraw.Draw(image).multiline_text((8, 8), plain, fill="black", spacing=1)
    return image


RewardKind = Literal["last", "sum"]


class InstructionServer(Protocol):
    async def instruction(self, seed: int) -> str:
        """What the server tells of a seed. Raises ConfigError where it tells nothing, InfraError."""
        ...

    async def close(self) -> None: ...


class TaskOptions(Protocol):
    """`instruction`: what the agent is told; None: the server tells it."""

    @property
    def instruction(self) -> str | None: ...

    @property
    def max_steps(self) -> int: ...


def served_tasks(
    name: str, seeds: range, options: TaskOptions, connect: Callable[[Any], InstructionServer], field: str
) -> list[Task]:
    """A task for each seed. `connect` gets the options; `field` is the one that names the server. Raises ConfigError,
    and SetupFailed where the server is not there to tell the instructions."""
    made = [Task(f"{name}-{seed}", options.instruction or "", seed, max_steps=options.max_steps) for seed in seeds]
    if options.instruction is not None:
        return made
    told = _told(connect, type(options), msgspec.json.encode(options), seeds, field)
    return [replace(task, instruction=text) for task, text in zip(made, told, strict=True)]


@lru_cache(8)
def _told(
    connect: Callable[[Any], InstructionServer], kind: type, options: bytes, seeds: range, field: str
) -> list[str]:
    """Asks once, because a training draws its tasks several times, and each costs an episode's start."""
    desktop = connect(msgspec.json.decode(options, type=kind))
    with ThreadPoolExecutor(1) as apart:  # a loop may run in this thread
        return apart.submit(asyncio.run, _instructions(desktop, seeds, field)).result()


async def _instructions(desktop: InstructionServer, seeds: range, field: str) -> list[str]:
    try:
        return [await desktop.instruction(seed) for seed in seeds]
    except InfraError as error:
        raise SetupFailed(f"options.{field}: {error}") from None
    finally:
        await desktop.close()


def sent_picture(text: Any, where: str) -> Image.Image:
    """A picture in base64. Raises BadFrame for what is none."""
    try:
        return Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")
    except (TypeError, ValueError, OSError) as error:
        raise BadFrame(f"{where}: {type(error).__name__}: {error}") from None


def reward_score(rewards: Sequence[float], kind: RewardKind, solved: float) -> Score:
    """The last reward, or the sum of all, cut to [0, 1]; 0 where there was none."""
    value = sum(rewards) if kind == "sum" else (rewards or [0.0])[-1]
    return Score(min(1.0, max(0.0, value)), value >= solved, {"reward": value})
