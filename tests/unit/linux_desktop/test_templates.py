"""What every template of linux-desktop promises, without a desktop: many instances of each."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from urllib.parse import urlencode

import pytest

from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop import steps
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.drawing import KINDS, SPLITS, WordPool
from eval.benchmarks.linux_desktop.environment import InstanceScene, desktop, hacks, tasks
from eval.benchmarks.linux_desktop.office import documents
from eval.benchmarks.linux_desktop.template import PROGRAMS, Instance, judged
from eval.benchmarks.linux_desktop.templates import web_pages
from eval.benchmarks.linux_desktop.templates.web import WebTask
from eval.benchmarks.linux_desktop.webapps.app import WebApp
from eval.benchmarks.linux_desktop.webapps.serving import answer, made
from eval.config import ConfigError
from eval.desktop import BrokenByAgent, Score
from eval.desktops.judging.hacked import visible_files
from tests.support.cases import every_case
from tests.support.folder_stage import FolderStage

SEEDS = 100
HACKED = 5
FEASIBLE = [name for name, template in TEMPLATES.items() if not template.about.infeasible]
WITH_TARGETS = [name for name in FEASIBLE if instance(name, "test", 0).targets()]
SITES = [name for name in FEASIBLE if issubclass(TEMPLATES[name], WebTask)]
DONE = [Action(ActionType.DONE)]


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No window shows anything, and nothing is being saved, so a document is looked at once."""

    async def shown(*_: object) -> None:
        pass

    async def written(stage: FolderStage, path: str, content: bytes) -> None:
        """What a program of the start state would write."""
        await stage.write_file(path, content)

    monkeypatch.setattr(steps, "shown", shown)
    monkeypatch.setattr(steps, "written", written)
    monkeypatch.setattr(documents, "SAVING", 1)
    monkeypatch.setattr(documents, "SAVING_S", 0.0)
    monkeypatch.setattr(web_pages, "SAVING", 1)
    monkeypatch.setattr(web_pages, "SAVING_S", 0.0)


@pytest.fixture
def stage(tmp_path: Path) -> FolderStage:
    home = tmp_path / "home"
    home.mkdir()
    return FolderStage(home)


async def at_start(template: Instance, stage: FolderStage) -> dict[str, bytes]:
    """The start state on an empty home, and its files."""
    await stage.begin(InstanceScene(template))
    return await visible_files(stage)


async def score(stage: FolderStage, done: list[Action] = DONE) -> Score | None:
    """None: what is judged is broken, which is 0."""
    try:
        return await stage.judge(done)
    except BrokenByAgent:
        return None


@every_case("name", TEMPLATES)
def test_the_same_seed_draws_the_same_and_another_seed_another(name: str) -> None:
    drawn = [instance(name, "test", seed) for seed in range(SEEDS)]
    assert drawn == [instance(name, "test", seed) for seed in range(SEEDS)]
    assert len({repr(one.asked()) for one in drawn}) > SEEDS // 2


@pytest.mark.ci
@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(3 * SEEDS, marks=pytest.mark.nightly)])
@every_case("name", TEMPLATES)
def test_no_split_asks_what_another_asks(name: str, seeds: int) -> None:
    """By the words of the task and by all that was drawn, not by the seed."""
    told = {split: [instance(name, split, seed) for seed in range(seeds)] for split in SPLITS}
    for one, other in combinations(SPLITS, 2):
        assert not {each.instruction for each in told[one]} & {each.instruction for each in told[other]}
        assert not {repr(each.asked()) for each in told[one]} & {repr(each.asked()) for each in told[other]}


@pytest.mark.parametrize("kind", KINDS)
def test_no_word_is_in_two_splits(kind: str) -> None:
    words = [set(KINDS[kind][third :: len(SPLITS)]) for third in range(len(SPLITS))]
    assert sum(len(each) for each in words) == len(KINDS[kind]) == len(set.union(*words))
    assert {WordPool("t", split, 0).number(0, 99) % 3 for split in SPLITS} == {0, 1, 2}


@every_case("name", TEMPLATES)
def test_what_is_known_of_it_holds(name: str) -> None:
    about = TEMPLATES[name].about
    assert about.name == name
    assert about.programs
    assert set(about.programs) <= set(PROGRAMS)
    assert 0 < about.steps < about.max_steps


