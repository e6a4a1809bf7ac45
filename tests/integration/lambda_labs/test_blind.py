"""A reaper that cannot read all it wants: what one run has in its store says nothing of the machines of the others, and
a machine that is past its deadline is billed whether or not its store answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec
import pytest

from launcher.backends.lambda_labs import names
from launcher.errors import Unreachable
from launcher.protocol.records import Event, Result
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs import leftovers, reap
from tests.integration.lambda_labs.conftest import Account
from tests.integration.lambda_labs.test_ending import claim, reaped

DAMAGED = {
    "empty": b"",
    "cut": b'{"placement": {"ki',
    "another type": b"[1, 2]",
    "bytes": b"\xff\xfe\x00",
    "deep": b"[" * 9000,
}


def living(account: Account) -> set[str]:
    """The runs that have a machine that is not about to end."""
    return {
        each["body"]["name"].removesuffix("-main-0")
        for each in account.cloud.bodies()
        if not each["status"].startswith("terminat")
    }


def past_the_deadline(account: Account) -> None:
    """Lambda's clock, and nobody else's."""
    account.cloud.admin("clock", add=7 * 86400)


@pytest.mark.two_bodies
@pytest.mark.parametrize("body", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("key", ["job", "claim", "beat", "handle"])
def test_a_damaged_record_of_one_run_stops_no_end_of_another(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, body: bytes
) -> None:
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    bad, done = account.job("bad"), account.job("done")
    account.submit(bad)
    account.submit(done)
    claim(account, run_id(bad))
    account.store.create(
        RunKeys(run_id(done)).result, msgspec.json.encode(Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n"))
    )
    keys = RunKeys(run_id(bad))
    damaged = {
        "job": keys.job,
        "claim": keys.attempt(1).claim("main-0"),
        "beat": keys.attempt(1).beat("main-0"),
        "handle": next(meta.key for meta in account.store.scan(f"{keys.events}0-{names.NAME}-")),
    }[key]
    account.store.put(damaged, body)
    rows = reaped(account, tmp_path)
    assert {row.run for row in rows if row.did == "stopped"} == {run_id(done)}, rows
    assert living(account) == {run_id(bad)}
    told = [row for row in rows if row.run == run_id(bad)]
    assert [row.did for row in told] == ["unreachable"], rows
    assert damaged.rpartition("/")[2] in told[0].detail
    past_the_deadline(account)
    rows = reaped(account, tmp_path)
    if key != "handle":  # its run can be read, so the store's clock counts, which has not jumped
        assert living(account) == set(), rows


class Gone:
    """A store that does not answer."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def ask(*arguments: object, **options: object) -> NoReturn:
            raise Unreachable(f"{self.url} does not answer")

        return ask


def reaped_without(account: Account, tmp_path: Path, url: str) -> list[leftovers.Reaped]:
    """What a reaper does while the store at `url` does not answer."""
    backend, gone = account.backend(), cast(Store, Gone(url))
    backend._stores[url] = gone
    own = gone if url == account.store.url else account.store
    return reap.reap(own, lambda job: backend, {"lambda": backend}, cache=Cache(tmp_path / "cache"))


def test_another_teams_store_that_cannot_be_read_stops_no_end_of_our_machines(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    url = (tmp_path / "other").as_uri()
    other, done = account.job("other", store=url), account.job("done")
    account.submit(other)
    account.store.delete([RunKeys(run_id(other)).job])  # it is theirs, and in no store of ours
    account.submit(done)
    account.store.create(
        RunKeys(run_id(done)).result, msgspec.json.encode(Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n"))
    )
    rows = reaped_without(account, tmp_path, url)
    assert {row.run for row in rows if row.did == "stopped"} == {run_id(done)}, rows
    assert living(account) == {run_id(other)}
    past_the_deadline(account)
    rows = reaped_without(account, tmp_path, url)
    assert living(account) == set()
    assert [row.did for row in rows if row.run == run_id(other)] == ["unreachable"]
    assert any("is ended, but what it cost is not recorded" in row.detail for row in rows), rows


def test_without_its_own_store_a_reaper_ends_what_is_past_its_deadline_and_nothing_else(
    account: Account, tmp_path: Path
) -> None:
    one = account.job("one")
    account.submit(one)
    with pytest.raises(Unreachable):
        reaped_without(account, tmp_path, account.store.url)
    assert living(account) == {run_id(one)}
    past_the_deadline(account)
    with pytest.raises(Unreachable):
        reaped_without(account, tmp_path, account.store.url)
    assert living(account) == set()


def test_what_a_machine_cost_is_recorded_when_the_store_is_back(account: Account, tmp_path: Path) -> None:
    """A store that does not answer for a moment, while a machine ends: the record comes after the end."""
    one = account.job("one")
    account.submit(one)
    backend = account.backend()
    seen = backend.look_up(run_id(one))
    assert seen is not None
    store = backend._store(account.store.url)
    refused: list[str] = []

    class Blinking(Gone):
        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name != "create" or refused:
                return cast(Callable[..., Any], getattr(store, name))
            refused.append(name)
            return super().__getattr__(name)

    backend._stores[account.store.url] = cast(Store, Blinking(account.store.url))
    backend.cancel([seen.handle])
    assert refused
    states = [
        msgspec.json.decode(account.store.get(meta.key))["fields"]["state"]
        for meta in account.store.scan(RunKeys(run_id(one)).events)
    ]
    assert states[-1] == "ending"
    assert living(account) == set()


def test_an_event_without_its_fields_names_no_machine(account: Account, tmp_path: Path) -> None:
    one = account.job("one")
    account.submit(one)
    event = Event(0, f"{names.NAME}-main-0", 7, "handle", "by hand", {"state": "launched"}, 0.0)
    account.store.create(RunKeys(run_id(one)).event(0, f"{names.NAME}-main-0", 7), msgspec.json.encode(event))
    assert account.backend().look_up(run_id(one)) is not None
    assert [row for row in reaped(account, tmp_path) if row.did == "stopped"] == []
