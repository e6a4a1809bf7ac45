"""What can be known from the words of a task alone, and from how its answers are drawn: nothing that helps."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.drawing import KINDS, WordPool
from eval.benchmarks.linux_desktop.solutions import commands
from eval.benchmarks.linux_desktop.template import Instance
from eval.benchmarks.linux_desktop.templates import web_rooms, web_shop
from eval.desktops.judging.home import REST
from tests.support.cases import every_case

DRAWN = 200
FEWEST = 40  # different instructions of a template
FIRST = {"train": 0, "test": 1_000_000}
INFEASIBLE = [name for name, template in TEMPLATES.items() if template.about.infeasible]
TWINS = {name: TEMPLATES[name].about.twin or "" for name in INFEASIBLE}


@cache
def drawn(name: str, split: str = "test") -> list[Instance]:
    return [instance(name, split, FIRST[split] + number) for number in range(DRAWN)]


@every_case("name", TEMPLATES)
def test_a_template_asks_for_many_things(name: str) -> None:
    assert len({task.instruction for task in drawn(name)}) >= FEWEST


@every_case("name", TEMPLATES)
def test_an_instruction_says_what_may_change_and_marks_exact_texts_by_quotes(name: str) -> None:
    for number in range(20):
        task = instance(name, "test", FIRST["test"] + number)
        assert task.instruction == f"{task.request} {REST}"
        assert " - " not in task.instruction
        assert task.request.endswith((".", '".')), task.request


PLURAL = "|".join(word for word in KINDS["thing"] if word.endswith("s"))
SINGULAR = "|".join(word for word in KINDS["thing"] if not word.endswith("s"))
UNGRAMMATICAL = re.compile(
    rf"\b(?:an?|one|each|every|much|this|that) (?:{PLURAL})\b|\b(?:many|few|these|those|an?|one) (?:{SINGULAR})\b"
    rf"|(?<!boxes of )\b(?:{SINGULAR}) (?:there )?(?:are|were|have)\b|(?<!price of )\b(?:{PLURAL}) (?:is|was|has)\b"
    r"|\b(?:a [aeio]|an [^aeiou\W])|\b(\w+) \1\b|  | [,;:]|\(s\)"
)


@every_case("name", TEMPLATES)
def test_an_instruction_is_grammatical_with_every_word_that_is_drawn(name: str) -> None:
    """Of things that are counted and of those that are not: no "many rice", no "a doors", no word twice."""
    for task in (*drawn(name), *drawn(name, "train")):
        assert UNGRAMMATICAL.search(task.request) is None, task.request


@every_case("name", INFEASIBLE)
def test_a_task_that_cannot_be_done_asks_what_its_twin_asks(name: str) -> None:
    """From the same draws, in the same words: only the start state tells them apart."""
    twin = TEMPLATES[TWINS[name]]
    assert not twin.about.infeasible
    for seed in range(50):
        pools = [WordPool("twins", "test", seed) for _ in range(2)]
        assert TEMPLATES[name].draw(pools[0]).instruction == twin.draw(pools[1]).instruction


def test_the_nearest_sentence_of_train_tells_nothing_about_a_twin() -> None:
    """As an agent without a screen would guess: by the word-wise nearest instruction of the split `train`."""
    pairs = [
        (name, infeasible) for twins in TWINS.items() for name, infeasible in zip(twins, (True, False), strict=True)
    ]
    known = [
        (set(instance(name, "train", number).request.split()), infeasible)
        for name, infeasible in pairs
        for number in range(8)
    ]
    right = Counter[bool]()
    for name, infeasible in pairs:
        for number in range(8):
            words = set(instance(name, "test", FIRST["test"] + number).request.split())
            _, guess = max(known, key=lambda one: len(one[0] & words) / len(one[0] | words))
            right[guess == infeasible] += 1
    share = right[True] / right.total()
    assert 0.35 < share < 0.65, share


def room_of(task: web_rooms.BookRoom) -> tuple[int, int]:
    fits = [room for room, seats in zip(task.rooms, web_rooms.SEATS, strict=True) if seats >= task.people]
    return fits.index(task.free), len(fits)


def price_of(task: web_shop.BestBuy) -> tuple[int, int]:
    order = sorted(task.some, key=lambda each: each.price)
    return order.index(task.best), len(order)


@pytest.mark.parametrize(("name", "place"), [("web-rooms-book", room_of), ("web-shop-compare", price_of)])
def test_no_place_in_an_order_is_right_more_than_twice_as_often_as_its_share(
    name: str, place: Callable[[object], tuple[int, int]]
) -> None:
    places = [place(instance(name, "test", FIRST["test"] + number)) for number in range(DRAWN)]
    for which in range(max(many for _, many in places)):
        share = sum(1 / many for _, many in places if which < many)
        assert sum(found == which for found, _ in places) <= 2 * share


LINES = (
    "mousepad-delete-line",
    "mousepad-change-number",
    "mousepad-move-line",
    "writer-heading",
    "writer-bold",
    "writer-move",
    "calc-change",
    "calc-remove-row",
)


@every_case("name", LINES)
def test_no_line_is_meant_more_than_twice_as_often_as_its_share(name: str) -> None:
    tasks = drawn(name)
    many = len(getattr(tasks[0], "lines", getattr(tasks[0], "things", ())))
    which = next(name for name in ("number", "row", "first") if hasattr(tasks[0], name))
    found = Counter(getattr(task, which) for task in tasks)
    assert max(found.values()) <= 2 * DRAWN / many


def hidden_places(task: Instance) -> Iterator[tuple[str, int, int]]:
    """What was drawn and is one of several that were drawn, where the instruction does not tell which: the names of
    both, its place among them, and how many there are."""
    told = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    for name, value in told.items():
        for several, values in told.items():
            one = isinstance(values, tuple) and values.count(value) == 1 < len(values)
            if one and not re.search(rf"\b{re.escape(str(value))}\b", task.instruction):
                yield f"{name} of {several}", values.index(value), len(values)


@every_case("name", TEMPLATES)
def test_no_place_among_several_is_drawn_more_than_twice_as_often_as_its_share(name: str) -> None:
    found = defaultdict[str, list[tuple[int, int]]](list)
    for task in drawn(name):
        for which, place, many in hidden_places(task):
            found[which].append((place, many))
    for which, places in found.items():
        if len(places) < DRAWN / 2:
            continue
        for place, times in Counter(place for place, _ in places).items():
            share = sum(1 / many for _, many in places if place < many)
            assert times <= 2 * share, f"{which}: {place}: {times} of {len(places)}"


def test_who_knows_the_answer_needs_the_screen_for_few_tasks_and_the_templates_say_so() -> None:
    """`commands` has a solution for all others; on real desktops the player `commands` shows that these solve them."""
    feasible = [name for name, template in TEMPLATES.items() if not template.about.infeasible]
    without = [name for name in feasible if commands(instance(name, "test", FIRST["test"]))]
    assert len(without) >= 82
    assert {name for name in feasible if TEMPLATES[name].about.screen} == set(feasible) - set(without)
