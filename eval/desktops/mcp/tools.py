"""What the MCP face and the client of MCP share: revisions, the tools that are actions, and the action that a call of
one asks for.

Points are pixels of the picture that the last result showed, which is how assistants point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from eval.actions import Action
from eval.actions.action import WAIT_S
from eval.actions.geometry import Cells
from eval.config import ConfigError
from eval.desktop import Interface
from eval.desktops.tools import TOOLS

REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")  # those with a handshake
Schema = dict[str, Any]
Arguments = Mapping[str, Any]
PIXEL: Final = {"type": "integer", "minimum": 0}
TEXT: Final = {"type": "string"}
SAID: Final = {**TEXT, "description": "what to tell about it"}
KEYS: Final = {"type": "array", "items": TEXT, "minItems": 1, "description": "names of keys, pressed together"}
POINT: Final = {
    "x": {**PIXEL, "description": "pixels from the left edge of the picture"},
    "y": {**PIXEL, "description": "pixels from its upper edge"},
}
END: Final = {
    "x2": {**PIXEL, "description": "where it ends, from the left edge"},
    "y2": {**PIXEL, "description": "where it ends, from the upper edge"},
}
CLICKS: Final = {"left": "click", "right": "right_click", "middle": "middle_click"}


def _same(kind: str) -> Callable[[Arguments], Schema]:
    """The arguments are the fields of the action."""
    return lambda given: {"type": kind, **given}


def _click(given: Arguments) -> Schema:
    button = given.get("button", "left")
    rest = {name: value for name, value in given.items() if name != "button"}
    return {"type": CLICKS.get(button, f"{button}_click") if isinstance(button, str) else button, **rest}


def _key(given: Arguments) -> Schema:
    keys = given.get("keys")
    return {"type": "hotkey" if isinstance(keys, list) and len(keys) > 1 else "key", **given}


def _wait(given: Arguments) -> Schema:
    return {"type": "wait", **{("duration" if name == "seconds" else name): value for name, value in given.items()}}


@dataclass(frozen=True)
class ComputerTool:
    """A tool that is an action. told: it neither moves the mouse nor presses a key."""

    name: str
    description: str
    action: Callable[[Arguments], Schema]
    arguments: Mapping[str, Schema] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    told: bool = False

    def listed(self) -> Schema:
        """As tools/list gives it."""
        return described(self.name, self.description, self.arguments, self.optional)


def described(name: str, description: str, arguments: Mapping[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """A tool as tools/list gives it."""
    schema: Schema = {"type": "object", "properties": dict(arguments), "additionalProperties": False}
    if required := [each for each in arguments if each not in optional]:
        schema["required"] = required
    return {"name": name, "description": description, "inputSchema": schema}


ACTIONS: Final[dict[str, ComputerTool]] = {
    tool.name: tool
    for tool in (
        ComputerTool("screenshot", "Show the screen.", _same("screenshot"), told=True),
        ComputerTool(
            "click",
            "Click at a point of the picture, in pixels from its upper left corner.",
            _click,
            {
                **POINT,
                "button": {"enum": list(CLICKS), "description": "of the mouse; default left"},
                "modifiers": {**KEYS, "description": "keys that are held down, such as ctrl"},
            },
            ("button", "modifiers"),
        ),
        ComputerTool("double_click", "Double-click at a point of the picture.", _same("double_click"), POINT),
        ComputerTool("drag", "Drag with the left button from x, y to x2, y2.", _same("drag"), {**POINT, **END}),
        ComputerTool(
            "type", "Type a text into what has the focus.", _same("type"), {"text": {**TEXT, "description": "the text"}}
        ),
        ComputerTool("key", 'Press a key, or several at once: ["ctrl", "s"].', _key, {"keys": KEYS}),
        ComputerTool(
            "scroll",
            "Scroll at a point, by clicks of the wheel.",
            _same("scroll"),
            {
                **POINT,
                "direction": {"enum": ["up", "down", "left", "right"], "description": "in which direction"},
                "amount": {"type": "number", "exclusiveMinimum": 0, "description": "clicks of the wheel"},
            },
            ("x", "y", "amount"),
        ),
        ComputerTool(
            "wait",
            "Wait some seconds, and show the screen.",
            _wait,
            {"seconds": {"type": "number", "minimum": 0, "description": "how long"}},
            told=True,
        ),
        ComputerTool("done", "Say that it is done; it is judged.", _same("done"), {"text": SAID}, ("text",), True),
        ComputerTool("fail", "Say that the task cannot be done.", _same("fail"), {"text": SAID}, ("text",), True),
    )
}


def call_of(action: Action, frame: Cells) -> tuple[str, Schema]:
    """The call of a tool that asks for an action, with its points in cells of the frame. Raises ConfigError where no
    tool does."""
    given = action.to_json()
    kind = str(given.pop("type"))
    for x, y in (("x", "y"), ("x2", "y2")):
        if x in given and y in given:
            given[x], given[y] = frame.from_norm(given[x], given[y])
    if kind in (buttons := {clicked: button for button, clicked in CLICKS.items()}):
        return "click", given if kind == "click" else {**given, "button": buttons[kind]}
    if kind == "wait":
        return "wait", {"seconds": given.get("duration", WAIT_S)}
    name = "key" if kind == "hotkey" else kind
    if name not in ACTIONS:
        raise ConfigError(f"no tool does the action {kind}")
    return name, given


def listed(interface: Interface, *, tasks: bool) -> list[Schema]:
    """The tools of a server. tasks: clients may choose a task."""
    which: dict[str, Schema] = (
        {"task": {**TEXT, "description": "its id"}, "seed": {**PIXEL, "description": "of its start state"}}
        if tasks
        else {}
    )
    about = "Begin a task: the named one, or the next." if tasks else "Begin with a new desktop."
    start = described("start", f"{about} What went on before is left.", which, tuple(which))
    actions = [tool.listed() for tool in ACTIONS.values() if interface != "tools" or tool.told]
    calls = [] if interface == "gui" else list(TOOLS.values())
    schemas = [{"name": tool.name, "description": tool.description, "inputSchema": tool.schema()} for tool in calls]
    return [start, *actions, *schemas]


def release() -> str:
    """The version of Slipway that speaks."""
    try:
        return version("slipway-cua")
    except PackageNotFoundError:
        return "0"
