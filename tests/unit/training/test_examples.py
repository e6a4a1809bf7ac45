"""The examples' configurations are what the programs that they name take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from eval.config import convert
from eval.run import RunConfig
from eval.steps import StepsConfig
from tests.support.cases import every_case
from training.grpo.train import GrpoConfig
from training.make_episodes import MakeEpisodesConfig
from training.rl.config import RlConfig
from training.sft.train import SftConfig
from training.tiny import TinyConfig

ROOT = Path(__file__).parents[3] / "examples"
CLASSES: dict[str, type] = {
    "eval.run": RunConfig,
    "eval.steps": StepsConfig,
    "training.grpo": GrpoConfig,
    "training.make_episodes": MakeEpisodesConfig,
    "training.rl": RlConfig,
    "training.sft": SftConfig,
    "training.tiny": TinyConfig,
}


def documents() -> list[tuple[str, str, dict[str, Any]]]:
    """(job, module, config) of every example whose command is one of ours."""
    found = []
    for file in sorted(ROOT.glob("*/*.yaml")):
        for job in yaml.safe_load_all(file.read_text()):
            command = job.get("command", [])
            module = command[command.index("-m") + 1] if "-m" in command else ""
            if module in CLASSES:
                config = job["config"]
                if "learning_rate" in config:  # YAML 1.2 reads 2e-3 as a number, this loader as a text
                    config["learning_rate"] = float(config["learning_rate"])
                found.append((f"{file.parent.name}/{job['name']}", module, config))
    return found


@every_case(("job", "module", "config"), documents)
def test_a_program_takes_the_configuration_that_an_example_gives_it(
    job: str, module: str, config: dict[str, Any]
) -> None:
    made = convert(config, CLASSES[module], job)
    if isinstance(made, SftConfig) and "$" not in made.model:
        made.check()


def test_the_login_jobs_ask_the_model_as_it_was_taught() -> None:
    jobs = {job: config for job, _, config in documents() if job.startswith("login/")}
    jobs = {job.removeprefix("login/"): config for job, config in jobs.items()}
    assert set(jobs) == {"login-episodes", "login-model", "login-before", "login-sft", "login-after"}
    assert len({str(config["prompt"]) for config in jobs.values()}) == 1
    assert jobs["login-before"]["tasks"] == jobs["login-after"]["tasks"]