def test_a_tenth_is_infeasible() -> None:
    assert len(TEMPLATES) - len(FEASIBLE) >= 0.1 * len(TEMPLATES)


@every_case("name", FEASIBLE)
def test_the_start_state_is_worth_nothing(name: str, stage: FolderStage) -> None:
    async def go() -> None:
        for seed in range(20):
            template = instance(name, "test", seed)
            await at_start(template, stage)
            found = await score(stage)
            assert found is None or (found.value, found.success) == (0.0, False), f"seed {seed}: {found}"
            gave_up = await score(stage, [Action(ActionType.FAIL)])
            assert gave_up is None or (gave_up.value, gave_up.success) == (0.0, False)

    asyncio.run(go())


@every_case("name", WITH_TARGETS)
def test_the_right_files_are_the_solution(name: str, stage: FolderStage) -> None:
    """However they came there: the judge asks for the state."""

    async def go() -> None:
        for seed in range(20):
            template = instance(name, "test", seed)
            await at_start(template, stage)
            for path, content in template.targets().items():
                await stage.write_file(path, content)
            for path in template.removed():
                (stage.home / path).unlink()
            found = await score(stage)
            assert found is not None, f"seed {seed}"
            assert (found.value, found.success) == (1.0, True), f"seed {seed}: {found}"

    asyncio.run(go())


@pytest.mark.ci
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, HACKED))])
@every_case("name", FEASIBLE)
def test_no_hack_is_worth_anything(name: str, seed: int, stage: FolderStage) -> None:
    """Each on a fresh start state, and all of them one after the other."""

    async def go() -> None:
        template = instance(name, "test", seed)
        start = await at_start(template, stage)
        for fresh in (True, False):
            for hack in hacks(template, start):
                if fresh:
                    await at_start(template, stage)
                for path, content in hack.files.items():
                    await stage.write_file(path, content)
                found = await score(stage)
                assert found is None or (found.value, found.success) == (0.0, False), f"{hack.name}: {found}"

    asyncio.run(go())


@every_case("name", WITH_TARGETS)
def test_of_hacks_on_one_desktop_all_candidates_come_before_other_new_files(name: str, stage: FolderStage) -> None:
    """After the first file that is too many every judgement is 0, whatever else a hack does."""
    template = instance(name, "test", 1_000_000)
    start = asyncio.run(at_start(template, stage))
    found = list(hacks(template, start))
    new = [hack.name for hack in found if {*hack.files} - {*template.targets()}]
    assert new[0] == "all candidates at once"


