"""Trees as text and as marks: what is visible, what is told, and what is left out first."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from eval.accessibility.prompt_text import tell, tokens
from eval.accessibility.tree import NAMESPACES, Bounds, Tree, TreeNode, mend_places, to_xml
from eval.accessibility.visible import elements, marks_of
from eval.actions import ActionType
from eval.actions.geometry import Point
from eval.config import ConfigError
from eval.desktop import Observation
from eval.prompts import PromptConfig
from eval.prompts.marks import draw

SHOWN = ("enabled", "sensitive", "showing", "visible")


def node(
    role: str, bounds: Bounds | None, name: str = "", *children: TreeNode, states: tuple[str, ...] = (), **more: object
) -> TreeNode:
    return TreeNode(role=role, name=name, bounds=bounds, states=(*SHOWN, *states), children=list(children), **more)  # type: ignore[arg-type]


def desk(*frames: TreeNode, windows: list[Bounds] | None = None) -> Tree:
    boxes = [frame.bounds for frame in frames if frame.bounds is not None]
    application = node("application", None, "app", *frames)
    return Tree(applications=[application], screen=(200, 100), windows=boxes if windows is None else windows)


def place(point: Point) -> str:
    return f"{point[0]:.2f}, {point[1]:.2f}"


def told(tree: Tree, budget: int = 10_000) -> list[str]:
    return tell(tree, budget, place).splitlines()


BUTTON = node("push button", (120, 10, 20, 10), "Save")
FIELD = node("text", (20, 20, 100, 40), "Body", states=("editable", "focused"), text="hello\nworld")
LABEL = node("label", (20, 70, 30, 10), "Ready")
FRAME = node(
    "frame", (0, 0, 180, 90), "Editor", node("filler", (0, 0, 180, 90), "", BUTTON, FIELD), LABEL, states=("active",)
)


def test_a_line_tells_role_name_text_state_and_place_by_rows() -> None:
    assert told(desk(FRAME)) == [
        'frame "Editor" (active)',
        '  push button "Save" at (0.65, 0.15)',
        '  text "Body" text "hello world" (focused, editable) at (0.35, 0.40)',
        '  label "Ready" at (0.17, 0.75)',
    ]


def test_what_another_window_covers_is_neither_told_nor_marked() -> None:
    dialog = node("dialog", (100, 0, 90, 50), "Really?", node("push button", (110, 20, 20, 20), "Yes"))
    lines = told(desk(FRAME, dialog))
    assert lines == [
        'dialog "Really?"',
        '  push button "Yes" at (0.60, 0.30)',
        'frame "Editor" (active)',
        '  text "Body" text "hello world" (focused, editable) at (0.30, 0.40)',  # the part that is free
        '  label "Ready" at (0.17, 0.75)',
    ]
    assert list(marks_of(desk(FRAME, dialog)).values()) == [(0.55, 0.2, 0.1, 0.2), (0.1, 0.2, 0.4, 0.4)]
    assert 'push button "Save" at' in "".join(told(desk(dialog, FRAME)))


def test_hidden_and_disabled_elements_have_no_mark() -> None:
    grey = TreeNode(role="push button", name="Undo", bounds=(10, 10, 20, 10), states=("showing", "visible"))
    hidden = TreeNode(role="push button", name="Later", bounds=(10, 30, 20, 10), states=("sensitive", "visible"))
    far = node("push button", (500, 10, 20, 10), "Far")
    thin = node("push button", (10, 60, 20, 1), "Thin")
    tree = desk(node("frame", (0, 0, 200, 100), "F", grey, hidden, far, thin))
    assert marks_of(tree) == {}
    assert told(tree) == ['frame "F"', '  push button "Undo" (disabled) at (0.10, 0.15)']


def test_elements_that_can_be_used_stay_longest() -> None:
    """Lines go in the documented order as the budget gets smaller, and the text never is longer than the budget."""
    low = node(
        "frame", (0, 0, 190, 90), "Low", node("label", (181, 30, 9, 9), "far"), node("link", (181, 50, 9, 9), "go")
    )
    tree = desk(low, FRAME)
    order = []
    before = set(told(tree))
    for budget in range(tokens("\n".join(before)) + 10, 9, -1):
        text = tell(tree, budget, place)
        assert tokens(text) <= budget
        assert tell(tree, budget, place) == text
        left = {line for line in text.splitlines() if not line.startswith("(")}
        order += sorted(before - left)
        before = left
        if before != set(told(tree)):
            assert f"({len(order)} more elements are left out)" in text
    gone = [line.split('"')[1] for line in order]
    assert gone == ["far", "Ready", "go", "Save", "Low", "Editor", "Body"][: len(gone)]
    assert len(gone) >= 6


@given(st.text(max_size=300), st.text(max_size=600), st.integers(12, 400))
def test_no_text_of_a_program_breaks_a_line_or_the_budget(name: str, text: str, budget: int) -> None:
    entry = node("entry", (10, 10, 50, 10), name, text=text)
    tree = desk(node("frame", (0, 0, 190, 90), name, entry))
    shown = tell(tree, budget, place)
    assert tokens(shown) <= budget
    assert len(shown.splitlines()) == shown.count("\n") <= 3
    ElementTree.fromstring(to_xml(tree))


def test_names_of_attributes_that_xml_can_not_hold_do_not_lose_the_tree() -> None:
    odd = node("label", (0, 0, 10, 10), "a\x00b", attributes={"a b<": "\x01x", "": "y", "1": "z"}, text="\ufffcq")
    root = ElementTree.fromstring(to_xml(desk(odd)))
    element = next(root.iter("label"))
    assert element.get("name") == "ab"
    assert element.text == "q"
    assert {element.get(f"{{{NAMESPACES['attr']}}}{name}") for name in ("a_b_", "_1")} == {"x", "z"}
    assert element.get(f"{{{NAMESPACES['cp']}}}size") == "(10, 10)"


def test_empty_cells_are_left_out_first_and_have_no_mark() -> None:
    cells = [
        node("table cell", (10 + 20 * n, 10, 20, 10), f"{'ABC'[n]}1", text="x" if n == 1 else "") for n in range(3)
    ]
    tree = desk(node("frame", (0, 0, 200, 100), "F", *cells, node("label", (10, 50, 20, 10), "Ready")))
    assert list(marks_of(tree).values()) == [(0.15, 0.1, 0.1, 0.1)]
    full = tell(tree, 1000, place)
    assert 'table cell "A1"' in full
    shorter = tell(tree, tokens(full) - 1, place)
    assert '"C1"' not in shorter
    assert "Ready" in shorter


def test_libreoffices_places_are_mended_and_those_of_gtk_stay() -> None:
    """As LibreOffice 7.4 with GTK 3 tells them: below a menu bar of 25 pixels everything it draws is 25 too high."""
    entry = node("combo box", (4, 85, 50, 30), "font")
    gtk = node("panel", (4, 85, 52, 30), "", entry)
    drawn = node("push button", (60, 60, 20, 20), "bold")
    pane = node("root pane", (0, 19, 180, 60), "", node("panel", (4, 60, 52, 31), "", gtk), drawn)
    tree = desk(node("frame", (0, 0, 180, 104), "F", node("panel", (0, 44, 180, 60), "", pane)))
    mend_places(tree)
    assert {n.name or n.role: n.bounds for n in (pane, entry, gtk, drawn)} == {
        "root pane": (0, 44, 180, 60),
        "font": (4, 85, 50, 30),
        "panel": (4, 85, 52, 30),
        "bold": (60, 85, 20, 20),
    }
    before = tree.to_json()
    mend_places(tree)
    assert tree.to_json() == before


SEEN = Observation(Image.new("RGB", (200, 100)), (200, 100), marks_of(desk(FRAME)), tree=desk(FRAME))


def asked(config: PromptConfig, seen: Observation = SEEN) -> tuple[str, int]:
    messages, images = config.builder().messages("Save it", [], seen)
    return "".join(part.get("text", "") for part in messages[-1]["content"]), len(images)


def test_the_prompt_shows_what_was_chosen() -> None:
    assert asked(PromptConfig()) == ("Goal: Save it\n", 1)
    text, images = asked(PromptConfig(observation="tree"))
    assert images == 0
    assert text.startswith('Goal: Save it\nScreen:\nframe "Editor" (active)\n')
    assert '  push button "Save" at (0.6500, 0.1500)\n' in text
    assert asked(PromptConfig(observation="both")) == (text, 1)
    marked, images = asked(PromptConfig(observation="som"))
    assert images == 1
    assert '  [1] push button "Save"\n' in marked
    assert "at (" not in "".join(line for line in marked.splitlines() if "[" in line)


def test_places_are_told_in_the_frame_of_the_dialect() -> None:
    text, _ = asked(PromptConfig(observation="tree", dialect="qwen3-vl"))
    assert '  push button "Save" at (650, 150)\n' in text


def test_an_answer_with_a_mark_means_the_element_that_was_told() -> None:
    builder = PromptConfig(observation="som").builder()
    action = builder.read("Action: CLICK([1])", SEEN.marks).action
    assert (action.type, action.x, action.y) == (ActionType.CLICK, pytest.approx(0.65), pytest.approx(0.15))


def test_the_tree_of_a_prompt_is_cut_to_its_tokens() -> None:
    labels = [node("label", (0, y, 100, 3), f"label number {y}") for y in range(0, 90, 3)]
    seen = Observation(SEEN.image, SEEN.screen, tree=desk(node("frame", (0, 0, 190, 95), "F", BUTTON, *labels)))
    text, _ = asked(PromptConfig(observation="tree", tree_tokens=100), seen)
    assert tokens(text.partition("Screen:\n")[2]) <= 100
    assert "Save" in text
    assert "more elements are left out" in text


def test_without_trees_a_prompt_that_needs_them_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"prompt\.observation: tree needs accessibility trees"):
        PromptConfig(observation="tree").builder().layout("g", [], Path("x.png"))
    with pytest.raises(ConfigError, match=r"dialect pyautogui has no form with marks"):
        PromptConfig(observation="som", dialect="pyautogui").builder()


def test_a_tree_reads_back_from_json() -> None:
    tree = desk(FRAME)
    assert Tree.from_json(tree.to_json()) == tree
    assert [element.node.name for element in elements(Tree.from_json(tree.to_json()))][:2] == ["Editor", ""]


def test_numbers_of_small_elements_hide_neither_them_nor_each_other() -> None:
    """Menus of 25 pixels on a large screen: a number is 18 high, so it goes beside its menu."""
    blank = Image.new("RGB", (1920, 1080), (240, 240, 240))
    menus = {n: (0.1 + 0.02 * n, 0.1, 0.02, 25 / 1080) for n in range(1, 6)}
    drawn = draw(blank, menus)
    for left, top, width, height in menus.values():
        x, y = round(left * 1920), round(top * 1080)
        inner = drawn.crop((x + 4, y + 4, x + round(width * 1920) - 4, y + round(height * 1080) - 4))
        assert inner.getcolors() == [(inner.width * inner.height, (240, 240, 240))]
    same = dict.fromkeys(range(1, 4), (0.1, 0.1, 0.2, 0.2))
    white = [
        sum(
            count
            for count, colour in draw(blank, {k: same[k] for k in range(1, n + 1)}).getcolors(99) or []
            if colour == (255, 255, 255)
        )
        for n in range(1, 4)
    ]
    assert white[0] < white[1] < white[2]  # each further number shows its own digits
