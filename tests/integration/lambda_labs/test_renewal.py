"""Credentials that are renewed while a run runs: a reaper, moto's STS, Systems Manager and S3, and a machine of the
stand-in with the real runtime."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace

from launcher.backends.lambda_labs import access, renewal
from launcher.errors import BadInput
from launcher.spec.hashing import encode_job, run_id
from launcher.spec.model import Limits, ResolvedJob
from launcher.store import layout, open_store, renewed
from launcher.store.layout import RunKeys
from launcher.store.renewed import EXPIRES, ISSUED, RENEW, RenewedAccess
from launcher.userdata.cache import Cache
from launcher.verbs.leftovers import Reaped
from launcher.verbs.reap import reap
from launcher.verbs.submit import submit
from tests.integration.lambda_labs.conftest import Account
from tests.integration.lambda_labs.test_access import LONG_LIVED
from tests.integration.lambda_labs.test_access import account as account
from tests.integration.lambda_labs.test_access import aws as aws
from tests.support.jobs import group
from tests.support.waiting import until

PLACE = "arn:aws:ssm:us-east-1:123456789012:parameter/slipway/access"
WAITS = "import os, time\nwhile not os.path.exists({go!r}): time.sleep(0.05)\nprint('went on', flush=True)\n"


def long_job(account: Account, go: Path) -> ResolvedJob:
    """A job whose machine may live for 61 hours, until there is a file `go`."""
    one = account.job("long", {"renew": PLACE}, limits=Limits(deadline=60 * 3600.0, grace=2.0))
    command = ("python", "-c", WAITS.format(go=str(go)))
    return replace(one, roles={role: replace(each, command=command) for role, each in one.roles.items()})


def look(account: Account, tmp_path: Path, *, plan: bool = False) -> list[Reaped]:
    """What a reaper does."""
    backend = account.backend()
    with Cache(tmp_path / "cache") as cache:
        return reap(account.store, lambda job: backend, {"lambda": backend}, cache=cache, plan=plan)


def parameter(run: str) -> dict[str, str] | None:
    try:
        answer = boto3.client("ssm").get_parameter(Name=f"/slipway/access/{run}", WithDecryption=True)
    except ClientError:
        return None
    assert answer["Parameter"]["Type"] == "SecureString"
    found: dict[str, str] = json.loads(answer["Parameter"]["Value"])
    return found


def test_a_long_run_is_taken_only_where_a_reaper_looks(account: Account, tmp_path: Path) -> None:
    one = long_job(account, tmp_path / "go")
    with pytest.raises(BadInput, match=r"at most 36 h, and no reaper has ever looked: run `launcher reap --backend"):
        account.backend().check([one])
    look(account, tmp_path, plan=True)
    with pytest.raises(BadInput, match="no reaper has ever looked"):  # it only looked at what it would do
        account.backend().check([one])
    look(account, tmp_path)
    account.backend().check([one])
    key = layout.reaper("lambda", "default")
    assert account.store.get(key) == b"{}"


def test_a_machine_gets_new_credentials_and_its_command_never_sees_them(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, go = long_job(account, tmp_path / "go"), tmp_path / "go"
    run = run_id(one)
    look(account, tmp_path)
    submit(group(one), account.store, account.backend())
    consoles = lambda: [path.read_text() for path in (account.path / "cloud").glob("*/console")]  # noqa: E731
    until(lambda: account.store.head(RunKeys(run).attempt(1).beat("main-0")), consoles)
    assert [row for row in look(account, tmp_path) if row.did == "renewed"] == []  # they are new
    assert parameter(run) is None
    monkeypatch.setattr(renewal, "SHARE", 1e12)  # as if a third of their life were over
    assert [row.did for row in look(account, tmp_path, plan=True) if row.run == run] == ["renewed"]
    assert parameter(run) is None
    assert [(row.run, row.did) for row in look(account, tmp_path)] == [(run, "renewed")]
    found = parameter(run)
    assert found is not None
    assert not set(LONG_LIVED.values()) & set(found.values())
    assert float(found[EXPIRES]) - float(found[ISSUED]) == access.SESSION
    # the program that the machine's loop calls every ten minutes, as the loop calls it
    machine = next((account.path / "cloud").glob("*/root"))
    private = machine / "access/private.json"
    before = json.loads(private.read_text())
    variables = dict(line.split("=", 1) for line in (machine / "env").read_text().splitlines() if "=" in line)
    assert variables[RENEW] == f"{PLACE}/{run}"
    older = {**before, "AWS_SESSION_TOKEN": "older", EXPIRES: str(float(found[EXPIRES]) - 100)}  # moto has one token
    private.write_text(json.dumps(older))
    environ = {"SLIPWAY_PRIVATE": str(private), RENEW: variables[RENEW], "PATH": "/bin", "PYTHONPATH": str(Path.cwd())}
    for _ in range(2):  # the second finds nothing newer
        subprocess.run([sys.executable, "-m", "launcher.runtime.renewing"], env=environ, check=True)
        after = json.loads(private.read_text())
        assert after == {**before, **found}
    go.touch()
    until(lambda: account.store.head(RunKeys(run).result), consoles)
    backend = account.backend()
    seen = backend.look_up(run)
    assert seen is not None
    backend.cancel([seen.handle])
    assert parameter(run) is None  # it goes with the machine


@pytest.mark.parametrize("call", ["GetParameter", "PutParameter", "GetSessionToken"])
def test_a_renewal_that_fails_is_told_and_the_next_reaper_does_it(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Also where it failed after it took effect, as when the reaper was killed there."""
    one = long_job(account, tmp_path / "go")
    look(account, tmp_path)
    submit(group(one), account.store, account.backend())
    monkeypatch.setattr(renewal, "SHARE", -1)  # always due: those just issued are, by the clock, of a moment later
    make, refused = boto3.client, ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, call)

    def client(service: str, **options: Any) -> Any:
        made = make(service, **options)

        def fail(model: Any, **_: Any) -> None:
            if model.name == call:
                raise refused

        made.meta.events.register("after-call", fail)
        return made

    with monkeypatch.context() as broken:
        broken.setattr(boto3, "client", client)
        (row,) = look(account, tmp_path)
    assert (row.run, row.did) == (run_id(one), "unreachable")
    assert "AccessDenied" in row.detail
    assert all(value not in row.detail for value in LONG_LIVED.values())
    assert [row.did for row in look(account, tmp_path)] == ["renewed"]


