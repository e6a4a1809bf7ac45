"""`launcher run`: flags and a command become a job, held to the same rules as a file's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.cli import main
from launcher.errors import BadInput
from launcher.spec.read.adhoc import adhoc
from launcher.spec.read.load import load, load_value
from launcher.spec.values.yaml_text import dump


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a home of its own and no profile."""
    for name in [name for name in os.environ if name.startswith(("SLIPWAY_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4), st.dictionaries(st.sampled_from("ABC"), st.text()))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_command_survives_the_file(home: Path, command: list[str], env: dict[str, str]) -> None:
    flags = {"name": "any", "env": [f"{key}={value}" for key, value in env.items()]}
    value, sources = adhoc(flags, command)
    try:
        loaded = load_value(value, sources, cwd=home)
    except BadInput:
        return  # a NUL, an unknown $SLIPWAY_ variable
    (home / "job.yaml").write_text(dump(value))
    again = load(["job.yaml"], cwd=home)
    assert again.jobs[0].variants[0].values == loaded.jobs[0].variants[0].values


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cpus", "many"], "--cpus: resources.cpus: "),
        (["--gpus", "-1"], "--gpus: resources.gpus: "),
        (["--memory", "lots"], "--memory: resources.memory: "),
        (["--deadline", "soon"], "--deadline: limits.deadline: "),
        (["--env", "nonsense"], "--env: `nonsense` is not of the form NAME=VALUE"),
        (["--env", "SLIPWAY_X=1"], "--env: env.SLIPWAY_X: "),
        (["--input", "data"], "--input: `data` is not of the form NAME=URL"),
        (["--input", "data=ftp://x"], "--input: inputs.data: "),
        (["--output", "a/b"], "--output: outputs"),
        (["--code", "nowhere"], "--code: code: `nowhere` is not a folder"),
        (["--name", "No Name"], "--name: name: "),
        (["--label", "=x"], "--label: `=x` is not of the form"),
        (["--backend", "kubernets"], "did you mean `kubernetes`"),
        (["--env", "A=1", "--env", "A=2"], "--env: `A` is given twice"),
        (["--set", "limts.deadline=1h"], "--set limts.deadline: "),
        (["--env", "TOKEN=hf_abcdefghijklmnopqrstuvwx1234"], "secret"),
    ],
)
def test_what_is_wrong_names_the_flag(
    home: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments, "--dry-run", "--", "true"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "hf_abc" not in err


@pytest.mark.parametrize(
    ("command", "name"),
    [(["nvidia-smi"], "nvidia-smi"), (["/usr/bin/env"], "env"), (["python", "Train_it.py", "x"], "train-it"),
     (["python3", "-m", "training.sft"], "training-sft"), (["bash", "-c", "echo"], "bash"), (["./é"], "run"),
     (["python", "a" * 60 + ".py"], "a" * 27)],
)  # fmt: skip
def test_a_run_without_a_name_is_called_after_its_program(command: list[str], name: str) -> None:
    assert adhoc({}, command)[0]["name"] == name
