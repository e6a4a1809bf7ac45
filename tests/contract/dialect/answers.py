"""Answers that ended evaluations, or could have; and a generator of such answers."""

from __future__ import annotations

import random
import re
from typing import Final

DIGITS: Final = "9" * 400


def code(text: str) -> str:
    return f"## Code:\n{text}"


NASTY: Final[dict[str, str]] = {
    "350 minus signs": code(f"pyautogui.click(x={'-' * 350}1, y=0.5)"),
    "an x of 400 digits": code(f"pyautogui.click(x={DIGITS}, y=0.5)"),
    "an x of 400 digits, with a sign": code(f"pyautogui.click(x=-{DIGITS}, y=0.5)"),
    "an x of 400 digits, in the DSL": f"Action: CLICK(x={DIGITS}, y=0.5)",
    "an x of 5000 digits": code(f"pyautogui.click(x={'9' * 5000}, y=0.5)"),
    "a number with leading zeros": code("pyautogui.click(x=0.5, y=007)"),
    "a hexadecimal x": code(f"pyautogui.click(x=0x{'f' * 5000}, y=0.5)"),
    "an infinite x": code("pyautogui.click(x=1e999, y=0.5)"),
    "a duration of 400 digits": code(f"time.sleep({DIGITS})"),
    "a scroll of 400 digits": code(f"pyautogui.scroll({DIGITS})"),
    "a scroll of 1e308": code("pyautogui.scroll(1e308)"),
    "presses of 400 digits": code(f"pyautogui.press('a', presses={DIGITS})"),
    "a thousand presses of 5000 keys": code("pyautogui.press([" + "'a'," * 4900 + "], presses=1000)"),
    "a button that is a list": code("pyautogui.click(x=0.5, y=0.5, button=['left'])"),
    "clicks that are a list": code("pyautogui.click(x=0.5, y=0.5, clicks=['left'])"),
    "a status that is a list": code("computer.terminate(status=['success'])"),
    "a monitor of 400 digits": f"Action: SELECT_MONITOR(monitor_id={DIGITS})",
    "a mark of 400 digits": f"Action: CLICK([{DIGITS}])",
    "half of a surrogate pair, as an escape": code("pyautogui.write('\\ud83d')"),
    "half of a surrogate pair, as it is": code("pyautogui.write('\ud83d')"),
    "half of a surrogate pair, in the DSL": 'Action: TYPE(text="\ud83d")',
    "a key that is half of a surrogate pair": code("pyautogui.press('\\udc00')"),
    "an answer of half a surrogate pair": "\ud83d",
    "a deep attribute": code("a" + ".b" * 9000),
    "a deep call": code("a" + "()" * 9000),
    "a long sum": code("1" + "+1" * 9000),
    "a long product in an argument": code("pyautogui.click(x=1" + "*1" * 9000 + ", y=0.5)"),
    "many nots": code("not " * 4900 + "1"),
    "many lambdas": code("lambda:" * 2800 + "1"),
    "many brackets": code("[" * 9000 + "]" * 9000),
    "many brackets in an argument": code("pyautogui.click(x=" + "(" * 9000 + "1" + ")" * 9000 + ", y=0.5)"),
    "many blocks": code("\n".join(" " * depth + "if 1:" for depth in range(150))),
    "a formatted string": code("pyautogui.write(f'" + "{" * 100 + "')"),
    "a megabyte in a text of JSON": '[{"type": "text", "text": "' + "a" * 2**20 + '"}]',
    "a deep JSON in a call": '<tool_call>\n{"name": "computer_use", "arguments": ' + "[" * 50_000 + "</tool_call>",
    "a deep JSON in a fence": "```json\n" + '{"a":' * 30_000 + "\n```",
    "many open calls": "<tool_call>" * 15_000,
    "many closed calls": "<tool_call>{}</tool_call>" * 7_000,
    "many fences": "```\n" * 40_000,
    "blanks after backticks": "```" + " " * 150_000 + "!",
    "many points": "Action: click(point='" + "<point>" * 5_000 + "')",
    "a point of many numbers": "Action: click(point='" + "1 " * 20_000 + "')",
    "a point of 400 digits": f"Action: click(point='<point>{DIGITS} 1</point>')",
    "many actions of UI-TARS": "Action: " + "wait()\n\n" * 5_000,
    "an import in the place of an action": "Action: __import__('os').system('true')",
    "an import in the place of a point": "Action: click(start_box='__import__(\"os\").getcwd()')",
    "a thousand minus signs in a coordinate": '{"action_type": "CLICK", "x": ' + "-" * 1000 + '1, "y": 1}',
    "a coordinate of 400 digits in JSON": f'[{{"type": "computer_call", "call_id": "a", "actions": [{{"type": "click", '
    f'"button": "left", "x": {DIGITS}, "y": 1}}]}}]',
    "a scroll of 400 digits in JSON": f'<tool_call>{{"name": "computer_use", "arguments": {{"action": "scroll", '
    f'"pixels": {DIGITS}}}}}</tool_call>',
    "a key repeated without end": '[{"type": "tool_use", "id": "a", "toolset_name": "computer", "name": "key", '
    '"input": {"text": "a", "repeat": 1000000000}}]',
    "a key of a megabyte": '[{"type": "tool_use", "id": "a", "name": "computer", "input": {"action": "key", "text": "'
    + "ctrl+" * 30_000
    + '"}}]',
    "half of a surrogate pair in a call": '[{"type": "tool_use", "id": "a", "name": "computer", '
    '"input": {"action": "type", "text": "\\ud83d"}}]',
    "an import in WAA's code": "```python\n__import__('os').system('true')\n```",
    "a stop reason that is a list": '{"stop_reason": [], "content": [{"type": "text", "text": "a"}]}',
    "many strings side by side": code("pyautogui.write(" + "'a'" * 6000 + ")"),
    "a string that is never closed": code("pyautogui.write('''" + "'" * 2 + "a" * 15000),
    "a bad escape": code("pyautogui.write('\\x')"),
    "a name that is no character": code("pyautogui.write('\\N{NOTHING}')"),
    "a NUL": code("pyautogui.write('\x00')"),
    "line breaks of other alphabets": code("pyautogui.click(\x0b\x0c\x1c\u2028x=0.5,\u2029y=0.5)"),
    "many line breaks within brackets": code("pyautogui.click(" + "\n" * 15000 + "x=0.5, y=0.5)"),
    "many blanks": code("pyautogui.click(" + " " * 15000 + "x=0.5, y=0.5)"),
    "many backslashes": 'Action: TYPE(text="' + "\\" * 15000,
    "many quotes": 'Action: TYPE(text="' + '"' * 15000,
    "many headings": "## Thought:\n" * 15000,
    "a megabyte": "a" * 2**20,
    "a megabyte of brackets": "Action: " + "(" * 2**20,
    "a deep JSON": "[" * 100_000,
    "a JSON number without end": '{"type": "click", "x": 1e999, "y": NaN}',
    "a JSON number of 5000 digits": '{"type": "select_monitor", "monitor_id": ' + "9" * 5000 + "}",
    "JSON of half a surrogate pair": '{"type": "type", "text": "\\ud83d"}',
    "JSON of keys that are objects": '{"type": "hotkey", "keys": [{}, []]}',
    "JSON of a direction that is a list": '{"type": "scroll", "direction": ["up"]}',
}

