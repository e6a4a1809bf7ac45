"""What the forms ask, and what the splits have of each other; no desktop is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eval.benchmarks.gtk_forms import environment as gtk_forms
from eval.benchmarks.gtk_forms.forms import HEIGHT, KINDS, WIDTH, GtkForm, form, written
from eval.config import ConfigError
from eval.environments.splits import Split

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def content(drawn: GtkForm) -> str:
    """What is asked and shown, colours and places left out."""
    return json.dumps([drawn.instruction, drawn.shown["elements"], drawn.shown["menus"], drawn.shown["pages"]])


@pytest.mark.parametrize("kind", KINDS)
def test_no_split_asks_what_another_asks(kind: str) -> None:
    seen = {split: {content(form(kind, split, seed)) for seed in range(300)} for split in SPLITS}
    assert all(len(some) > 100 for some in seen.values()), "a kind has too few forms"
    assert not seen["train"] & seen["test"]
    assert not seen["train"] & seen["validation"]
    assert not seen["validation"] & seen["test"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_form_is_the_same_from_the_same_seed_and_not_solved_at_the_start(kind: str) -> None:
    for seed in range(50):
        drawn = form(kind, "test", seed)
        assert drawn == form(kind, "test", seed)
        read = json.loads(written(drawn))
        assert read == drawn.shown
        assert drawn.goal != start(drawn)


def start(drawn: GtkForm) -> dict[str, Any]:
    """The state at the start, as the program makes it: from the elements alone."""
    elements = [*(drawn.shown["elements"] or ())]
    for page in drawn.shown["pages"] or ():
        elements += page["elements"]
    state: dict[str, Any] = {
        each["name"]: each.get("value", None if each["kind"] == "rows" else 0) for each in elements
    }
    for menu in drawn.shown["menus"] or ():
        state |= {f"{menu['name']}/{item}": 0 for item in menu["items"]}
    assert set(state) == set(drawn.goal)
    return state


def test_tasks_take_the_kinds_in_turn_and_their_seeds_from_the_split() -> None:
    drawn = gtk_forms.tasks(25, 1_000_000, {})
    assert [task.tags[0] for task in drawn] == [*KINDS, *KINDS, *list(KINDS)[:5]]
    assert [task.seed for task in drawn] == [1_000_000] * 10 + [1_000_001] * 10 + [1_000_002] * 5
    assert len({task.task_id for task in drawn}) == 25
    assert {task.tags[0] for task in gtk_forms.tasks(4, 0, {"split": "train", "kinds": ["menu", "page"]})} == {
        "menu",
        "page",
    }
    assert (WIDTH, HEIGHT) == (128, 96)


@pytest.mark.parametrize(
    ("options", "seed", "says"),
    [
        ({"kinds": ["buttons"]}, 1_000_000, "options.kinds: 'buttons' is unknown; allowed: press, tick"),
        ({"split": "train"}, 1_000_000, "the train split has the seeds 0 to 999999"),
        ({"kind": "press"}, 1_000_000, "kind"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], seed: int, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        gtk_forms.tasks(1, seed, options)
