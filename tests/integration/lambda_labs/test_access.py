"""What a machine may do at AWS: short-lived credentials for the store, and the job's secrets, against moto's STS, S3,
Secrets Manager and Systems Manager, used by the real runtime on a machine of the stand-in."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace

from launcher.backends.lambda_labs import access
from launcher.backends.lambda_labs.names import lifetime
from launcher.errors import BadInput, Unreachable
from launcher.protocol.read import read_run
from launcher.spec.hashing import run_id
from launcher.spec.model import Limits, ResolvedJob
from launcher.store import open_store
from launcher.store.layout import RunKeys
from launcher.store.logs import Log
from launcher.verbs.submit import submit
from tests.fakes.lambda_cloud.running import KEY, FakeLambda
from tests.integration.lambda_labs.conftest import Account
from tests.support.jobs import group
from tests.support.s3 import S3Server, free_port
from tests.support.waiting import until
from tests.unit.lambda_labs.test_render import given

LONG_LIVED = {"AWS_ACCESS_KEY_ID": "AKIA2LONGLIVEDPERSON", "AWS_SECRET_ACCESS_KEY": "long-lived-secret-of-a-person"}
SAY = """
import os
E = os.environ
print("token", E["HF_TOKEN"], "length", len(E["HF_TOKEN"]), "other", len(E["OTHER"]), flush=True)
print("aws", sorted(name for name in E if name.startswith("AWS_") and not name.endswith(("ENDPOINT_URL", "REGION"))))
"""


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """moto's address, to which every service of AWS is asked; the environment is a person's with long-lived keys."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = S3Server(f"http://127.0.0.1:{port}", False, command, tmp_path / "moto.log")
    server.start()
    for name, value in {**LONG_LIVED, "AWS_ENDPOINT_URL": server.endpoint, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    try:
        yield server.endpoint
    finally:
        server.stop()


def _end_of(answer: dict[str, Any]) -> datetime:
    end: datetime = answer["Credentials"]["Expiration"]
    return end


def expiry(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> tuple[object, float]:
    """(the answer, seconds for which the credentials in AWS's answer hold)."""
    expirations: list[datetime] = []
    make = boto3.client

    def client(service: str, **options: Any) -> Any:
        made = make(service, **options)
        made.meta.events.register("after-call.sts", lambda parsed, **_: expirations.append(_end_of(parsed)))
        return made

    monkeypatch.setattr(boto3, "client", client)
    answer = call()
    return answer, (expirations[-1].replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()


@pytest.mark.parametrize("options", [{}, {"role": "arn:aws:iam::123456789012:role/slipway-machine"}])
def test_the_credentials_are_a_sessions_and_last_as_long_as_the_machine(
    aws: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    one = given("one", options)
    answer, lasts = expiry(lambda: access.access(one), monkeypatch)
    assert isinstance(answer, dict)
    assert set(answer) == {
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
    }  # fmt: skip
    assert not set(LONG_LIVED.values()) & set(answer.values())
    assert lifetime(one) - 60 <= lasts <= lifetime(one) + 60


@pytest.mark.parametrize(("options", "hours"), [({}, 36), ({"role": "arn:aws:iam::123456789012:role/x"}, 12)])
def test_the_longest_deadline_that_is_taken_is_one_that_aws_takes(
    aws: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], hours: int
) -> None:
    """A second more is refused before anything is asked; the reason names the longest deadline that is allowed."""
    short = given("one", options)
    assert short.limits.deadline is not None
    longest = hours * 3600 - (lifetime(short) - short.limits.deadline)
    fits = replace(short, limits=Limits(deadline=float(longest)))
    access.check([fits], ())
    _, lasts = expiry(lambda: access.access(fits), monkeypatch)
    assert lasts == pytest.approx(hours * 3600, abs=60)
    with pytest.raises(BadInput, match=f"its credentials at most {hours} h, and nothing renews them; allowed"):
        access.check([replace(short, limits=Limits(deadline=longest + 1.0))], ())


def test_without_aws_one_line_says_what_to_do(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(Unreachable, match=r"no short-lived credentials for s3://bucket/runs: .*name a role") as raised:
        access.access(given("one"))
    assert LONG_LIVED["AWS_SECRET_ACCESS_KEY"] not in str(raised.value)


def test_a_role_that_gives_shorter_sessions_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What AWS answers, by its documentation of AssumeRole; moto asks for no role's maximum."""
    said = "The requested DurationSeconds exceeds the MaxSessionDuration set for this role."

    class Sts:
        def assume_role(self, **given: Any) -> None:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": said}}, "AssumeRole")

    monkeypatch.setattr(boto3, "client", lambda service: Sts())
    role = "arn:aws:iam::123456789012:role/short"
    one = given("one", {"role": role})
    with pytest.raises(Unreachable) as raised:
        access.access(one)
    assert said in str(raised.value)
    assert f"may your keys take {role}, and is its maximum session duration {lifetime(one)} s or more?" in str(
        raised.value
    )


@pytest.fixture
def account(aws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    boto3.client("s3").create_bucket(Bucket="runs")
    cloud = FakeLambda(tmp_path / "cloud", speed=20.0, program=Path(sys.executable))
    cloud.admin("settings", boot=10.0, lag=5.0)
    monkeypatch.setenv("LAMBDA_API_URL", cloud.url)
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    try:
        ready = Account(cloud, tmp_path)
        ready.store = open_store("s3://runs/store")
        yield ready
    finally:
        cloud.close()


def job_with(account: Account, secrets: dict[str, str]) -> ResolvedJob:
    one = account.job("one", secrets=secrets)
    return replace(one, roles={role: replace(each, command=("python", "-c", SAY)) for role, each in one.roles.items()})


def run_it(account: Account, one: ResolvedJob) -> str:
    """Its output, when it has its result."""
    submit(group(one), account.store, account.backend())
    consoles = lambda: [path.read_text() for path in (account.path / "cloud").glob("*/console")]  # noqa: E731
    until(lambda: account.store.head(RunKeys(run_id(one)).result), consoles)
    log = Log(account.store, RunKeys(run_id(one)).attempt(1), "main-0")
    return b"".join(piece.body for piece in log.more() if piece.body).decode()


def test_a_machine_reaches_the_store_and_the_secrets_and_shows_neither(account: Account) -> None:
    stored = boto3.client("secretsmanager").create_secret(Name="hf", SecretString="hf_value_of_the_token")["ARN"]
    boto3.client("ssm").put_parameter(Name="/team/other", Value="parameter-value", Type="SecureString")
    parameter = "arn:aws:ssm:us-east-1:123456789012:parameter/team/other"
    output = run_it(account, job_with(account, {"HF_TOKEN": stored, "OTHER": parameter}))
    assert f"token *** length {len('hf_value_of_the_token')} other {len('parameter-value')}" in output
    assert "aws []" in output  # the store's credentials are the runtime's alone
    (body,) = account.cloud.bodies()
    sent = json.dumps(body["body"])
    assert "AWS_SESSION_TOKEN" in sent
    for secret in (*LONG_LIVED.values(), "hf_value_of_the_token", "parameter-value", KEY):
        assert secret not in sent
    machine = next((account.path / "cloud").glob("*/root"))
    assert (machine / "run/private.json").read_text() == ""  # the runtime has emptied its copy


def test_a_secret_that_aws_does_not_give_ends_the_run_with_its_reason(account: Account) -> None:
    missing = "arn:aws:secretsmanager:us-east-1:123456789012:secret:none-AbCdEf"
    one = job_with(account, {"HF_TOKEN": missing, "OTHER": missing})
    run_it(account, one)
    result = read_run(account.store, run_id(one)).result
    assert result is not None
    assert (result.outcome, str(result.reason)) == ("failed", "config_error")
    assert f"secret HF_TOKEN, OTHER: AWS refuses {missing}: ResourceNotFoundException" in result.message
