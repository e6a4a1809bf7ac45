"""The accessibility tree of a running desktop: right where programs are honest, bounded where they are not."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from eval.accessibility.tree import NAMESPACES, Tree, TreeNode, to_xml
from eval.desktop import DesktopGone
from eval.desktops.bus.atspi import socket_of
from eval.desktops.computer import LocalComputer
from eval.desktops.display.running_desktop import RunningDesktop
from eval.desktops.session import DesktopOptions, DesktopSession
from eval.desktops.trees import TreeLimits, read_tree
from tests.support.accessible import SECRET_TEXT
from tests.support.desktops import output, run
from tests.support.documented import ROOT
from tests.support.waiting import HANGS, until

pytestmark = pytest.mark.usefixtures("folder")
PATIENT = TreeLimits(program_s=200.0, all_s=200.0)
OPTIONS = DesktopOptions(screen=(1280, 720))


@contextmanager
def program(session: DesktopSession, kind: str, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A program of tests.support.accessible on the desktop's bus; its name there."""
    command = [sys.executable, "-m", "tests.support.accessible", str(socket_of(session.place)), kind, *more]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            word, name = process.stdout.readline().split()
            assert word == "ready"
            yield name, process
        finally:
            process.kill()


def named(tree: Tree, name: str) -> TreeNode:
    return next(node for node in tree.applications if node.name == name)


def size(node: TreeNode) -> int:
    return 1 + sum(size(child) for child in node.children)


def plain(node: TreeNode) -> dict[str, object]:
    """A node as tests/support/pyatspi_tree.py prints it."""
    out: dict[str, object] = {
        "role": node.role,
        "name": node.name,
        "states": sorted(node.states),
        "text": node.text,
        "value": None if node.value is None else list(node.value),
        "attributes": node.attributes,
        "children": [plain(child) for child in node.children],
    }
    if {"showing", "visible"} <= set(node.states):
        out["bounds"] = None if node.bounds is None else list(node.bounds)
    return out


def flat(nodes: list[dict[str, object]]) -> list[dict[str, object]]:
    """The nodes without their children, each before what lies below it."""
    out = []
    for node in nodes:
        below = node["children"]
        assert isinstance(below, list)
        out += [{**node, "children": len(below)}, *flat(below)]
    return out


def test_the_tree_is_the_one_that_pyatspi_reads() -> None:
    """Roles, names, states, places, texts, values and attributes of every object of two programs, hidden ones too."""

    async def go() -> tuple[list[dict[str, object]], list[dict[str, object]], str]:
        async with await DesktopSession.start(OPTIONS) as session:
            (session.place.home / "a.txt").write_text("one\ntwo\n")
            (session.place.home / "a.txt").chmod(0o644)
            await session.run(["mousepad", "a.txt"])
            await session.windows(1)
            await session.run(["galculator"])
            await session.windows(2)
            script = (ROOT / "tests/support/pyatspi_tree.py").read_text()
            (session.place.home / "read.py").write_text(script)
            (session.place.home / "read.py").chmod(0o644)
            # what a program shows changes for a while after its start: both read until they saw the same moment
            for _ in range(20):
                printed = await output(session, "/usr/bin/python3 read.py")
                theirs = json.loads(printed.splitlines()[-1])
                tree = await asyncio.to_thread(read_tree, session.place, PATIENT, whole=True)
                assert tree.cut == []
                ours = [plain(node) for node in tree.applications]
                if ours == theirs:
                    break
            return ours, theirs, to_xml(tree)

    ours, theirs, xml = run(go())
    assert [node["name"] for node in ours] == ["mousepad", "galculator"]
    for mine, other in zip(flat(ours), flat(theirs), strict=True):
        assert mine == other
    texts = [node.text for node in ElementTree.fromstring(xml).iter("text")]
    assert "one\ntwo\n" in texts
    frame = next(ElementTree.fromstring(xml).iter("frame"))
    assert frame.get(f"{{{NAMESPACES['st']}}}showing") == "true"
    assert frame.get(f"{{{NAMESPACES['cp']}}}screencoord", "").startswith("(")


SMALL = TreeLimits(nodes=300, depth=12, program_s=200.0, all_s=200.0)
BOUNDS = TreeLimits(nodes=300, depth=12, width=1024, program_s=5.0, all_s=100.0)


