"""Anchor states: the same screen has the same key, wherever the pointer is; another screen has another."""

from __future__ import annotations

import random

import msgspec
import numpy as np
from PIL import Image, ImageDraw

from eval.accessibility.tree import Tree, TreeNode
from eval.desktop import Observation
from training.rl.rollouts.screen_states import screen_state, state_keys

SIZE = (320, 240)
SHOWN = ("enabled", "sensitive", "showing", "visible")


def screen(draw: random.Random) -> Image.Image:
    noise = np.frombuffer(draw.randbytes(SIZE[0] * SIZE[1] * 3 // 64), dtype=np.uint8)
    return Image.fromarray(np.resize(noise, (SIZE[1], SIZE[0], 3)))


def with_pointer(image: Image.Image, at: tuple[int, int]) -> Image.Image:
    """An arrow whose tip is the hot spot, 12 by 19 pixels, as X's default one."""
    x, y = at
    copy = image.copy()
    ImageDraw.Draw(copy).polygon(
        [(x, y), (x, y + 16), (x + 4, y + 12), (x + 8, y + 19), (x + 12, y + 12)], fill="black"
    )
    return copy


def observed(image: Image.Image, pointer: tuple[int, int] | None = None, tree: Tree | None = None) -> Observation:
    return Observation(image, image.size, info={} if pointer is None else {"pointer": pointer}, tree=tree)


def form(text: str = "", *, focused: bool = False, secret: bool = False) -> Tree:
    entry = TreeNode(
        role="password text" if secret else "text",
        name="user",
        states=(*SHOWN, "focused") if focused else SHOWN,
        bounds=(10, 10, 80, 20),
        text=None if secret else text,
    )
    window = TreeNode(role="frame", name="Login", states=SHOWN, bounds=(0, 0, *SIZE), children=[entry])
    return Tree(applications=[TreeNode(role="application", name="app", children=[window])], screen=SIZE)


def test_the_pointer_does_not_matter_and_everything_else_does() -> None:
    for number in range(200):
        draw = random.Random(f"anchors {number}")
        image = screen(draw)
        places = [(draw.randrange(SIZE[0]), draw.randrange(SIZE[1])) for _ in range(3)]
        looks = [observed(with_pointer(image, at), at) for at in places]
        assert len(set(state_keys(map(screen_state, looks)))) == 1, number
        # one pixel, half a screen from the pointer
        across, down = places[0]
        x, y = (across + 160) % SIZE[0], (down + 120) % SIZE[1]
        other = image.copy()
        red, green, blue = other.getpixel((x, y))  # type: ignore[misc]
        other.putpixel((x, y), (255 - red, green, blue))
        keys = state_keys([screen_state(looks[0]), screen_state(observed(with_pointer(other, places[0]), places[0]))])
        assert keys[0] != keys[1], number


def test_pictures_without_a_pointer_are_compared_to_the_last_pixel() -> None:
    image = screen(random.Random(1))
    changed = image.copy()
    changed.putpixel((319, 239), (1, 2, 3))
    assert state_keys(map(screen_state, (observed(image), observed(changed), observed(image.copy())))) == [
        "state-0",
        "state-1",
        "state-0",
    ]
    assert len(set(state_keys([screen_state(observed(image)), screen_state(observed(image.resize((160, 120))))]))) == 2


def test_a_tree_decides_where_there_is_one() -> None:
    draw = random.Random(2)

    def key_of(*trees: Tree) -> list[str]:
        return state_keys(screen_state(observed(screen(draw), tree=tree)) for tree in trees)  # other pictures each time

    assert len(set(key_of(form("alice"), form("alice")))) == 1
    assert len(set(key_of(form(""), form("alice"), form("", focused=True)))) == 3
    hovered = msgspec.json.decode(msgspec.json.encode(form()), type=Tree)
    hovered.applications[0].children[0].states += ("armed", "active")
    assert len(set(key_of(form(), hovered))) == 1


def test_what_stands_in_a_password_field_is_seen_in_the_picture() -> None:
    """The tree is the same before and after the password was typed."""
    empty = Image.new("RGB", SIZE, "white")
    typed = empty.copy()
    ImageDraw.Draw(typed).ellipse((20, 14, 26, 20), fill="black")
    looks = [observed(image, tree=form(secret=True)) for image in (empty, typed, empty)]
    assert state_keys(map(screen_state, looks)) == ["state-0", "state-1", "state-0"]
