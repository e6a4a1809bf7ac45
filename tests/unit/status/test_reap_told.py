"""What a reaper has done is told, whatever fails after it: in its table, in its numbers, and by its exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.backends.lambda_labs import names, renewal
from launcher.cli import main
from launcher.errors import Unreachable
from launcher.spec.hashing import encode_job, run_id
from launcher.spec.model import Limits, ResolvedJob, Role
from launcher.store import layout, open_store
from launcher.store.layout import RunKeys
from launcher.verbs import leftovers, notify, reap

DONE = ("job-1", "new credentials", True)
DELETED = ("stopped", "disk old deleted")


class Billed:
    """A backend that does one thing, and then cannot go on."""

    def renew(self, *, plan: bool) -> Iterator[tuple[str, str, bool]]:
        yield DONE
        raise Unreachable("the next store is silent")

    def end_unused(self, store: object, *, plan: bool) -> Iterator[tuple[str, str]]:
        yield DELETED
        raise Unreachable("the list was cut off")


def test_what_was_done_before_a_failure_is_told() -> None:
    backend: Any = Billed()
    assert [(row.run, row.did, row.detail) for row in leftovers.renew("lambda", backend, False)] == [
        ("job-1", "renewed", "new credentials"),
        ("lambda", "unreachable", "the next store is silent"),
    ]
    store: Any = None
    assert [(row.run, row.did, row.detail) for row in leftovers.end_unused(store, "azureml", backend, False)] == [
        ("azureml", "stopped", "disk old deleted"),
        ("azureml", "unreachable", "the list was cut off"),
    ]


def test_a_store_that_falls_silent_while_people_are_told_hides_nothing_that_was_reaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(f"file://{tmp_path / 'store'}")
    store.create("objects/notes/x", b"{}")
    (tmp_path / "slipway.yaml").write_text(f"store: {store.url}\nnotify: {{me: {{command: [touch, told]}}}}\n")
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLIPWAY_TEXTFILES", str(numbers))
    monkeypatch.setattr(reap, "reap", lambda *_, **__: [leftovers.Reaped("job-1", "stopped", "past its deadline")])

    def silent(*_: object, **__: object) -> None:
        (text,) = (path.read_text() for path in numbers.iterdir())
        assert 'did="stopped"' in text, "the numbers wait for no receiver of notices"
        raise Unreachable("the store does not answer")

    monkeypatch.setattr(notify.Notifier, "once", silent)
    assert main(["reap", "-o", "json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert [(one["run"], one["did"]) for one in told] == [("job-1", "stopped"), ("notify", "unreachable")]
    assert told[1]["detail"] == "the store does not answer"
    (text,) = (path.read_text() for path in numbers.iterdir())
    assert 'did="stopped"' in text
    assert 'did="unreachable"' in text


def test_a_store_that_takes_no_mark_keeps_no_other_from_its_own(tmp_path: Path) -> None:
    """And a machine with a strange tag keeps no other from new credentials: the mark is what submit looks for."""
    stores = {f"s3://{name}": open_store(f"file://{tmp_path / name}") for name in "abc"}

    class Refuses:
        url = "s3://a"

        def put(self, key: str, body: bytes) -> None:
            raise Unreachable("it is read-only")

    opened: dict[str, Any] = {**stores, "s3://a": Refuses()}
    job = ResolvedJob(
        name="long",
        roles={"main": Role(command=("x",), leader=True)},
        store="s3://b",
        backend="lambda",
        options={"renew": "arn:aws:ssm:us-east-1:123456789012:parameter/slipway/access"},
        limits=Limits(deadline=60 * 3600.0),
    )
    run = run_id(job)
    stores["s3://b"].create(RunKeys(run).job, encode_job(job))
    tags = {names.STORE: "s3://b", names.LAUNCHED: "yesterday"}
    machines: Any = {run: [SimpleNamespace(tag=tags.__getitem__)]}
    said = list(renewal.renew_all(machines, opened.__getitem__, "account", "s3://a", plan=False))
    assert said == [
        (
            run,
            "its machine's tag slipway:launched is not a time: could not convert string to float: 'yesterday'",
            False,
        ),
        ("s3://a", "the reaper leaves no mark there: it is read-only", False),
    ]
    assert stores["s3://b"].head(layout.reaper(names.NAME, "account")) is not None
