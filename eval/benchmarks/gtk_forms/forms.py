"""Ten kinds of forms: what each shows, asks for, and counts as right.

A form is a dict for `program`; what is right is the whole state that it must be in at the end, so that whoever presses
everything, or one element too many, has not solved it.
"""

from __future__ import annotations

import colorsys
import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from eval.environments.splits import Split

WIDTH, HEIGHT = 128, 96  # pixels of the screen
NAMES: Final = ("Mail", "Chat", "News", "Maps", "Shop", "Tea", "Milk", "Rice", "Blue", "Red", "Gold", "Pink")
FIELDS: Final = ("City", "Name", "Team", "Pet")
WORDS: Final = (
    "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "kate", "leo", "mona", "nina",
    "oscar", "peggy",
)  # fmt: skip
REST: Final = "Leave everything else as it is."  # the form's other elements, and all files
MENUS: Final = ("File", "Edit", "View", "Help")

Element = dict[str, Any]
State = dict[str, Any]


@dataclass(frozen=True)
class GtkForm:
    """One task.

    kind         one of KINDS
    instruction  what the agent is asked
    shown        what `program` reads
    goal         the state that solves it
    """

    kind: str
    instruction: str
    shown: dict[str, Any]
    goal: State


@dataclass(frozen=True)
class _Drawn:
    """What a kind draws: the asked text, the elements, menus or pages, the state at the start and what changes."""

    instruction: str
    start: State
    change: State
    elements: list[Element] | None = None
    menus: list[dict[str, Any]] | None = None
    pages: list[dict[str, Any]] | None = None
    columns: int = 1


def _press(rng: random.Random) -> _Drawn:
    names = rng.sample(NAMES, 4)
    asked = rng.choice(names)
    elements = [{"kind": "button", "name": name} for name in names]
    return _Drawn(f'Press "{asked}".', dict.fromkeys(names, 0), {asked: 1}, elements, columns=2)


def _tick(rng: random.Random) -> _Drawn:
    names = rng.sample(NAMES, 4)
    right = rng.sample(names, 2)
    start = {name: name in right[:1] if rng.random() < 0.5 else False for name in names}
    elements = [{"kind": "check", "name": name, "value": start[name]} for name in names]
    return _Drawn(f'Tick "{right[0]}" and "{right[1]}".', start, dict.fromkeys(right, True), elements)


def _choose(rng: random.Random) -> _Drawn:
    names = rng.sample(NAMES, 4)
    before, asked = rng.sample(names, 2)
    start = {name: name == before for name in names}
    elements = [{"kind": "radio", "name": name, "value": start[name]} for name in names]
    return _Drawn(f'Choose "{asked}".', start, {before: False, asked: True}, elements)


def _switch(rng: random.Random) -> _Drawn:
    names = rng.sample(NAMES, 3)
    start = {name: rng.random() < 0.5 for name in names}
    asked = rng.choice(names)
    elements = [{"kind": "switch", "name": name, "value": start[name]} for name in names]
    word = "off" if start[asked] else "on"
    return _Drawn(f'Switch "{asked}" {word}.', start, {asked: not start[asked]}, elements)


def _write(rng: random.Random) -> _Drawn:
    names, word = rng.sample(FIELDS, 3), rng.choice(WORDS)
    asked = rng.choice(names)
    elements = [{"kind": "entry", "name": name, "value": ""} for name in names]
    return _Drawn(f'Write "{word}" into "{asked}".', dict.fromkeys(names, ""), {asked: word}, elements)


def _replace(rng: random.Random) -> _Drawn:
    names = rng.sample(FIELDS, 3)
    word, *before = rng.sample(WORDS, 4)
    asked = rng.choice(names)
    start: State = dict(zip(names, before, strict=True))
    elements = [{"kind": "entry", "name": name, "value": start[name]} for name in names]
    return _Drawn(f'Change "{asked}" to "{word}".', start, {asked: word}, elements)


