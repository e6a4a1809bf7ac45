"""What many records have in common is kept once, and no record says anything else for it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.decoding import Alike
from launcher.results.facts import load_facts
from launcher.results.read import DetailedResult
from launcher.results.rows import MAX_COMPARISONS, auto_compare
from launcher.spec.hashing import decode_job, encode_job, run_id
from launcher.spec.model import Output
from launcher.store.file import FileStore
from tests.support.fakerun import FakeAttempt, eval_files, fake_job, write_run

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 2.0, "", "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2), max_size=5))
def test_a_record_says_what_it_said(configs: list[dict[str, object]]) -> None:
    alike = Alike()
    for config in configs:
        body = encode_job(fake_job("one", config=config))
        assert encode_job(alike.share(decode_job(body))) == body


def test_what_is_equal_is_one_object(file_store: FileStore) -> None:
    runs = [write_run(file_store, fake_job("one", config={"n": n})) for n in range(3)]
    first, *others = load_facts(file_store, runs)
    assert [run_id(facts.job) for facts in (first, *others)] == runs
    for facts in others:
        assert facts.job.roles is first.job.roles
        assert facts.job.name is first.job.name
        assert facts.job.config is not first.job.config


@pytest.mark.parametrize("other", [1, True])
def test_what_only_compares_equal_stays(other: object) -> None:
    alike = Alike()
    one, two = (DetailedResult("b", "t", rules={"n": value}) for value in (1.0, other))
    alike.share(one)
    assert msgspec.json.encode(alike.share(two).rules) == msgspec.json.encode({"n": other})


def test_no_more_evaluations_are_compared_than_are_shown(
    file_store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 500 evaluations of one benchmark all were compared, for the four that a report has room for."""
    runs = [
        write_run(
            file_store,
            fake_job("e", config={"n": n}, outputs={"results": Output()}),
            [FakeAttempt(outputs={"results": eval_files([True, False, bool(n % 2)])})],
        )
        for n in range(4 * MAX_COMPARISONS)
    ]
    facts = load_facts(file_store, runs)
    read: list[str] = []
    get = FileStore.get

    def counted(store: FileStore, key: str) -> bytes:
        read.append(key)
        return get(store, key)

    monkeypatch.setattr(FileStore, "get", counted)
    assert len(auto_compare(file_store, facts).shown) == MAX_COMPARISONS
    assert sum(key.endswith("tasks.jsonl") for key in read) == 1 + MAX_COMPARISONS
