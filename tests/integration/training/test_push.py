"""A model goes to a hub by the real huggingface_hub: once, whatever is cut off, and the token is in no text."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.training.hub import Hub, hub
from training.common.model.card import write_card

pytestmark = pytest.mark.ml


@pytest.fixture
def server() -> Iterator[Hub]:
    with hub() as found:
        yield found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for number in (1, 2):
        (folder / f"model-0000{number}-of-00002.safetensors").write_bytes(bytes([number]) * 300_000)
    (folder / ".part").write_text("of nobody's business")
    write_card(folder, {"model": "hf://Qwen/Qwen3-VL-2B-Instruct"}, method="sft")
    return folder


def push(server: Hub, model: Path, token: str = "hf_right", **changes: object) -> subprocess.CompletedProcess[str]:
    config = model.parent / "config.json"
    config.write_text(json.dumps({"model": str(model), "repo": "me/agent", **changes}))
    command = [sys.executable, "-m", "training.push_to_hub", "--config", str(config), "--out", str(model.parent)]
    # Xet is another service than the hub, which the stand-in has not
    settings = {"HF_ENDPOINT": server.url, "HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert not token or token not in done.stdout + done.stderr
    return done


def sent(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.startswith(".")}


def test_one_commit_has_the_model_and_its_card_and_a_second_push_makes_none(server: Hub, model: Path) -> None:
    done = push(server, model)
    assert done.returncode == 0, done.stderr
    assert server.files == sent(model)
    assert b"base_model: Qwen/Qwen3-VL-2B-Instruct" in server.files["README.md"]
    assert server.repos["me/agent"]["visibility"] == "private"
    assert len(server.commits) == 1
    told = json.loads((model.parent / "hub.json").read_text())
    assert (told["repo"], told["commit"]) == ("me/agent", server.head)
    again = push(server, model)
    assert again.returncode == 0, again.stderr
    assert len(server.commits) == 1
    (model / "config.json").write_text('{"other": 1}')
    assert push(server, model).returncode == 0
    assert server.commits[1:] == [["config.json"]]


def test_a_push_that_is_cut_off_goes_on_where_it_was(server: Hub, model: Path) -> None:
    """One of two large files is there when the connection breaks for good; the next push sends the other one alone."""
    first = (model / "model-00001-of-00002.safetensors").read_bytes()
    server.cuts = 100
    done = push(server, model)
    assert done.returncode == 1, done.stderr
    assert "the same command sends what is missing" in done.stderr
    assert not server.commits
    assert not (model.parent / "hub.json").exists()
    server.cuts = 0
    server.blobs[hashlib.sha256(first).hexdigest()] = first
    server.asked.clear()
    assert push(server, model).returncode == 0
    assert sum(each.startswith("PUT /upload/") for each in server.asked) == 1
    assert server.files == sent(model)
    assert len(server.commits) == 1


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ("token", 78, "the hub refuses (401)"),
        ("card", 78, "has no README.md, the model card"),
        ("none", 78, "there is no $HF_TOKEN"),
    ],
)
def test_what_no_repetition_mends_is_one_clear_error(
    server: Hub, model: Path, change: str, code: int, said: str
) -> None:
    if change == "card":
        (model / "README.md").unlink()
    done = push(server, model, token={"token": "hf_wrong", "none": ""}.get(change, "hf_right"))
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not server.files