@pytest.mark.parametrize(
    ("kind", "told", "objects"),
    [
        ("circle", "", 5),
        ("endless", "more than 300 objects", 300),
        ("deep", "1 objects at depth 12", 12),
        ("wide", "frame with 2147483647 objects below it: 64 were read", 66),
        ("thousand", "thousand: ", None),
        ("huge", "", 2),
        ("wrong", "", 1),
        ("silent", "no whole answer within 5 s", 0),
        ("stuck", "no whole answer within 5 s", 2),
        ("slow", "no whole answer within 5 s", None),
        ("dies", "dies: it ended while it was read", None),
        ("flood", "", None),
    ],
)
def test_a_bad_program_costs_the_others_nothing(kind: str, told: str, objects: int | None) -> None:
    async def go() -> Tree:
        async with await DesktopSession.start(OPTIONS) as session:
            with program(session, kind) as (name, _), program(session, "good"):
                tree = await asyncio.to_thread(read_tree, session.place, BOUNDS)
                for line in tree.cut:
                    assert line.startswith((f"{kind}: ", f"{name}: "))
                return tree

    tree = run(go())
    assert size(named(tree, "good")) == 6
    assert told in "\n".join(tree.cut)
    assert bool(tree.cut) == (kind not in ("circle", "huge", "wrong"))
    if objects is not None:
        assert sum(size(node) for node in tree.applications) - 6 == objects


def test_the_text_of_a_password_field_is_never_asked_for() -> None:
    async def go() -> tuple[list[Tree], str]:
        async with await DesktopSession.start(OPTIONS) as session:
            with program(session, "good") as (_, process):
                trees = [await asyncio.to_thread(read_tree, session.place, whole=whole) for whole in (False, True)]
                process.kill()
                assert process.stdout is not None
                return trees, process.stdout.read()

    trees, asked = run(go())
    assert asked == ""
    for tree in trees:
        assert SECRET_TEXT not in to_xml(tree)
        texts = {node.role: node.text for node in tree.nodes()}
        assert texts["entry"] == "written"
        assert texts["password text"] is None


def test_of_a_sheet_the_visible_cells_are_read_with_their_texts() -> None:
    async def go() -> Tree:
        async with await DesktopSession.start(OPTIONS) as session:
            with program(session, "sheet"):
                return await asyncio.to_thread(read_tree, session.place, PATIENT)

    tree = run(go())
    cells = [node.text for node in tree.nodes() if node.role == "table cell"]
    assert cells == [f"cell {row * 16384 + column}" for row in range(5, 9) for column in range(2, 5)]
    assert tree.cut == ["sheet: push button with 2147483647 objects below it: 12 were read"]


def test_a_program_takes_no_object_of_another() -> None:
    async def go() -> Tree:
        async with await DesktopSession.start(OPTIONS) as session:
            with program(session, "good") as (name, _), program(session, "thief", name):
                return await asyncio.to_thread(read_tree, session.place)

    tree = run(go())
    assert size(named(tree, "good")) == 6
    assert size(named(tree, "thief")) == 3


def test_readers_of_many_threads_wait_for_each_other() -> None:
    async def go() -> list[int]:
        async with await DesktopSession.start(OPTIONS) as session:
            with program(session, "good"), program(session, "endless"):
                trees: list[Tree] = []
                threads = [
                    threading.Thread(target=lambda: trees.append(read_tree(session.place, SMALL))) for _ in range(6)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    await asyncio.to_thread(thread.join)
                return [len(list(tree.nodes())) for tree in trees]

    assert run(go()) == [306] * 6


def test_slow_trees_of_many_desktops_hold_no_thread_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """More desktops than asyncio has threads wait for programs that do not answer; judging a task needs a thread."""
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def slow(place: RunningDesktop, *, whole: bool) -> Tree:
        begun.release()
        go_on.wait()
        return Tree()

    monkeypatch.setattr("eval.desktops.trees.read_tree", slow)

    async def go() -> int:
        async with await DesktopSession.start(OPTIONS) as session:
            computers = [await LocalComputer.open(session) for _ in range(40)]
            reads = [asyncio.create_task(computer.accessibility()) for computer in computers]
            try:
                await asyncio.sleep(0)
                async with asyncio.timeout(HANGS):
                    return await asyncio.to_thread(lambda: sum(begun.acquire() for _ in computers))
            finally:
                go_on.set()
                await asyncio.gather(*reads)
                for computer in computers:
                    await computer.close()

    assert run(go()) == 40


def test_a_desktop_that_is_gone_is_infrastructure() -> None:
    async def go() -> None:
        session = await DesktopSession.start(OPTIONS)
        place = session.place
        try:
            assert await asyncio.to_thread(read_tree, place) == Tree()
        finally:
            await session.stop()
        until(
            lambda: not Path(place.environ["DBUS_SESSION_BUS_ADDRESS"].removeprefix("unix:path=")).exists(), "the end"
        )
        with pytest.raises(DesktopGone, match="no accessibility bus"):
            read_tree(place)

    run(go())
