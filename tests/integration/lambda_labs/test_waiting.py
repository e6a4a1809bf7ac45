"""How long a submit waits is its caller's, and no part of the run: `submit --wait-for-capacity`, and a reaper, which
waits for nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher import api
from launcher.backends.lambda_labs.backend import LambdaBackend
from launcher.cli import main
from launcher.protocol import decide
from launcher.protocol.finish import onlookers, put_move
from launcher.protocol.read import read_run
from launcher.reasons import Reason
from launcher.spec.hashing import encode_job, run_id
from launcher.store.layout import RunKeys
from launcher.wait_hint import LongWait
from tests.integration.lambda_labs.conftest import TIMES, Account, at_laptop

Capture = pytest.CaptureFixture[str]
PROFILE = "backend: lambda\nlambda: {ssh_key: laptop, instance_types: [gpu_1x_a10]}\n"
DIGEST = "0" * 64
JOB = f"name: one\nimage: registry.test/shim@sha256:{DIGEST}\ncommand: [run]\nlimits: {{deadline: 1h}}\n"


@pytest.fixture(autouse=True)
def laptop(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_laptop(account, tmp_path / "laptop", PROFILE, monkeypatch)
    Path("job.yaml").write_text(JOB)
    monkeypatch.setattr(LambdaBackend, "check", lambda self, jobs: None)  # the store is a folder
    monkeypatch.setattr("launcher.backends.lambda_labs.access.check", lambda jobs, folders: None)
    made = LambdaBackend.__init__
    monkeypatch.setattr(LambdaBackend, "__init__", lambda self, options: made(self, {**TIMES, **options}))


def test_the_same_run_waits_where_its_submit_is_told_to(
    account: Account, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First refused, as the message says the second time told to wait: one run, one machine."""
    account.cloud.admin("settings", capacity={"gpu_1x_a10": {"us-east-1": 0}})
    assert main(["submit", "job.yaml"]) == 4
    said = capsys.readouterr().err
    assert "submit again later, or with --wait-for-capacity 6h; nothing is launched twice" in said

    tell = LongWait.tell

    def free(wait: LongWait, text: str) -> None:
        account.cloud.admin("settings", capacity={"gpu_1x_a10": {"us-east-1": 1}})
        tell(wait, text)

    monkeypatch.setattr(LongWait, "tell", free)
    assert main(["submit", "job.yaml", "--wait-for-capacity", "6h"]) == 0
    said = capsys.readouterr().err
    assert said.index("cost: at most") < said.index("waits: Lambda has no capacity now for gpu_1x_a10 in any region")
    assert len({meta.key.split("/")[1] for meta in account.store.scan("runs/")}) == 1
    assert len(account.launches()) == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--backend", "docker"], "one: docker does not wait for capacity; allowed: lambda"),
        (
            ["--set", "+resources.nodes=2"],
            "one needs 2 machines, and reap must know how long the first may wait for the others; allowed: `lambda: "
            "{wait_for_capacity: 6h}` in the job",
        ),
    ],
)
def test_where_it_cannot_be_told_it_is_refused(account: Account, capsys: Capture, more: list[str], said: str) -> None:
    assert main(["submit", "job.yaml", "--wait-for-capacity", "1h", *more]) == 2
    assert f"launcher submit: {said}\n" in capsys.readouterr().err
    assert account.launches() == []


def test_what_is_no_duration_is_refused(capsys: Capture) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["submit", "job.yaml", "--wait-for-capacity", "soon"])
    assert "`soon` is not a duration; write 90s, 15m, 6h or 2d" in capsys.readouterr().err


def test_a_reaper_waits_for_no_capacity(account: Account, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has moved here, to a job that waits for six hours. The reaper says so; the next one goes on."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    Path("job.yaml").write_text(f"{JOB}backend: [docker, lambda]\nlambda: {{wait_for_capacity: 6h}}\n")
    account.cloud.admin("settings", capacity={"gpu_1x_a10": {"us-east-1": 0}})
    (job,) = api.load("job.yaml").group.runs
    run = run_id(job)
    account.store.create(RunKeys(run).job, encode_job(job))
    view = read_run(account.store, run)
    step = decide.move(onlookers(view, job), False, Reason.CAPACITY)
    assert step is not None
    assert put_move(account.store, view, step, "no place") == "lambda"

    def reaped() -> list[str]:
        capsys.readouterr()
        main(["reap", "-o", "json"])
        rows = json.loads(capsys.readouterr().out)
        return [f"{row['did']}: {row['detail']}" for row in rows if row["run"] == run and row["did"] != "unreachable"]

    assert [row.partition(" now ")[0] for row in reaped()] == [f"unsubmitted: {run}: Lambda has no capacity"]
    assert account.launches() == []
    account.cloud.admin("settings", capacity={"gpu_1x_a10": {"us-east-1": 1}})
    assert reaped() == ["moved: lambda did not have it yet"]
    assert len(account.launches()) == 1
