"""Job names to runs: the newest run of a name, every run of a matrix, and what is said about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from launcher.errors import BadInput, NotFound
from launcher.selection.select import Selection, select
from launcher.store.base import Meta, Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from launcher.store.layout import group as group_key
from tests.support.fakerun import fake_job, write_group, write_run

NOW = 1_790_000_000.0


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store", sync=False)


def at(store: Store, key: str, time: float) -> None:
    """Gives an object a store's time of its own."""
    os.utime(Path(urlsplit(store.url).path) / key, (time, time))


def job(store: Store, name: str, time: float, **changes: Any) -> str:
    run = write_run(store, fake_job(name, **changes))
    at(store, RunKeys(run).job, time)
    return run


def grouped(store: Store, runs: Sequence[str], names: Sequence[str], time: float) -> str:
    group = write_group(store, runs, dict(zip(runs, names, strict=True)))
    at(store, group_key(group), time)
    return group


def asked(store: Store, *names: str) -> tuple[Selection, list[str]]:
    said: list[str] = []
    return select(store, names, say=said.append), said


def test_a_job_name_means_its_newest_run_and_says_which(file_store: Store) -> None:
    """The README's own `launcher logs hello`, after one edit of the file."""
    times = [NOW + 30, NOW + 90, NOW + 60]  # the hashes order them otherwise
    runs = [job(file_store, "hello", time, config={"count": k}) for k, time in enumerate(times)]
    chosen, said = asked(file_store, "hello")
    assert chosen.runs == (runs[1],)
    assert len(said) == 1
    assert runs[1] in said[0]
    assert "newest of 3 runs" in said[0]


def test_runs_of_one_second_are_not_ordered_by_guessing(file_store: Store) -> None:
    """S3 tells seconds: which of two runs came last is unknown, and `cancel hello` must not end the wrong one."""
    old = job(file_store, "hello", NOW - 5, config={"count": 0})
    runs = [job(file_store, "hello", NOW, config={"count": k}) for k in (1, 2)]
    with pytest.raises(BadInput, match=f"`hello` means the newest run.*{min(runs)} and {max(runs)} came.*run's id"):
        asked(file_store, "hello")
    assert asked(file_store, old)[0].runs == (old,)


@pytest.mark.parametrize("grouping", ["groups", "applied", "a matrix no more"])
def test_two_matrices_of_one_second_are_not_ordered_by_guessing(file_store: Store, grouping: str) -> None:
    first = matrix(file_store, [0.1, 0.2], NOW, labels={"edit": "1"})
    if grouping == "a matrix no more":
        job(file_store, "train", NOW)
    else:
        second = matrix(file_store, [0.1, 0.2], NOW, labels={"edit": "2"})
    if grouping == "groups":
        for runs in (first, second):
            grouped(file_store, runs, ["train[lr=0.1]", "train[lr=0.2]"], NOW)
    with pytest.raises(BadInput, match="came into the store at the same time"):
        asked(file_store, "train")


def test_an_only_run_needs_no_word(file_store: Store) -> None:
    run = job(file_store, "hello", NOW)
    assert asked(file_store, "hello") == (Selection((run,)), [])
    assert asked(file_store, run) == (Selection((run,)), [])


def test_an_exact_name_wins_over_beginnings(file_store: Store) -> None:
    short = job(file_store, "sft", NOW)
    job(file_store, "sft-login", NOW + 5)
    job(file_store, "sft-0123456789ab-x", NOW + 5)
    assert asked(file_store, "sft")[0].runs == (short,)
    with pytest.raises(BadInput, match=r"beginning of several: sft-"):
        asked(file_store, "sf")


def matrix(store: Store, values: Sequence[float], time: float, **changes: Any) -> list[str]:
    return [job(store, "train", time, config={"lr": v}, variant={"config.lr": v}, **changes) for v in values]


def test_a_matrix_name_means_all_of_its_runs(file_store: Store) -> None:
    old = matrix(file_store, [0.1, 0.2, 0.3], NOW, labels={"edit": "1"})
    grouped(file_store, old, ["train[lr=0.1]", "train[lr=0.2]", "train[lr=0.3]"], NOW)
    other = job(file_store, "eval", NOW + 50)
    new = matrix(file_store, [0.1, 0.2], NOW + 50, labels={"edit": "2"})
    group = grouped(file_store, [*new, other], ["train[lr=0.1]", "train[lr=0.2]", "eval"], NOW + 51)
    chosen, said = asked(file_store, "train")
    assert chosen.runs == tuple(new)
    assert [chosen.names[run] for run in new] == ["train[lr=0.1]", "train[lr=0.2]"]
    assert len(said) == 1
    assert group in said[0]
    assert "2 runs" in said[0]
    assert asked(file_store, "train[lr=0.2]")[0].runs == (new[1],)
    with pytest.raises(NotFound, match=r"train has no `lr=0\.3`; it has lr=0\.1, lr=0\.2"):
        asked(file_store, "train[lr=0.3]")


def test_a_matrix_without_a_group_has_the_newest_run_of_each_combination(file_store: Store) -> None:
    """Applied from Git, nobody wrote a group."""
    old = matrix(file_store, [0.1, 0.2, 0.3], NOW, labels={"edit": "1"})
    new = matrix(file_store, [0.1, 0.2], NOW + 50, labels={"edit": "2"})
    chosen, said = asked(file_store, "train")
    assert chosen.runs == (*new, old[2])
    assert len(said) == 1


def test_a_job_that_stopped_being_a_matrix_is_one_run(file_store: Store) -> None:
    old = matrix(file_store, [0.1, 0.2], NOW)
    grouped(file_store, old, ["train[lr=0.1]", "train[lr=0.2]"], NOW)
    run = job(file_store, "train", NOW + 9)
    assert asked(file_store, "train")[0].runs == (run,)


def test_a_matrix_within_a_group(file_store: Store) -> None:
    runs = matrix(file_store, [0.1, 0.2], NOW)
    other = job(file_store, "eval", NOW)
    group = grouped(file_store, [*runs, other], ["train[lr=0.1]", "train[lr=0.2]", "eval"], NOW)
    assert asked(file_store, f"{group}/train")[0].runs == tuple(runs)
    assert asked(file_store, f"{group}/train[lr=0.1]")[0].runs == (runs[0],)
    assert asked(file_store, f"{group}/eval")[0].runs == (other,)
    assert asked(file_store, group)[0].runs == (*runs, other)


def test_a_name_is_found_among_many_runs_in_few_requests(file_store: Store) -> None:
    for number in range(120):
        file_store.put(RunKeys(f"other-{number:012x}").job, b"{}")
    runs = [job(file_store, "many", NOW + k, config={"k": k}) for k in range(40)]
    counting = Counting(file_store)
    chosen, _ = asked(counting, "many")  # type: ignore[arg-type]
    assert chosen.runs == (runs[-1],)
    # a time for each run of that name, the newest one's job, and a handful to find them: nothing for the others
    assert counting.count <= len(runs) + 16


class Counting:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        inner: Callable[..., Any] = getattr(self._store, name)
        if not callable(inner):
            return inner

        def call(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            found = inner(*arguments, **options)
            return iter(list(found)) if name == "scan" else found

        return call


def test_times_are_the_stores_own(file_store: Store) -> None:
    """Of two runs the one whose job.json the store took later, whatever the clock of who asks says."""
    runs = [job(file_store, "hello", NOW * 2 + k, config={"k": k}) for k in range(2)]  # the far future
    assert asked(file_store, "hello")[0].runs == (runs[1],)
    meta = file_store.head(RunKeys(runs[1]).job)
    assert isinstance(meta, Meta)
