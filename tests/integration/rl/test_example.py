"""examples/rl-login, rl-desktop and rl-gymnasium with few episodes and steps: at night as a user runs them, in real
processes; in CI the programs of one of them, one after the other in this process."""

from __future__ import annotations

import csv
import io
import json
from importlib import import_module
from pathlib import Path

import pytest

from launcher.api import load
from tests.support.desktops import need_desktops
from tests.support.verbs import launcher

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL = {
    "episodes:config.tasks.count": 20,
    "start:config.steps": 4,
    "start:config.warmup_steps": 1,
    "start:config.save_every": 2,
    "before:config.tasks.count": 10,
    "train:config.steps": 2,
    "train:config.warmup_steps": 1,
    "train:config.save_every": 1,
    "train:config.tasks_per_generation": 2,
    "train:config.group_size": 2,
    "after:config.tasks.count": 10,
}
LAKE = {name: value for name, value in SMALL.items() if not name.startswith("episodes")} | {
    "tries:config.tasks.count": 20,
}


def ran(folder: Path, example: str, jobs: str, small: dict[str, int]) -> dict[str, dict[str, str]]:
    """An example with few episodes and steps, each job of which has a name that begins with `jobs`: the row of success
    of each agent, by its name."""
    (folder / "slipway.yaml").write_text("store: store\nlocal: {state: state, cpus: 2}\n")
    try:
        options = [f"--set={jobs}-{name}={value}" for name, value in small.items()]
        launcher(folder, "submit", str(EXAMPLES / example), "--backend", "local", "--follow", *options)
        states = json.loads(launcher(folder, "status", "-o", "json"))
        table = launcher(folder, "results", f"{jobs}-before", f"{jobs}-after", "-o", "csv")
    finally:
        launcher(folder, "local", "stop")
    assert {run["state"] for run in states} == {"succeeded"}
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["metric"] == "success"]
    return {row["agent"]: row for row in rows}


def asked(rows: dict[str, dict[str, str]]) -> dict[str, str]:
    """How many tasks each agent was asked."""
    return {agent: row["n"] for agent, row in rows.items()}


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.timeout(1200)
def test_a_model_is_taught_tries_for_itself_and_is_measured_before_and_after(tmp_path: Path) -> None:
    assert asked(ran(tmp_path, "rl-login", "rl", SMALL)) == {"start": "10", "trained": "10"}


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.timeout(1800)
def test_the_same_on_real_desktops(tmp_path: Path) -> None:
    need_desktops()
    told = asked(ran(tmp_path, "rl-desktop", "rld", SMALL))
    assert told == dict.fromkeys(("start", "commonest", "nearest", "trained"), "10")


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.timeout(1200)
def test_the_same_on_an_environment_of_gymnasium(tmp_path: Path) -> None:
    assert asked(ran(tmp_path, "rl-gymnasium", "rlg", LAKE)) == {"start": "10", "trained": "10"}


MAINS = {"eval.run": "eval.run", "training.tiny": "training.tiny"} | {
    package: f"{package}.train" for package in ("training.sft", "training.rl")
}


@pytest.mark.ml
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_each_program_of_the_example_of_gymnasium_takes_what_the_one_before_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the configurations and inputs of the file."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "rl-gymnasium"))
    options = [f"rlg-{name}={value}" for name, value in LAKE.items()]
    for job in load(EXAMPLES / "rl-gymnasium", overrides=options, cwd=tmp_path).group.runs:
        text = json.dumps(job.config)
        for name, source in job.inputs.items():
            text = text.replace(f"$SLIPWAY_INPUTS/{name}", str(tmp_path / str(source.job) / str(source.output)))
        assert "$" not in text
        (tmp_path / "config.json").write_text(text)
        monkeypatch.setenv("SLIPWAY_OUTPUTS", str(tmp_path / job.name))
        python, option, module, *words = job.roles["main"].command
        assert (python, option, words) == ("python", "-m", ["--config", "$SLIPWAY_CONFIG"])
        assert import_module(MAINS[module]).main(["--config", str(tmp_path / "config.json")]) == 0, job.name
    for name, agent in (("rlg-before", "start"), ("rlg-after", "trained")):
        lines = (tmp_path / name / "results" / "tasks.jsonl").read_text().splitlines()
        assert [json.loads(line)["agent"] for line in lines] == 10 * [agent]
