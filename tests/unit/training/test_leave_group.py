"""A trainer's command leaves its process group when the training is finished."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import yaml

from eval.config import Config
from training.common.entry import entry


class NothingConfig(Config, frozen=True):
    steps: int = 1


def test_a_finished_training_leaves_its_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's exit does not end the group's threads: ranks were aborted there after all their work was done."""
    import torch.distributed as distributed

    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"steps": 1}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    seen: list[bool] = []

    def train(config: NothingConfig, out: Path, resume: str | None) -> bool:
        address = f"tcp://127.0.0.1:{port}"
        distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
        seen.append(distributed.is_initialized())
        return False

    arguments = ["--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "out")]
    assert entry(arguments, prog="training.sft", description="", kind=NothingConfig, train=train) == 0
    assert seen == [True]
    assert not distributed.is_initialized()