FUNCTIONS: Final = (
    *("pyautogui.click", "pyautogui.doubleClick", "pyautogui.moveTo", "pyautogui.dragTo", "pyautogui.scroll"),
    *("pyautogui.hscroll", "pyautogui.write", "pyautogui.press", "pyautogui.hotkey", "pyautogui.keyDown"),
    *("pyautogui.mouseDown", "computer.terminate", "computer.wait", "time.sleep", "computer.triple_click"),
    *("pyperclip.copy", "CLICK", "DRAG", "SCROLL", "TYPE", "KEY", "HOTKEY", "WAIT", "SELECT_MONITOR", "WINDOW_RESIZE"),
)
ARGUMENTS: Final = (
    *("x=", "y=", "x2=", "y2=", "clicks=", "button=", "keys=", "key=", "message=", "text=", "status=", "seconds="),
    *("presses=", "duration=", "amount=", "direction=", "monitor_id=", "width=", "height=", "modifiers=", ""),
)
VALUES: Final = (
    *("0.5", "0.25", "1", "0", "-1", "960", "1e400", "-0.0", "--1", "1/2", "None", "True", DIGITS, "0x" + "f" * 300),
    *("'enter'", '"enter"', "'left'", '"down"', "'success'", "['ctrl', 'c']", '["ctrl", "c"]', "[3]", "[]", "('a')"),
    *("'\\ud800'", '"\\\\"', "'\\x'", "''", '""', "'''a\nb'''", "f'{1}'", "b'a'", "[[]]", "{}", "(" * 50, "lambda: 1"),
)
FRAMES: Final = (
    *("{}", "## Code:\n{}", "## Code:\n```python\n{}\n```", "## Thought:\nGo.\n\n## Code:\n{}", "Action: {}"),
    *("Thought: Go.\nAction: {}", "# Step 3:\n## Code:\n{}", "# Step 1:\nAction: {}", "import pyautogui\n'''a'''\n{}"),
)
WHOLE: Final = (
    *(
        "pyautogui.click(x=0.5, y=0.25)",
        "pyautogui.hotkey(keys=['ctrl', 'c'])",
        "pyautogui.write(message='a b')",
        "DONE",
    ),
    *("pyautogui.moveTo(x=0.5, y=0.25)\npyautogui.scroll(-3)", "computer.terminate(status='success')", "DONE()"),
    *("CLICK(x=0.5, y=0.25)", "CLICK([3])", 'TYPE(text="a b")', 'HOTKEY(keys=["ctrl", "c"])', 'TYPE([2], "a")'),
)
DAMAGE: Final = (
    "(",
    ")",
    "[",
    "]",
    "'",
    '"',
    "\\",
    "\n",
    "\r",
    ",",
    "=",
    "-",
    "#",
    "\x00",
    "\ud800",
    "\u2028",
    " ",
    ";",
)


