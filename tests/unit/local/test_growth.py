"""What the queue of this machine reads grows with the number of its runs, not with the square: names listed, entries
opened, YAML parsed."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.docker.backend import DockerBackend
from launcher.backends.local import daemon, entry
from launcher.backends.local.backend import LocalBackend
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.model import ResolvedJob
from launcher.store import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs.cancel import PARALLEL, cancel_all
from launcher.verbs.status import read_lines
from launcher.verbs.submit import submit
from tests.support.jobs import group, job

GROWTH = 4.2  # four times as many runs


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many names were listed, how many texts parsed as YAML, and how often a job was hashed."""
    counts: Counter[str] = Counter()
    listdir, load, digest = os.listdir, entry.yaml.load, run_hash.__globals__["_digest"]

    def listing(path: Any = ".") -> list[str]:
        names = listdir(path)
        counts["names"] += len(names)
        return names

    def parsing(*args: Any, **options: Any) -> Any:
        counts["yaml"] += 1
        return load(*args, **options)

    def hashing(value: Any) -> Any:
        counts["hashes"] += isinstance(value, ResolvedJob)
        return digest(value)

    monkeypatch.setattr(os, "listdir", listing)
    monkeypatch.setattr(entry.yaml, "load", parsing)
    monkeypatch.setitem(run_hash.__globals__, "_digest", hashing)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(daemon, "ensure", lambda state, options: None)
    return counts


def always(backend: LocalBackend, one: ResolvedJob) -> LocalBackend:
    return backend


def measured(counts: Counter[str]) -> Counter[str]:
    now = Counter(counts)
    counts.clear()
    return now


@pytest.mark.parametrize(("kind", "few", "many"), [(LocalBackend, 1_000, 4_000), (DockerBackend, 100, 400)])
def test_the_backend_lists_its_queue_once_per_call(
    tmp_path: Path, counted: Counter[str], kind: type[LocalBackend], few: int, many: int
) -> None:
    seen: dict[int, dict[str, Counter[str]]] = {}
    for number in (few, many):
        backend = kind({"state": str(tmp_path / str(number))})
        backend.state.make()
        one = job("queued", backend=backend.name)
        text = entry.render([one]).documents[f"{run_id(one)}.yaml"]
        runs = [f"queued-{index:012x}" for index in range(number)]
        for run in runs:
            backend.state.entry(run).write_text(text)
        counted.clear()
        handles = backend.find([*runs, "queued-ffffffffffff"])
        assert list(handles) == runs
        assert {handle.fingerprint for handle in handles.values()} == {run_hash(one)}
        found = measured(counted)
        observed = [backend.look_up(run) for run in runs]
        assert all(each is not None and each.active for each in observed)
        looked = measured(counted)
        backend.cancel(list(handles.values()))
        assert backend.state.cancelled() == {*runs}
        seen[number] = {"find": found, "look_up": looked, "cancel": Counter(names=counted["names"] - number)}
    for call, counts in seen[few].items():
        more = seen[many][call]
        assert all(count <= GROWTH * counts[what] for what, count in more.items()), (call, counts, more)
    assert seen[many]["find"] == {"names": many}  # one listing, and no entry parsed


def test_a_verb_lists_the_queue_once(tmp_path: Path, counted: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    seen: dict[int, dict[str, Counter[str]]] = {}
    for number in (50, 200):
        store: Store = FileStore(tmp_path / f"store-{number}", sync=False)
        backend = LocalBackend({"state": str(tmp_path / str(number)), "gpus": 0})
        jobs = [job("queued", store=store.url, config={"index": index}) for index in range(number)]
        all_of_them = group(*jobs)
        runs = [run_id(one) for one in jobs]
        first = submit(all_of_them, store, backend)
        assert {one.state for one in first} == {"submitted"}
        counted.clear()
        again = submit(
            group(*[job("queued", store=store.url, config=dict(one.config or {})) for one in jobs]), store, backend
        )
        assert {one.state for one in again} == {"attached"}
        figures = {"submit": measured(counted)}
        with Cache(tmp_path / f"cache-{number}") as cache:
            lines, problems = read_lines(store, runs, cache=cache, backend_of=partial(always, backend))
        assert ({line.state for line in lines}, problems) == ({"queued"}, [])
        figures["status"] = measured(counted)
        assert {one.state for one in cancel_all(store, runs, backend)} == {"stopping"}
        figures["cancel"] = measured(counted)
        requests = [Path(store.url.removeprefix("file://")) / RunKeys(run).cancel for run in runs]
        assert len({each.stat().st_ino for each in requests}) <= PARALLEL  # each of these is made durable by itself
        seen[number] = figures
    for verb, few in seen[50].items():
        many = seen[200][verb]
        assert all(count <= GROWTH * few[what] for what, count in many.items()), (verb, few, many)
    assert (seen[200]["submit"]["names"], seen[200]["submit"]["yaml"]) == (200, 0)
    assert seen[200]["submit"]["hashes"] == 2 * 200  # of the job that is submitted, and of the one in the store


def test_an_entry_of_another_form_is_read_whole() -> None:
    one = job("queued")
    text = entry.render([one]).documents[f"{run_id(one)}.yaml"]
    assert entry.fingerprint(text) == run_hash(one)
    assert entry.fingerprint("# a comment\n" + text) == run_hash(one)
