"""The verbs submit, cancel, retry, local and completion, called as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.spec.hashing import encode_job, run_id
from launcher.store import Store, open_store
from launcher.store.layout import RunKeys
from tests.support.jobs import job


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state, gpus: 0}\n")
    (tmp_path / "job.yaml").write_text("name: one\ncommand: ['true']\n---\nname: two\ncommand: ['true']\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def stored(folder: Path) -> Store:
    return open_store((folder / "store").as_uri())


def test_a_dry_run_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "job.yaml", "--dry-run", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["state"]) for row in rows] == [
        ("one", "would be submitted"),
        ("two", "would be submitted"),
    ]
    assert sorted(path.name for path in project.iterdir()) == ["job.yaml", "slipway.yaml"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["submit", "none.yaml"], 2, "none.yaml"),
        (["submit", "job.yaml", "--fresh", "-1"], 2, "--fresh"),
        (["submit", "job.yaml", "--set", "limits.dedline=1h"], 2, "deadline"),
        (["submit", "job.yaml", "--backend", "slurm"], 2, "slurm"),
        (["submit", "job.yaml", "--set", "resources.gpus=64"], 2, "64 GPUs"),
        (["submit", "job.yaml", "--set", "secrets=[TOKEN]"], 2, "launcher secrets set TOKEN"),
        (["cancel"], 2, "--label"),
        (["cancel", "nothing"], 3, "nothing"),
        (["cancel", "--label", "x"], 2, "KEY=VALUE"),
        (["retry", "nothing"], 3, "nothing"),
        (["local", "logs"], 3, "supervisor.log"),
    ],
)
def test_errors_are_one_text_and_the_right_code(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    assert main(arguments) == code
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert not (project / "store").exists()


def test_cancel_by_label(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = stored(project)
    jobs = [job(f"j{k}", store=store.url, labels={"team": "a" if k else "b"}) for k in range(3)]
    for one in jobs:
        store.create(RunKeys(run_id(one)).job, encode_job(one))
    assert main(["cancel", "-l", "team=a", "--reason", "because", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["run"]: row["state"] for row in rows} == {run_id(one): "cancelled" for one in jobs[1:]}
    assert store.head(RunKeys(run_id(jobs[0])).cancel) is None
    assert main(["cancel", "--all", "-o", "json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == [run_id(jobs[0])]
    assert main(["cancel", run_id(jobs[0])]) == 0
    assert "cancelled" in capsys.readouterr().out


def test_local_status_without_a_supervisor(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["local", "status"]) == 0
    assert "not running" in capsys.readouterr().out
    assert main(["local", "stop"]) == 0
    assert not (project / "state").exists()


def test_the_unit_starts_this_very_supervisor(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "slipway.yaml").write_text("store: store\nlocal: {state: 'a $b 100%', cpus: 3}\n")
    assert main(["local", "install", "--print"]) == 0
    unit = capsys.readouterr().out
    line = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    assert '"a $$b 100%%"' not in line
    assert "a $$b 100%%" in line
    assert r"{\"cpus\": 3" in line
    assert "KillMode=process" in unit


def test_install_without_systemd_says_what_to_do(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "config"))
    monkeypatch.setenv("PATH", str(project))
    assert main(["local", "install"]) == 4
    assert "systemctl --user daemon-reload" in capsys.readouterr().err
    assert (project / "config/systemd/user/slipway-local.service").is_file()
    (project / "config/systemd/user/slipway-local.service").unlink()
    assert main(["local", "uninstall"]) == 3
