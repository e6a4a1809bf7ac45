"""Episode folders: `NNN.png` (the frame before action NNN, and a final frame), `steps.jsonl`, and `episode.json`.

episode.json is written last: a folder without it is an episode that was cut off. Names follow the episode schema 1.1.0,
which is 1.0.0 with more: of a step `further_actions`, `refused`, `calls`, `usage`, `cost`, `raw` and `tree`, and of
actions `path`, `distance` and the types zoom, cursor_position and call_user. Episodes of 1.0.0 are read as they are.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionError
from eval.actions.geometry import Box
from eval.desktop import Expected

if TYPE_CHECKING:
    from PIL import Image


Tokens = Annotated[int, msgspec.Meta(ge=0)]


class TokenUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Tokens of one answer, as its server counts them.

    input_tokens   of the prompt, those from a cache among them
    output_tokens  of the answer, its reasoning among them
    cached_tokens  of the prompt, those that the server read from its cache
    """

    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    cached_tokens: Tokens = 0


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A call of a tool in an answer, and what the tool gave back.

    id         the model's name for the call
    name       of the tool
    arguments  as the model gave them; {} where they were no JSON object, the raw answer has them then
    result     what was given back, in words; None before the tool ran, and for a tool that was not run
    error      why the tool failed, or why it was not run
    """

    name: str
    id: str = ""
    arguments: dict[str, Any] = {}
    result: str | None = None
    error: str | None = None


SCHEMA_VERSION: Final = "1.1.0"
READ_VERSIONS: Final = ("1.0.0", SCHEMA_VERSION)
MARKER: Final = "episode.json"
STEPS: Final = "steps.jsonl"
# fields of a step that are written only where they are set: a step without them reads as one of 1.0.0
SPARSE: Final = ("marks", "further_actions", "refused", "calls", "usage", "cost", "raw", "tree")


class EpisodeError(ValueError):
    """A folder that is not a complete, valid episode."""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One answer of the agent and what became of it. A limit on steps counts answers, not actions, as OSWorld does.

    screenshot   file name of the frame before the action
    action       None when the answer was no valid action; `parse_error` then says why
    further_actions  the actions of the same answer after `action`, in their order: all were done before the next frame
    time         Unix seconds when the answer came; None where time has no meaning (made or converted episodes)
    metrics      numbers about this step, e.g. {"correct": 1.0, "in_box": 1.0}
    token_ids    the sampled tokens, and their log probabilities, when the agent gives them
    expected     what the environment's expert would have done in this state, where it has one
    marks        numbered boxes (normalised) that a prompt with marks draws on the frame; the file of the frame has none
    refused      why the desktop refused an action, after its number from 1; it and those after it were not done
    calls        the calls of tools that the answer holds, with their results, where the agent's interface has calls
    usage, cost  tokens of the answer as its server counts them, and what it cost in USD
    raw          the answer as its server gave it, as JSON
    tree         file name of the accessibility tree before the action (eval.accessibility.tree), as JSON
    """

    index: int
    screenshot: str
    action: Action | None = None
    response: str | None = None
    thought: str | None = None
    parse_error: str | None = None
    reward: float = 0.0
    done: bool = False
    time: float | None = None
    metrics: dict[str, float] = {}
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    expected: Expected | None = None
    marks: dict[int, Box] = {}
    further_actions: tuple[Action, ...] = ()
    refused: str | None = None
    calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage | None = None
    cost: float | None = None
    raw: dict[str, Any] | None = None
    tree: str | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions of the answer, in their order."""
        return () if self.action is None else (self.action, *self.further_actions)

    def to_json(self) -> dict[str, Any]:
        out = {name: getattr(self, name) for name in self.__struct_fields__}
        out["action"] = None if self.action is None else self.action.to_json()
        if self.expected is not None:
            out["expected"] = {"action": self.expected.action.to_json(), "box": self.expected.box}
        out["further_actions"] = [action.to_json() for action in self.further_actions]
        out["calls"], out["usage"] = msgspec.to_builtins((self.calls, self.usage))
        for name in SPARSE:
            if out[name] in (None, (), [], {}):
                del out[name]
        return {k: v for k, v in out.items() if v is not None or k in ("action", "response", "thought", "parse_error")}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Step:
        """Raises EpisodeError."""
        if not isinstance(data, dict):
            raise EpisodeError(f"step: an object, not {data!r:.80}")
        try:
            action, expected = data.get("action"), data.get("expected")
            further = data.get("further_actions", [])
            step = msgspec.convert(
                {**data, "action": None, "expected": None, "further_actions": []}, cls, str_keys=True
            )
            for name, value in (("action", action), ("expected", expected)):
                if not isinstance(value, dict | None):
                    raise EpisodeError(f"{name} must be an object or null, not {value!r}")
            if not isinstance(further, list) or not all(isinstance(item, dict) for item in further):
                raise EpisodeError(f"further_actions must be a list of objects, not {further!r}")
            if further and action is None:
                raise EpisodeError("further_actions without an action")
            return msgspec.structs.replace(
                step,
                action=None if action is None else Action.from_json(action),
                further_actions=tuple(map(Action.from_json, further)),
                expected=None if expected is None else _expected(expected),
            )
        except (msgspec.ValidationError, ActionError, TypeError, UnicodeEncodeError) as error:
            raise EpisodeError(f"step: {error}") from None


def _expected(data: dict[str, Any]) -> Expected:
    if not isinstance(action := data.get("action"), dict):
        raise EpisodeError(f"expected.action must be an object, not {action!r}")
    return Expected(Action.from_json(action), msgspec.convert(data.get("box"), Box | None))


class Episode(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One try at a task. `success` and `score` are None where nothing judged it, and where it is not `scored`:
    `infra`, the infrastructure failed; `not run`, the task cannot run on that machine.

    started      ISO 8601 in UTC, or None; duration_ms likewise
    steps        the steps themselves in memory; their number in episode.json
    """

    episode_id: str
    task_id: str
    instruction: str
    screen: tuple[int, int]
    goal: str = ""
    seed: int = 0
    success: bool | None = None
    score: float | None = None
    outcome: Literal["scored", "infra", "not run"] = "scored"
    error: str | None = None
    steps: tuple[Step, ...] = ()
    agent: str = ""
    environment: str = ""
    source: str = "synthetic"
    started: str | None = None
    duration_ms: int | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    schema_version: str = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """episode.json: everything but the steps, of which it has the number."""
        out = {name: getattr(self, name) for name in self.__struct_fields__}
        return {"schema_version": out.pop("schema_version"), **out, "steps": len(self.steps)}

    def frame(self, index: int) -> str:
        """The file name of the frame before action `index`; `len(steps)` names the final one."""
        return frame_name(index)