def fuzzed(chance: random.Random) -> str:
    """A random answer: one to three calls in some frame, most of them plausible, and damage in half of them."""
    calls = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        count = chance.choice((0, 1, 1, 2, 2, 3, 4))
        given = [chance.choice(ARGUMENTS) + chance.choice(VALUES) for _ in range(count)]
        if chance.random() < 0.4:
            given = ["x=0.5", "y=0.25", *given[2:]]
        call = f"{chance.choice(FUNCTIONS)}({', '.join(given)})"
        calls.append(call if chance.random() < 0.6 else chance.choice(WHOLE))
    text = chance.choice(FRAMES).format("\n".join(calls))
    return _damage(text, chance) if chance.random() < 0.5 else text


def _damage(text: str, chance: random.Random) -> str:
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(text) + 1)
        piece = chance.choice(DAMAGE) * chance.choice((1, 1, 1, 2, 300))
        text = text[:at] + piece + text[at + chance.choice((0, 0, 1, 4)) :]
    return text


PIECE: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\w+|[<>{}\[\]()`]+")
PIECES: Final = (
    *("0", "-1", "1000", "99999", "0.5", "1e400", "NaN", "true", "null", DIGITS, "-" * 1000 + "1", '"\\ud800"', '""'),
    *(
        '"Return"',
        '"ctrl+"',
        '"+"',
        '"type"',
        '"text"',
        "[1, 2]",
        "[" * 30 + "]" * 30,
        "{}",
        '{"a": {}}',
        "'\\x'",
        "''",
    ),
    *("__import__('os')", "<point>1 2</point>", "<tool_call>", "</tool_call>", "```", "\u202e", "\U0001f600", "\x00"),
    *("Action:", "Thought:", "[INFEASIBLE]", "computer.mouse.drag(x=0.1, y=0.2)", "COMMAND", "DONE", "coordinate"),
)


def damaged(text: str, chance: random.Random) -> str:
    """An answer with some of its numbers, texts, words and marks replaced, dropped, swapped or repeated, or none."""
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        pieces = list(PIECE.finditer(text))
        if not pieces:
            break
        piece = chance.choice(pieces)
        other = chance.choice(pieces).group()
        new = chance.choice((chance.choice(PIECES), chance.choice(PIECES), other, "", piece.group() * 2))
        text = text[: piece.start()] + new + text[piece.end() :]
    return _damage(text, chance) if chance.random() < 0.2 else text