def test_a_store_is_opened_with_what_comes_later(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process asks for what is newer while its own still hold, and keeps its own where there is nothing."""
    boto3.client("s3").create_bucket(Bucket="runs")
    now = time.time()
    environ = {**LONG_LIVED, "AWS_SESSION_TOKEN": "first", EXPIRES: f"{now + 3600:.0f}", RENEW: f"{PLACE}/run"}
    given = RenewedAccess(environ)
    assert given()["token"] == "first"
    monkeypatch.setattr(renewed, "LOOK", 0.0)
    assert given()["token"] == "first"
    newer = {**LONG_LIVED, "AWS_SESSION_TOKEN": "second", EXPIRES: f"{now + 7200:.0f}"}
    ssm = boto3.client("ssm")
    ssm.put_parameter(Name="/slipway/access/run", Value=json.dumps(newer), Type="SecureString")
    assert given()["token"] == environ["AWS_SESSION_TOKEN"] == "second"
    for worse in (
        "{",
        "[]",
        "7",
        json.dumps({**newer, EXPIRES: 9e12}),
        json.dumps({EXPIRES: f"{now + 9000:.0f}"}),
        json.dumps({**newer, EXPIRES: "soon"}),
    ):
        ssm.put_parameter(Name="/slipway/access/run", Value=worse, Type="SecureString", Overwrite=True)
        assert given()["token"] == "second"
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    store = open_store("s3://runs/store")
    assert store.create("a", b"x")
    assert store.get("a") == b"x"


def test_only_a_long_run_on_s3_is_renewed(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = account.job("short", {"renew": PLACE})
    account.store.create(RunKeys(run_id(short)).job, encode_job(short))
    account.submit(short)
    monkeypatch.setattr(renewal, "SHARE", 1e12)
    assert [row for row in look(account, tmp_path) if row.did == "renewed"] == []