def frame_name(index: int) -> str:
    return f"{index:03d}.png"


def tree_name(index: int) -> str:
    return f"{index:03d}.tree.json"


def episode_tree(folder: Path, step: Step) -> Tree | None:
    """The accessibility tree before a step of the episode in `folder`; None where it has none. Raises EpisodeError."""
    if step.tree is None:
        return None
    try:
        return Tree.from_json(msgspec.json.decode((folder / step.tree).read_bytes()))
    except (OSError, msgspec.DecodeError) as error:
        raise EpisodeError(f"{folder / step.tree}: {error}") from None


class EpisodeWriter:
    """Writes one episode folder while the episode runs. It first removes what an earlier try left there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)

    def frame(self, index: int, image: Image.Image | bytes | Path) -> str:
        """Saves a frame (PNG bytes and files are copied as they are); gives its file name."""
        target = self.folder / frame_name(index)
        if isinstance(image, bytes):
            target.write_bytes(image)
        elif isinstance(image, Path):
            shutil.copyfile(image, target)
        else:
            image.save(target, format="PNG")
        return target.name

    def tree(self, index: int, tree: Tree) -> str:
        """Saves the accessibility tree of frame `index`; gives its file name."""
        target = self.folder / tree_name(index)
        target.write_bytes(msgspec.json.encode(tree))
        return target.name

    def close(self, episode: Episode) -> None:
        """Writes the steps, then the marker. Raises EpisodeError when a step's frame or tree was never saved."""
        for step in episode.steps:
            if step.tree is not None and not (self.folder / step.tree).is_file():
                raise EpisodeError(f"{self.folder.name}: step {step.index} has no tree {step.tree}")
            if not (self.folder / step.screenshot).is_file():
                raise EpisodeError(f"{self.folder.name}: step {step.index} has no frame {step.screenshot}")
        lines = "".join(json.dumps(step.to_json()) + "\n" for step in episode.steps)
        (self.folder / STEPS).write_text(lines, encoding="utf-8")
        temporary = self.folder / f".{MARKER}"
        temporary.write_text(json.dumps(episode.to_json(), indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.folder / MARKER)


def write_episode(folder: Path, episode: Episode, frames: Sequence[Image.Image | bytes | Path]) -> None:
    """A whole episode at once: a frame per step, and a final one where there is one. Trees are not kept."""
    if len(frames) not in (len(episode.steps), len(episode.steps) + 1):
        raise EpisodeError(f"{episode.episode_id}: {len(frames)} frames for {len(episode.steps)} steps")
    writer = EpisodeWriter(folder)
    for index, image in enumerate(frames):
        writer.frame(index, image)
    steps = tuple(msgspec.structs.replace(step, tree=None) for step in episode.steps)
    writer.close(msgspec.structs.replace(episode, steps=steps))


def is_complete(folder: Path) -> bool:
    """Whether the folder holds a whole episode."""
    return (folder / MARKER).is_file()


def read_episode(folder: Path) -> Episode:
    """The episode of a folder; its frames stay files. Raises EpisodeError."""
    try:
        data = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        lines = (folder / STEPS).read_text(encoding="utf-8").split("\n")
        steps = tuple(Step.from_json(json.loads(line)) for line in lines if line)
    except FileNotFoundError as error:
        raise EpisodeError(f"{folder}: no {Path(str(error.filename)).name}") from None
    except (ValueError, RecursionError) as error:  # of JSON, also numbers of too many digits, and lists too deep
        raise EpisodeError(f"{folder}: {error}") from None
    if not isinstance(data, dict) or data.get("schema_version") not in READ_VERSIONS:
        raise EpisodeError(f"{folder}: not an episode of schema {' or '.join(READ_VERSIONS)}")
    if data.pop("steps", None) != len(steps) or any(step.index != i for i, step in enumerate(steps)):
        raise EpisodeError(f"{folder}: {STEPS} does not have the steps that {MARKER} counts")
    try:
        return msgspec.structs.replace(msgspec.convert(data, Episode), steps=steps)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise EpisodeError(f"{folder}: {error}") from None


def iter_episodes(root: Path) -> Iterator[tuple[Path, Episode]]:
    """(folder, episode) of every complete episode directly in `root`, sorted by folder name."""
    for folder in sorted(root.iterdir()):
        if is_complete(folder):
            yield folder, read_episode(folder)
