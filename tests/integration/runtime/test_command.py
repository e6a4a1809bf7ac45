"""The command's environment, config and process; why commands end; the address of a rank."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.reasons import Reason
from launcher.runtime.member import command
from launcher.runtime.settings import AttemptError
from launcher.spec.model import Limits, Resources, Role
from tests.unit.runtime.test_command import environment, job


@pytest.mark.ml
def test_torchrun_waits_for_its_processes_as_long_as_the_job_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.launcher.api import LaunchConfig

    name = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    monkeypatch.setenv(name, environment(job(limits=Limits(grace=299.5)), {})[name])
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1)
    assert config.shutdown_timeout == 300
    assert environment(job(), {name: "7"})[name] == "7"


@pytest.mark.ml
def test_torchrun_starts_a_process_for_each_gpu_unless_it_is_told_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.run import parse_args

    def processes(gpus: int, *more: str) -> str:
        role = Role(command=("torchrun", "train.py"), resources=Resources(gpus=gpus))
        env = environment(job(roles={"main": role}), {})
        assert not {"RANK", "WORLD_SIZE", "PET_NNODES"} & env.keys()
        monkeypatch.delenv("PET_NPROC_PER_NODE", raising=False)
        for name in env.keys() & {"PET_NPROC_PER_NODE"}:
            monkeypatch.setenv(name, env[name])
        return str(parse_args([*more, "train.py"]).nproc_per_node)  # type: ignore[no-untyped-call]

    assert (processes(8), processes(8, "--nproc-per-node", "4"), processes(1), processes(0)) == ("8", "4", "1", "1")


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["sh", "-c", "a\0b"], {}),
        (["sh", "-c", "true"], {"A": "a\0b"}),
        (["sh\0"], {}),
        (["./" + "x" * 5000], {}),
        (["sh", "-c", "\ud800"], {}),
    ],
    ids=["argument", "variable", "program", "a name that no system takes", "no text"],
)
def test_what_no_system_can_start_is_the_jobs_fault(words: list[str], env: dict[str, str], tmp_path: Path) -> None:
    """A job of an older launcher, or a secret in a file, may hold a NUL: it was tried 20 times as infrastructure."""
    with pytest.raises(AttemptError) as caught:
        command.start(words, {"PATH": os.environ["PATH"], **env}, tmp_path, 1)
    assert caught.value.reason == Reason.CONFIG_ERROR
    assert "a\0b" not in str(caught.value)