def folder(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    """To a file with the right content."""
    path.symlink_to(path.with_name("right"))


def gone(path: Path) -> None:
    pass


@pytest.mark.parametrize("trap", [folder, fifo, link, gone])
@every_case("name", WITH_TARGETS)
def test_a_trap_in_the_place_of_the_work_is_worth_nothing(name: str, trap: object, stage: FolderStage) -> None:
    async def go() -> None:
        template = instance(name, "test", 0)
        await at_start(template, stage)
        for path, content in template.targets().items():
            file = stage.home / path
            await stage.write_file(str(Path(path).with_name("right")), content)
            file.unlink(missing_ok=True)
            assert callable(trap)
            trap(file)
        found = await score(stage)
        assert found is None or (found.value, found.success) == (0.0, False)

    asyncio.run(go())


def requests_of(text: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Each link and each form of a page: method, address, fields as they are filled at the start."""
    page = Forms()
    page.feed(text)
    yield from (("GET", where, {}) for where in page.links)
    yield from page.forms


class Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[tuple[str, str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.append(given["href"])
        elif tag == "form":
            self.forms.append((given["method"].upper(), given["action"], {}))
        elif tag in ("input", "textarea", "select") and self.forms and given.get("type") != "file":
            ticked = given.get("type") not in ("checkbox", "radio") or "checked" in given
            self.forms[-1][2].update({given["name"]: given.get("value", "")} if ticked else {})


def crawled(app: WebApp, text: str | None) -> int:
    """Follows every link, and sends every form: as it is, or with the text in all its empty fields. Gives how many."""
    seen: set[tuple[str, str]] = set()
    waiting: list[tuple[str, str, dict[str, str]]] = [("GET", "/", {})]
    while waiting and len(seen) < 300:
        method, where, fields = waiting.pop()
        if (method, where + str(sorted(fields))) in seen:
            continue
        seen.add((method, where + str(sorted(fields))))
        filled = urlencode({name: value or text or "" for name, value in fields.items()})
        target = f"{where}?{filled}" if method == "GET" and fields else where
        reply = answer(app, method, target, filled.encode() if method == "POST" else b"")
        assert reply.status in (200, 303, 404), where
        waiting += requests_of(reply.body.decode())
        if "Location" in reply.headers:
            waiting.append(("GET", reply.headers["Location"], {}))
    return len(seen)


@every_case("name", SITES)
def test_no_form_that_is_sent_without_the_right_words_is_worth_anything(name: str, stage: FolderStage) -> None:
    """What a hacker does to a web application who reads no page: all links, all forms, the goal in every field."""

    async def go() -> None:
        for seed in range(HACKED):
            template = instance(name, "test", seed)
            await at_start(template, stage)
            app = stage.app
            assert app
            assert crawled(app, None) > 1
            assert crawled(app, template.instruction) > 1
            found = await score(stage)
            assert found is None or (found.value, found.success) == (0.0, False), f"{seed}: {found}"

    asyncio.run(go())


def test_a_web_application_takes_what_is_broken_and_goes_on() -> None:
    """Requests that no form sends."""
    app = made("shop", {"articles": [], "cart": {}})
    for method, target in (("GET", "/article?id=9"), ("POST", "/cart/add"), ("POST", "/nothing"), ("GET", "/%zz?=&&")):
        assert answer(app, method, target, b"\xff\x00=").status in (200, 404), target
    assert answer(app, "GET", "/?" + "&".join(f"a{number}=" for number in range(1000))).status == 404
    assert app.state() == {"cart": {}, "orders": []}


@every_case("name", [name for name in TEMPLATES if name not in FEASIBLE])
def test_what_cannot_be_done_is_solved_by_saying_so(name: str, stage: FolderStage) -> None:
    async def go() -> None:
        template = instance(name, "test", 0)
        start = await at_start(template, stage)
        said = await score(stage, [Action(ActionType.FAIL)])
        assert said is not None
        assert (said.value, said.success) == (1.0, True)
        assert (await score(stage)) == Score(0.0, False, {"gave_up": False})
        for path in start:
            await stage.write_file(path, b"changed")
            changed = await score(stage, [Action(ActionType.FAIL)])
            assert changed is not None
            assert (changed.value, changed.success) == (0.0, False), path

    asyncio.run(go())


def test_shares_must_add_up() -> None:
    with pytest.raises(ValueError, match="add up"):
        judged(("one", 0.5, True), ("two", 0.4, True))
    assert judged(("one", 0.5, True), ("two", 0.5, False)).value == 0.5
    assert judged(("one", 1.0, True), spoiled={"a file": True}).value == 0.0


def test_tasks_are_one_of_each_template_then_the_next_seed() -> None:
    made = tasks(len(TEMPLATES) + 1, 1_000_000, {})
    assert [task.task_id for task in made[:-1]] == list(TEMPLATES)
    assert (made[-1].task_id, made[-1].seed) == (made[0].task_id, 1_000_001)
    assert {task.cluster for task in made} == set(TEMPLATES)
    json.dumps([task.options for task in made])


def test_templates_are_chosen_by_name_or_by_program() -> None:
    made = tasks(3, 1_000_000, {"templates": ["mousepad", "galculator-compute"]})
    assert all(task.task_id.startswith("mousepad") for task in made)
    with pytest.raises(ConfigError, match=r"options\.templates: 'emacs' is unknown; allowed: mousepad-append, "):
        tasks(1, 1_000_000, {"templates": ["emacs"]})
    with pytest.raises(ConfigError, match="seeds 2000000 to 2999999"):
        tasks(1, 0, {"split": "validation"})
    with pytest.raises(ConfigError, match=r"options\.role: desktop: no \$SLIPWAY_ENDPOINT_DESKTOP"):
        desktop({"video": "v", "role": "desktop"})
