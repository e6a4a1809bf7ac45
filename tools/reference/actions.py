"""Makes docs/reference/actions.md with the dialects themselves. `make golden` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.action import FIELDS
from eval.actions.dialects.base import Dialect
from eval.actions.dialects.dsl import Dsl
from eval.actions.dialects.pyautogui import PyAutoGui

INTRO: Final = """\
# Actions

Written by `make golden` from the dialects themselves; do not edit. A test parses every example on this page.

An agent answers each observation with exactly one action. A **dialect** is one way to write an action as text. The
same dialect writes the targets of training and reads the answers of an evaluation. An answer that is not exactly one
action is a parse failure: it counts against the agent, and is never repaired or guessed.

Coordinates are fractions of the screen: `x=0.25` is a quarter of the width from the left edge, `y=0.5` is half of the
height from the top edge. Durations are seconds. `amount` counts clicks of the wheel; `distance` is how far to scroll
instead, in heights of the screen (widths for left and right). Names of keys are lower case. A click, a scroll or a drag
without `x` and `y` happens or starts where the pointer is.
"""
TYPES: Final = """\
## The types of actions

`point` stands for `x` and `y` together, or for `element`, the number of a mark. Each field is explained under
[`Action`](extending.md#action).

| type | must have | may have |
|---|---|---|"""
POINT: Final[dict[str, Any]] = {"x": 0.25, "y": 0.5}
KIND: Final = ActionType

# One example of each type of action. `examples` formats each in every dialect.
ACTIONS: Final = (
    Action(KIND.CLICK, **POINT),
    Action(KIND.CLICK, **POINT, modifiers=("ctrl",)),
    Action(KIND.CLICK),
    Action(KIND.CLICK, **POINT, button="back"),
    Action(KIND.CLICK, element=7),
    Action(KIND.DOUBLE_CLICK, **POINT),
    Action(KIND.DOUBLE_CLICK, **POINT, button="right"),
    Action(KIND.DOUBLE_CLICK, element=7),
    Action(KIND.RIGHT_CLICK, **POINT),
    Action(KIND.RIGHT_CLICK, element=7),
    Action(KIND.MIDDLE_CLICK, **POINT),
    Action(KIND.TRIPLE_CLICK, **POINT),
    Action(KIND.DRAG, **POINT, x2=0.75, y2=0.5),
    Action(KIND.DRAG, **POINT, x2=0.75, y2=0.5, button="right", duration=0.5),
    Action(KIND.DRAG, **POINT, path=((0.5, 0.75),), x2=0.75, y2=0.5),
    Action(KIND.DRAG, x2=0.75, y2=0.5),
    Action(KIND.SCROLL, direction="down"),
    Action(KIND.SCROLL, direction="down", amount=3),
    Action(KIND.SCROLL, **POINT, direction="right", amount=2),
    Action(KIND.SCROLL, **POINT, direction="down", distance=0.5),
    Action(KIND.SCROLL, element=7, direction="down", amount=3),
    Action(KIND.HOVER, **POINT),
    Action(KIND.TYPE, text='He said "no".\n'),
    Action(KIND.TYPE, element=7, text="alice"),
    Action(KIND.KEY, keys=("enter",)),
    Action(KIND.HOTKEY, keys=("ctrl", "c")),
    Action(KIND.KEY, keys=("space",), duration=1.5),
    Action(KIND.CLICK_AND_TYPE, **POINT, text="alice"),
    Action(KIND.WAIT),
    Action(KIND.WAIT, duration=2.0),
    Action(KIND.SCREENSHOT),
    Action(KIND.GOTO, url="https://example.com"),
    Action(KIND.BACK),
    Action(KIND.FORWARD),
    Action(KIND.REFRESH),
    Action(KIND.OPEN_APP, app_name="Notes"),
    Action(KIND.CLOSE_APP, app_name="Notes"),
    Action(KIND.SELECT_MONITOR, monitor_id=1),
    Action(KIND.WINDOW_FOCUS, window_title="Notes"),
    Action(KIND.WINDOW_RESIZE, width=0.5, height=0.5),
    Action(KIND.WINDOW_MOVE, **POINT),
    Action(KIND.MOUSE_DOWN, **POINT, button="left"),
    Action(KIND.MOUSE_UP),
    Action(KIND.KEY_DOWN, keys=("shift",)),
    Action(KIND.KEY_UP, keys=("shift",)),
    Action(KIND.ZOOM, **POINT, x2=0.75, y2=0.75),
    Action(KIND.CURSOR_POSITION),
    Action(KIND.CALL_USER),
    Action(KIND.DONE),
    Action(KIND.DONE, text="42"),
    Action(KIND.FAIL),
)


@dataclass(frozen=True)
class Grammar:
    """How the page shows a dialect.

    about     how to choose it in a configuration, and rules that no example shows
    accepted  further texts that it reads
    refused   whole answers that are parse failures; the page shows the parser's reason
    """

    dialect: Dialect
    about: str
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


GRAMMARS: Final = {
    "dsl": Grammar(
        Dsl(4),
        """\
`prompt: {dialect: dsl}`, the default. One action on the last line, after `Action:`. Lines before it must begin with
`Thought:`. `decimals` of the prompt says how many decimals a coordinate has when it is written; any number of them is
read. Arguments have names, and any order is read. Texts stand between double quotes; the escapes are `\\"`, `\\\\`,
`\\n`, `\\r` and `\\t`. Numbers have no exponent, and a digit stands before the point.""",
        (
            "Action: CLICK(y=0.5, x=0.25)",
            "Thought: The button is on the left.\nIt is blue.\nAction: CLICK(x=0.25, y=0.5)",
        ),
        (
            "CLICK(x=0.25, y=0.5)",
            "Sure!\nAction: CLICK(x=0.25, y=0.5)",
            "Action: CLICK(x=0.25, y=0.5)\nDone.",
            "Action: CLICK(x=0.25, y=0.5) CLICK(x=0.5, y=0.5)",
            "Action: CLICK(x=0.25, y=0.5)\nAction: DONE()",
            "Action: click(x=0.25, y=0.5)",
            "Action: CLICK(0.25, 0.5)",
            "Action: CLICK(x=25, y=50)",
            "Action: CLICK(x=0.25)",
            "Action: CLICK(x=0.25, y=.5)",
            "Action: CLICK([7])",
            'Action: TYPE("alice")',
            "Action: TYPE(text='alice')",
            'Action: KEY(keys=["enter"])',
            'Action: HOTKEY(keys=["enter"])',
            'Action: SCROLL(direction="down", amount=0)',
        ),
    ),
    "dsl with marks": Grammar(
        Dsl(4, marks=True),
        """\
`prompt: {dialect: dsl, marks: true}`, Set-of-Marks. The screenshot shows numbered boxes, and an action names the number
of a box in the place of a point: `[7]`. The text of `TYPE` and `CLICK_AND_TYPE` has no name here. Everything else is
as in `dsl`.""",
        ('Action: TYPE([7], text="alice")', 'Action: TYPE("alice")'),
        (
            "Action: CLICK(x=0.25, y=0.5)",
            "Action: CLICK(7)",
            "Action: CLICK([1.5])",
            "Action: CLICK([7], [8])",
            'Action: TYPE("alice", [7])',
        ),
    ),
    "pyautogui": Grammar(
        PyAutoGui(4),
        """\
`prompt: {dialect: pyautogui}`, the form of AgentNet and OpenCUA. The answer has headings: `## Observation:`,
`## Thought:` and `## Action:`, each of which may be missing, and last `## Code:`. The code may stand in a fence of
three backticks. The code is read by Python's grammar and never run: it may hold only the calls that this page shows,
with plain values as arguments. `moveTo` and then `dragTo` is one drag; `moveTo` and then `scroll` is one scroll at
that point.""",
        (
            "## Code:\npyautogui.click(0.25, 0.5)",
            "## Code:\npyautogui.click(x=0.25, y=0.5, clicks=2)",
            "## Code:\npyautogui.click(x=0.25, y=0.5, button='right')",
            "## Code:\npyautogui.doubleClick(x=0.25, y=0.5)",
            "## Code:\npyautogui.typewrite('alice')",
            "## Code:\npyautogui.press(['enter'])",
            "## Code:\npyautogui.hotkey(keys=['ctrl', 'c'])",
            "## Code:\ncomputer.wait(duration=2)",
            "## Code:\npyperclip.copy('alice')\npyautogui.hotkey('ctrl', 'v')",
            "## Code:\npyautogui.scroll(5)",
            "## Code:\n```python\nimport pyautogui\npyautogui.press('enter')\n```",
            "## Thought:\nAll is done.\n\n## Action:\nEnd the task.\n\n## Code:\ncomputer.terminate(status='success')",
            "## Code:\nWAIT",
            "## Code:\nDONE",
            "## Code:\nFAIL",
        ),
        (
            "pyautogui.click(x=0.25, y=0.5)",
            "Sure!\n## Code:\npyautogui.click(x=0.25, y=0.5)",
            "## Code:\npyautogui.click(x=0.25, y=0.5)\n\n## Thought:\nNow I wait.",
            "## Code:\npyautogui.click(x=0.25, y=0.5)\npyautogui.write('alice')",
            "## Code:\npyautogui.press('tab', presses=2)",
            "## Code:\npyautogui.click(x=640, y=360)",
            "## Code:\npyautogui.click()",
            "## Code:\npyautogui.click(x=1/4, y=0.5)",
            "## Code:\nx = 0.25\npyautogui.click(x, 0.5)",
            "## Code:\npyautogui.move(0.1, 0.1)",
            "## Code:\nimport os",
            "## Code:\npyautogui.dragTo(x=0.5, y=0.5)",
            "## Code:\ncomputer.terminate()",
        ),
    ),
}


def page() -> str:
    """The text of docs/reference/actions.md. Raises ParseError for an example that its dialect cannot read back."""
    lines = [INTRO, *_contents(), TYPES]
    for kind, (must, may) in FIELDS.items():
        lines.append(f"| `{kind}` | {_fields(must)} | {_fields(may)} |")
    for name, grammar in GRAMMARS.items():
        lines += ["", f"## {name}", "", grammar.about, "", *_written(grammar.dialect), "", *_read(grammar)]
    return "\n".join(lines).rstrip("\n") + "\n"


def examples(grammar: Grammar) -> Iterator[tuple[str, Action]]:
    """(answer, its action) of every example that the dialect writes or reads."""
    for action in ACTIONS:
        try:
            yield grammar.dialect.format_response(action), action
        except Unrepresentable:
            continue
    for answer in grammar.accepted:
        yield answer, grammar.dialect.parse_response(answer).action


def reason(dialect: Dialect, answer: str) -> str:
    """The parser's reason to refuse an answer. Raises ValueError for an answer that it accepts."""
    try:
        action = dialect.parse_response(answer).action
    except ParseError as error:
        return str(error)
    raise ValueError(f"{answer!r} is read as {action}")


def _contents() -> Iterator[str]:
    for name in GRAMMARS:
        yield f"- [{name}](#{name.replace(' ', '-')})"
    yield ""


def _fields(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "nothing"


def _written(dialect: Dialect) -> Iterator[str]:
    """One row per type of action: how the dialect writes it, or why it cannot."""
    yield "| action | as text |\n|---|---|"
    for action in ACTIONS:
        try:
            text = dialect.format(action)
        except Unrepresentable as error:
            if action.element is None:
                yield f"| {_fields_of(action)} | cannot be written: {_cell(str(error))} |"
            continue
        if dialect.parse(text) != action:
            raise ParseError(f"{text!r} is read as {dialect.parse(text)}, not as {action}")
        yield f"| {_fields_of(action)} | {_code(text)} |"


def _fields_of(action: Action) -> str:
    fields = {name: value for name, value in action.to_json().items() if name != "type"}
    return f"`{action.type}`" + (f" {', '.join(fields)}" if fields else "")


def _read(grammar: Grammar) -> Iterator[str]:
    yield "Whole answers that are read:\n\n| answer | action |\n|---|---|"
    first = next(examples(grammar))[0]
    for answer in (first, *grammar.accepted):
        action = grammar.dialect.parse_response(answer).action
        yield f"| {_code(answer)} | {_code(repr(action).removeprefix('Action'))} |"
    yield "\nAnswers that are refused:\n\n| answer | why |\n|---|---|"
    for answer in grammar.refused:
        yield f"| {_code(answer)} | {_cell(reason(grammar.dialect, answer))} |"


def _code(text: str) -> str:
    """Code in a cell of a table; each line of the text is a line of the cell."""
    return "<br>".join(
        f"`` {line} ``" if "`" in line else f"`{line}`" for line in text.replace("|", "\\|").split("\n") if line
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
