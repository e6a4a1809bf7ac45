"""Makes docs/reference/actions.md with the dialects themselves. `make golden` writes it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.action import FIELDS
from eval.actions.dialects.base import Dialect
from eval.actions.dialects.dsl import Dsl
from eval.actions.dialects.pyautogui import PyAutoGui
from eval.actions.dialects.registry import make_dialect
from eval.actions.geometry import Cells

INTRO: Final = """\
# Actions

Written by `make golden` from the dialects themselves; do not edit. A test parses every example on this page.

An agent answers each observation with one action. A **dialect** is one way to write actions as text. The same dialect
writes the targets of training and reads the answers of an evaluation. An answer that is not exactly one action is a
parse failure: it counts against the agent, and is never repaired or guessed. The answers of published agents may hold
several actions (`parse_turn` of [`Dialect`](extending.md#dialect) reads all of them); an evaluation takes one so far.

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
TABLE: Final = """\
## What each dialect can say

`yes`: the dialect writes the action and reads the same one back. Two things are lost wherever they are written: a point
is rounded to the dialect's cells or decimals, and of the names of a key one is kept (`Return`, `ENTER` and `enter` are
`enter`). Nothing else is lost in silence: an empty cell is an action that the dialect refuses to write."""
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
    repaired  answers that a strict reader refuses and a lenient one repairs; the page shows what it says
    published a form of others: its table leaves out what it cannot say, which the table of all dialects shows
    """

    dialect: Dialect
    about: str
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    published: bool = False


GRAMMARS: dict[str, Grammar] = {
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


SCREEN: Final = Cells(1280, 800)  # of the examples in pixels


def _published(name: str, about: str, frame: Cells | None, **answers: tuple[str, ...]) -> Grammar:
    dialect = make_dialect(name, 4, False)
    dialect = dialect if frame is None else dialect.in_frame(frame)
    about = textwrap.fill(about.replace("\n", " "), 120, break_long_words=False, break_on_hyphens=False)
    return Grammar(dialect, about, answers["accepted"], answers["refused"], answers.get("repaired", ()), published=True)


def _blocks(*blocks: str) -> str:
    return f"[{', '.join(blocks)}]"


def _use(name: str, given: str, toolset: bool = False) -> str:
    family = ', "toolset_name": "computer"' if toolset else ""
    return f'{{"type": "tool_use", "id": "toolu_1"{family}, "name": "{name}", "input": {given}}}'


def _tool_call(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "computer_use", "arguments": {arguments}}}\n</tool_call>'


PIXELS: Final = (
    "The examples are in pixels of a screenshot of 1280 by 800 (`agent.frame: absolute`); without `agent.frame` the "
    "numbers are fractions\nof the screen, which no published model writes."
)
ANTHROPIC: Final = (
    "`prompt: {{dialect: anthropic-{version}}}`, Anthropic's computer tool `{tool}`: JSON, the `content` of an "
    "assistant's message or the\nwhole message. {special} Keys are xdotool's. A message without a call is `done`, its "
    "text the answer; `[INFEASIBLE]` at its beginning is\n`fail`. A refusal and an answer that was cut off are parse "
    "failures that say so. " + PIXELS
)


def _anthropic(version: str, special: str, **answers: tuple[str, ...]) -> Grammar:
    tool = "computer_toolset_20260801" if version == "20260801" else f"computer_{version}"
    about = ANTHROPIC.format(version=version, tool=tool, special=special)
    return _published(f"anthropic-{version}", about, SCREEN, **answers)


def _anthropic_answers(*accepted: str, repaired: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    return {
        "accepted": (
            '[{"type": "text", "text": "The total is 42."}]',
            '{"stop_reason": "end_turn", "content": [{"type": "text", "text": "[INFEASIBLE] No such menu."}]}',
            *accepted,
        ),
        "refused": (
            "click",
            '{"stop_reason": "refusal", "content": []}',
            '{"stop_reason": "max_tokens", "content": []}',
            _blocks(_use("bash", '{"command": "ls"}')),
            _blocks('{"type": "image"}'),
        ),
        "repaired": repaired,
    }


def _openai_call(actions: str) -> str:
    return f'[{{"type": "computer_call", "call_id": "call_1", {actions}}}]'


OPENAI: Final = {
    "accepted": (
        '[{"type": "message", "content": [{"type": "output_text", "text": "42"}]}]',
        '{"status": "completed", "output": []}',
    ),
    "refused": (
        "click",
        '[{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]',
        '{"status": "incomplete", "output": []}',
        '[{"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": "{}"}]',
        _openai_call('"action": {"type": "click", "x": 1, "y": 1, "button": "left"}, "actions": []'),
    ),
}
QWEN_REFUSED: Final = (
    "click",
    '<tool_call>\n{"name": "bash", "arguments": {}}\n</tool_call>',
    _tool_call('{"action": "left_click", "coordinate": [250]}'),
    _tool_call('{"action": "left_click", "coordinate": [5000, 0]}'),
    _tool_call('{"action": "terminate", "status": "done"}'),
)
QWEN_REPAIRED: Final = (
    '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [250, 500]}}',
    _tool_call('{"action": "left_click", "coordinate": "[250, 500]"}'),
    _tool_call('{"action": "key", "keys": "ctrl+c"}'),
)
UI_TARS_REFUSED: Final = (
    "click",
    "Action: click(point='<point>200</point>')",
    "Action: click(point='<point>20000 1</point>')",
    "Action: click(200, 300)",
    "Action: __import__('os')",
    "Action: scroll(direction='sideways')",
)
UI_TARS_REPAIRED: Final = (
    "I click. Action: click(point='<point>200 300</point>')",
    "Thought: I click.\nAction: click(point='<point>200 300</point>', element='button')",
)
GRAMMARS |= {
    "computer_13": _published(
        "computer_13",
        "`prompt: {dialect: computer_13}`, OSWorld's action space: a JSON object in a fence of three backticks, or one "
        "of the words WAIT,\nDONE and FAIL. A scroll at a point and a drag from a point are two objects, `MOVE_TO` "
        "first. " + PIXELS,
        SCREEN,
        accepted=(
            '```json\n{"action_type": "CLICK", "parameters": {"x": 320, "y": 400}}\n```',
            '{"action_type": "PRESS", "key": "enter"}',
            "```\nDONE\n```",
        ),
        refused=(
            '```json\n{"action_type": "CLICK", "x": 320}\n```',
            '```json\n{"action_type": "CLICK", "x": 1280, "y": 800}\n```',
            '```json\n{"action_type": "JUMP"}\n```',
            '```json\n{"action_type": "CLICK", "x": 320, "y": 400}',
            '```json\n{"action_type": "PRESS", "key": "any"}\n```',
        ),
        repaired=(
            '```json\n{"action_type": "CLICK", "x": 1280, "y": 800}\n```',
            '```json\n{"action_type": "CLICK", "x": "320", "y": "400"}\n```\nDone.',
            '```json\n[{"action_type": "click", "x": 320, "y": 400}]\n```',
        ),
    ),
    "anthropic-20241022": _anthropic(
        "20241022",
        "Clicks happen where the pointer is: a click at a point is two calls, `mouse_move` first.",
        **_anthropic_answers(
            _blocks(_use("computer", '{"action": "left_click"}')),
            repaired=(_blocks(_use("computer", '{"action": "left_click", "coordinate": [320, 400]}')),),
        ),
    ),
    "anthropic-20250124": _anthropic(
        "20250124",
        "`key` names keys held during a click; `text` is read, too.",
        **_anthropic_answers(
            _blocks(_use("computer", '{"action": "left_click", "coordinate": [320, 400], "text": "shift"}')),
            repaired=(
                _blocks(_use("left_click", '{"coordinate": "[320, 400]"}')),
                _blocks(_use("computer", '{"action": "key", "text": "Down Down"}')),
            ),
        ),
    ),
    "anthropic-20251124": _anthropic(
        "20251124",
        "`text` names keys held during a click, a scroll or a drag.",
        **_anthropic_answers(_blocks(_use("computer", '{"action": "key", "text": "ctrl+shift+Escape"}'))),
    ),
    "anthropic-20260801": _anthropic(
        "20260801",
        "Each action is a tool of the toolset. `repeat` of `key` is read as so many actions.",
        **_anthropic_answers(
            _blocks(_use("key", '{"text": "Tab", "repeat": 1}', toolset=True)),
            repaired=(_blocks(_use("left_click", '{"coordinate": [320, 400]}')),),
        ),
    ),
    "openai-preview": _published(
        "openai-preview",
        "`prompt: {dialect: openai-preview}`, OpenAI's `computer_use_preview`: JSON, the `output` of a response or the "
        "whole response, with\none `action` in a `computer_call`. Everything else is as in `openai`. " + PIXELS,
        SCREEN,
        accepted=(*OPENAI["accepted"], _openai_call('"action": {"type": "keypress", "keys": ["CTRL", "c"]}')),
        refused=OPENAI["refused"],
        repaired=(_openai_call('"actions": [{"type": "wait"}]'),),
    ),
    "openai": _published(
        "openai",
        "`prompt: {dialect: openai}`, OpenAI's general tool `computer`: a batch of `actions` in a `computer_call`. "
        "`keys` are held during the\naction. A scroll says pixels (`distance`), and its clicks of the wheel are not "
        "known. A response without a call is `done`, its text\nthe answer; `[INFEASIBLE]` at its beginning is `fail`. "
        "Safety checks are left to the agent. " + PIXELS,
        SCREEN,
        accepted=(*OPENAI["accepted"], _openai_call('"actions": [{"type": "keypress", "keys": ["CTRL", "c"]}]')),
        refused=OPENAI["refused"],
        repaired=(_openai_call('"action": {"type": "wait"}'),),
    ),
    "ui-tars": _published(
        "ui-tars",
        "`prompt: {dialect: ui-tars}`, UI-TARS (1): `Thought:` and `Action:`, points as cells of a grid of 1000 by "
        "1000. It "
        "reads both\nspellings of points, and boxes, which stand for their centre. A blank line stands between two "
        "actions. A text is typed with the line\nbreak at its end, which submits it.",
        None,
        accepted=(
            "Action: click(start_box='(250,500)')",
            "Action: click(start_box='[240, 490, 260, 510]')",
            "Thought: I am done.\nAction: finished(content='42')",
        ),
        refused=UI_TARS_REFUSED,
        repaired=UI_TARS_REPAIRED,
    ),
    "ui-tars-1.5": _published(
        "ui-tars-1.5",
        "`prompt: {dialect: ui-tars-1.5}`, UI-TARS-1.5: as `ui-tars`, with points as pixels of the resized image "
        "(`agent.frame: smart-resized`;\nhere 1932 by 1092, of a screen of 1920 by 1080).",
        Cells(1932, 1092),
        accepted=(
            "Action: click(start_box='<|box_start|>(250,500)<|box_end|>')",
            "Thought: I save it.\nAction: hotkey(key='ctrl s')",
        ),
        refused=UI_TARS_REFUSED,
        repaired=UI_TARS_REPAIRED,
    ),
    "qwen2.5-vl": _published(
        "qwen2.5-vl",
        "`prompt: {dialect: qwen2.5-vl}`, Qwen2.5-VL's call of the tool `computer_use`, with the thought before it. "
        "Points are pixels of the\nresized image (`agent.frame: smart-resized`; here 1932 by 1092, of a screen of 1920 "
        "by 1080). `pixels` of a scroll are read as clicks of the wheel, as the published executors do. A drag from a "
        "point is two calls, `mouse_move` first.",
        Cells(1932, 1092),
        accepted=(
            "I wait.\n" + _tool_call('{"action": "wait", "time": 2}'),
            _tool_call('{"action": "terminate", "status": "success"}'),
        ),
        refused=(*QWEN_REFUSED, _tool_call('{"action": "answer", "text": "42"}')),
        repaired=QWEN_REPAIRED,
    ),
    "qwen3-vl": _published(
        "qwen3-vl",
        "`prompt: {dialect: qwen3-vl}`, Qwen3-VL's call: as `qwen2.5-vl`, with points as cells of a grid of 1000 by "
        "1000 whatever the size of the screenshot, and with `triple_click`, `hscroll` and `answer`.",
        None,
        accepted=(
            "I answer.\n" + _tool_call('{"action": "answer", "text": "42"}'),
            _tool_call('{"action": "scroll", "pixels": -5, "coordinate": [500, 500]}'),
        ),
        refused=QWEN_REFUSED,
        repaired=(_tool_call('{"action": "left_click", "coordinate": [1000, 500]}'), *QWEN_REPAIRED),
    ),
    "waa": _published(
        "waa",
        "`prompt: {dialect: waa}`, Windows Agent Arena: a decision and Python code over the object `computer`, which "
        "is read by a grammar and\nnever run. A move of the pointer and then a click, a scroll or a drag is one action "
        "at that point. With `marks: true` actions name marks\nby `move_id`. Text after the first fence, and memory, "
        "are passed over. A text that is copied and then pasted is typed.",
        None,
        accepted=(
            '```python\ncomputer.os.open_program("msedge") # the browser\n```',
            "Screen analysis: all is done.\n```decision\n# finished\nDONE\n```\n```memory\nnothing\n```",
            '```python\ncomputer.clipboard.copy_text("alice")\ncomputer.clipboard.paste()\n```',
        ),
        refused=(
            "click",
            "```decision\nCOMMAND\n```",
            "```python\ncomputer.mouse.move_id(id=78)\n```",
            "```python\nimport os\n```",
            "```python\ncomputer.mouse.move_abs(x=220, y=0.5)\n```",
            "```python\nfor i in range(3):\n    computer.mouse.single_click()\n```",
        ),
        repaired=("```decision\nDONE\n```\n```python\ncomputer.mouse.single_click()\n```",),
    ),
    "place": _published(
        "place",
        "`prompt: {dialect: place}`, models that only say where something is, as ScreenSpot asks them: one point, read "
        "as a click there.\nBoxes stand for their centre. The spellings of Qwen2.5-VL, Qwen2-VL, OS-Atlas, UGround, "
        "InternVL and CogAgent are read. Points are\nfractions of the screen, or pixels (`agent.frame`).",
        None,
        accepted=("(0.25, 0.5)", "The button is here:\n[0.25, 0.5]", '```json\n{"point_2d": [0.25, 0.5]}\n```'),
        refused=("the button", "(250, 500)", "(0.25, 0.5, 0.75)", "(0.25, 0.5) (0.3, 0.5)", "(0.25, 0.5) or lower"),
        repaired=("(0.25, 0.5) (0.3, 0.5)", "(0.25, 0.5) or lower"),
    ),
    "place-1000": _published(
        "place-1000",
        "`prompt: {dialect: place-1000}`, as `place`, in cells of a grid of 1000 by 1000 whatever the size of the "
        "screenshot.",
        None,
        accepted=(
            "(250, 500)",
            "<point>250 500</point>",
            "<|box_start|>(240,490),(260,510)<|box_end|>",
            "<box>[[240, 490, 260, 510]]</box>",
            '[{"bbox_2d": [240, 490, 260, 510], "label": "button"}]',
        ),
        refused=("(1000, 500)", "[260, 510, 240, 490]", "(250)", "250, 500"),
        repaired=("(1000, 500)",),
    ),
}


def page() -> str:
    """The text of docs/reference/actions.md. Raises ParseError for an example that its dialect cannot read back."""
    lines = [INTRO, *_contents(), TYPES]
    for kind, (must, may) in FIELDS.items():
        lines.append(f"| `{kind}` | {_fields(must)} | {_fields(may)} |")
    lines += ["", *_matrix()]
    for name, grammar in GRAMMARS.items():
        lines += ["", f"## {name}", "", grammar.about, "", *_written(grammar), "", *_read(grammar)]
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
        yield f"- [{name}](#{name.replace(' ', '-').replace('.', '')})"
    yield ""


def _fields(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "nothing"


def _matrix() -> Iterator[str]:
    """One row per action, one column per dialect: whether the dialect writes it."""
    yield f"{TABLE}\n\n| action | {' | '.join(GRAMMARS)} |\n|---|{'---|' * len(GRAMMARS)}"
    for action in ACTIONS:
        cells = (" yes " if _says(grammar.dialect, action) else " " for grammar in GRAMMARS.values())
        yield f"| {_fields_of(action)} |{'|'.join(cells)}|"


def _says(dialect: Dialect, action: Action) -> bool:
    try:
        dialect.format(action)
    except Unrepresentable:
        return False
    return True


def _written(grammar: Grammar) -> Iterator[str]:
    """One row per type of action: how the dialect writes it, or why it cannot."""
    dialect = grammar.dialect
    yield "| action | as text |\n|---|---|"
    for action in ACTIONS:
        try:
            text = dialect.format(action)
        except Unrepresentable as error:
            if action.element is None and not grammar.published:
                yield f"| {_fields_of(action)} | cannot be written: {_cell(str(error))} |"
            continue
        read = dialect.parse(text)
        if dialect.format(read) != text or (read != action and not grammar.published):
            raise ParseError(f"{text!r} is read as {read}, not as {action}")
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
    if grammar.repaired:
        yield "\nAnswers that `parse_turn` with `lenient=True` repairs, and what it says:\n"
        yield "| answer | repaired |\n|---|---|"
    for answer in grammar.repaired:
        reason(grammar.dialect, answer)
        turn = grammar.dialect.parse_turn(answer, lenient=True)
        yield f"| {_code(answer)} | {_cell('; '.join(turn.repairs))} |"


def _code(text: str) -> str:
    """Code in a cell of a table; each line of the text is a line of the cell."""
    return "<br>".join(
        f"`` {line} ``" if "`" in line else f"`{line}`" for line in text.replace("|", "\\|").split("\n") if line
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
