"""What the protocol costs: requests of a start, a beat and an end, as docs/explanation/protocol.md states them."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from launcher.protocol.records import Exit
from launcher.reasons import Reason
from launcher.runtime.member.member import Member, Started
from launcher.spec.hashing import encode_job
from launcher.store.file import FileStore
from tests.contract.protocol.drive import LIVING, job, placement
from tests.support.crashing import CrashingStore

DOC = Path(__file__).parents[3] / "docs" / "explanation" / "protocol.md"
CLASSES = {"create": "PUT", "put": "PUT", "folders": "LIST", "scan": "LIST", "read": "GET", "head": "GET", "get": "GET"}
LIST_PRICE = {"PUT": 0.005 / 1000, "LIST": 0.005 / 1000, "GET": 0.0004 / 1000}  # USD, S3 in us-east-1


def classes(operations: list[tuple[str, str]]) -> Counter[str]:
    return Counter(CLASSES[method] for method, _ in operations)


def said(row: str) -> Counter[str]:
    """A row of the table of requests in the docs: | what | PUT | LIST | GET |."""
    found = re.search(rf"^\| {re.escape(row)} \| (\d+) \| (\d+) \| (\d+) \|", DOC.read_text(), re.MULTILINE)
    assert found, f"no row `{row}`"
    return +Counter(dict(zip(("PUT", "LIST", "GET"), map(int, found.groups()), strict=True)))


def test_one_rank(tmp_path: Path) -> None:
    inner = FileStore(tmp_path / "store", sync=False)
    store, made = CrashingStore(inner), job(inner)
    member = Member(store, made, "main-0", placement())
    inner.create(member.keys.job, encode_job(made))  # as submit did
    begun = member.start()
    assert isinstance(begun, Started)
    assert member._beating is not None
    member._beating.finish()  # what follows is counted without beats
    start = store.operations.copy()
    claim = next(number for number, op in enumerate(start) if "/claim/" in op[1] and op[0] == "create")
    assert classes(start[: claim + 1]) == said("start, nothing there yet")
    store.operations.clear()
    assert member.before_command() is None
    assert classes(store.operations) == said("before the command")
    store.operations.clear()
    assert member.end(Exit("main-0", Reason.SUCCEEDED), outputs_done=True, data={}) == 0
    assert classes(store.operations) == said("end, succeeded")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_beat_reads_at_most_five_known_keys_and_never_lists(tmp_path: Path, ranks: int) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    made = job(store, ranks=ranks)
    counted = {name: CrashingStore(store) for name in made.members()}
    members = {}
    for name in made.members():
        at = placement()
        LIVING.add(at.pid)
        members[name] = Member(counted[name], made, name, at)
        assert isinstance(members[name].start(), Started)
    threads = [threading.Thread(target=member.before_command) for member in members.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    for name, member in members.items():
        seen = len(counted[name].operations)
        while sum(op[0] == "put" for op in counted[name].operations[seen:]) < 4:
            time.sleep(0.01)
        assert member._beating is not None
        member._beating.finish()
        rounds: list[list[tuple[str, str]]] = []
        for op in counted[name].operations[seen:]:
            if op[0] == "put":
                rounds.append([])
            if rounds:
                rounds[-1].append(op)
        for round_ in rounds[1:-1]:
            assert classes(round_) == said("a beat, one rank" if ranks == 1 else "a beat, several ranks")
            assert classes(round_)["GET"] <= 5
            assert classes(round_)["LIST"] == 0


def test_the_price_of_a_day() -> None:
    for row in ("a beat, one rank", "a beat, several ranks"):
        day = sum(count * LIST_PRICE[kind] for kind, count in said(row).items()) * 86400 / 15
        assert f"| {row} |" in DOC.read_text()
        assert re.search(rf"^\| {row} \|.*\| {day:.3f} USD \|", DOC.read_text(), re.MULTILINE), f"{row}: {day:.3f}"