def _select(rng: random.Random) -> _Drawn:
    rows = rng.sample(NAMES, 3)
    asked = rng.choice(rows)
    elements: list[Element] = [{"kind": "rows", "name": "rows", "rows": rows}, {"kind": "button", "name": "Open"}]
    return _Drawn(f'Open the row "{asked}".', {"rows": None, "Open": 0}, {"rows": asked, "Open": 1}, elements)


def _menu(rng: random.Random) -> _Drawn:
    tops, items = rng.sample(MENUS, 3), rng.sample(NAMES, 6)
    menus = [{"name": top, "items": items[2 * number : 2 * number + 2]} for number, top in enumerate(tops)]
    start: State = {f"{menu['name']}/{item}": 0 for menu in menus for item in menu["items"]}
    asked = rng.choice(list(start))
    top, item = asked.split("/")
    return _Drawn(f'Choose "{item}" in the menu "{top}".', start, {asked: 1}, [], menus)


def _count(rng: random.Random) -> _Drawn:
    names = rng.sample(NAMES, 2)
    start = {name: rng.randint(2, 7) for name in names}
    asked = rng.choice(names)
    value = start[asked] + rng.choice((-2, -1, 1, 2))
    elements = [{"kind": "count", "name": name, "value": start[name]} for name in names]
    return _Drawn(f'Set "{asked}" to {value}.', start, {asked: value}, elements)


def _page(rng: random.Random) -> _Drawn:
    tabs, names = rng.sample(MENUS, 3), rng.sample(NAMES, 6)
    pages = [
        {
            "name": tab,
            "elements": [{"kind": "check", "name": name, "value": False} for name in names[2 * n : 2 * n + 2]],
        }
        for n, tab in enumerate(tabs)
    ]
    number = rng.randrange(3)
    asked = rng.choice(names[2 * number : 2 * number + 2])
    text = f'Tick "{asked}" on the page "{tabs[number]}".'
    return _Drawn(text, dict.fromkeys(names, False), {asked: True}, pages=pages)


KINDS: Final[dict[str, Callable[[random.Random], _Drawn]]] = {
    "press": _press,
    "tick": _tick,
    "choose": _choose,
    "switch": _switch,
    "write": _write,
    "replace": _replace,
    "select": _select,
    "menu": _menu,
    "count": _count,
    "page": _page,
}


def side(text: str) -> Split:
    """The split that a text belongs to, the same on every machine: a quarter each for test and validation."""
    splits: tuple[Split, ...] = ("test", "validation", "train", "train")
    return splits[hashlib.sha256(text.encode()).digest()[0] % 4]


def form(kind: str, split: Split, seed: int) -> GtkForm:
    """The form of a seed. What it asks together with what it shows, colours and margins left out, belongs to the split
    alone, so that no task of one split repeats one of another."""
    rng = random.Random(f"gtk-forms {kind} {split} {seed}")
    while side(repr(drawn := KINDS[kind](rng))) != split:
        pass
    light = [f"{rng.randint(215, 250):02x}" for _ in range(3)]
    red, green, blue = colorsys.hsv_to_rgb(rng.uniform(0.5, 0.75), 0.8, 0.7)
    shown = {
        "title": "Form",
        "background": f"#{''.join(light)}",
        "accent": f"#{int(255 * red):02x}{int(255 * green):02x}{int(255 * blue):02x}",
        "left": 4 * rng.randint(1, 5),
        "top": 4 * rng.randint(1, 3),
        "gap": rng.choice((2, 4)),
        "columns": drawn.columns,
        "elements": drawn.elements,
        "menus": drawn.menus,
        "pages": drawn.pages,
    }
    return GtkForm(kind, f"{drawn.instruction} {REST}", shown, {**drawn.start, **drawn.change})


def written(form: GtkForm) -> bytes:
    """The file that `program` reads."""
    return json.dumps(form.shown).encode()
