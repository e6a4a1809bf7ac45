"""Names to runs; tests/integration/store/test_find.py asks a server."""

from __future__ import annotations

import json

import pytest

from launcher.errors import BadInput, NotFound, SlipwayError
from launcher.protocol.read import RunListings
from launcher.selection.naming import find as meaning
from launcher.selection.select import select
from launcher.store.base import Store
from launcher.store.layout import RunKeys, group

RUNS = ["eval-before-0123456789ab", "sft-login-aaaa11112222", "sft-login-aaaa33334444", "sft-login-bbbb11112222"]


@pytest.fixture
def store(request: pytest.FixtureRequest, kind: str) -> Store:
    store: Store = request.getfixturevalue(f"{kind}_store")
    for run in RUNS:
        store.put(RunKeys(run).job, b"{}")
        store.put(RunKeys(run).attempt(1).claim("main-0"), b"{}")
    record = {"id": "login-feed0000beef", "runs": [RUNS[2], RUNS[0]], "names": {}, "edges": {RUNS[2]: []}, "nonce": "n"}
    store.put(group("login-feed0000beef"), json.dumps(record).encode())
    return store


@pytest.fixture(params=["file"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def find(store: Store, name: str) -> list[str]:
    return list(meaning(store, name).runs)


def test_runs_groups_and_their_beginnings(store: Store) -> None:
    assert find(store, RUNS[1]) == [RUNS[1]]
    assert find(store, "login-feed0000beef") == [RUNS[2], RUNS[0]]
    assert find(store, "eval") == [RUNS[0]]
    assert find(store, "eval-before") == [RUNS[0]]
    assert find(store, "sft-login-b") == [RUNS[3]]
    assert find(store, "login") == [RUNS[2], RUNS[0]]
    assert select(store, ["eval", "login", RUNS[3]]).runs == (RUNS[0], RUNS[2], RUNS[3])


def test_a_run_without_its_job_yet_is_found_by_what_it_has(store: Store) -> None:
    store.put(RunKeys("gitops-000000000000").attempt(1).claim("main-0"), b"{}")
    assert find(store, "gitops-000000000000") == ["gitops-000000000000"]


def test_several_are_named(store: Store) -> None:
    with pytest.raises(BadInput, match=r"beginning of several: sft-login-aaaa11112222, sft-login-aaaa33334444$"):
        find(store, "sft-login-a")


def test_many_are_cut_short(store: Store) -> None:
    for number in range(12):
        store.put(RunKeys(f"many-{number:012d}").job, b"{}")
    with pytest.raises(BadInput, match=r"many-000000000007, \.\.\.$"):
        find(store, "man")


@pytest.mark.parametrize(
    ("name", "near"),
    [("sft-logn-aaaa11112222", RUNS[1]), ("eval-befor3", RUNS[0]), ("logins-feed0000beef", "login-feed")],
)
def test_none_but_near(store: Store, name: str, near: str) -> None:
    with pytest.raises(NotFound, match=f"no run, group or job `{name}`.*Did you mean.*{near}") as caught:
        find(store, name)
    assert caught.value.exit_code == 3


def test_nothing_like_it(store: Store) -> None:
    with pytest.raises(NotFound, match=r"no run, group or job `zzz`"):
        find(store, "zzz")


@pytest.mark.parametrize("name", ["", " a", "runs/x", "../x"])
def test_no_name_at_all(file_store: Store, name: str) -> None:
    with pytest.raises(BadInput):
        find(file_store, name)


def test_a_damaged_group_is_an_error_of_its_own(file_store: Store) -> None:
    file_store.put(group("g"), b"{")
    with pytest.raises(SlipwayError, match=r"groups/g\.json is not a valid record"):
        find(file_store, "g")


def test_neighbours_are_listed_together(store: Store) -> None:
    """As the monitor reads many runs. Between them is one that is not asked for, and names begin with others."""
    names = ["a", "a-b", "a0", "b", "c"]
    for name in names:
        for key in ("job.json", "attempts/1/claim/main-0.json"):
            store.put(RunKeys(name).prefix + key, b"")
    listings = RunListings(store, [*names[:3], "c", "gone"], [*names, "gone"])
    for name in ("a", "a-b", "a0", "c"):
        prefix = RunKeys(name).prefix
        assert sorted(listings.take(name) or ()) == [f"{prefix}attempts/1/claim/main-0.json", f"{prefix}job.json"]
    assert listings.take("gone") is None
