"""A checkpoint goes on with the same content, wherever it lies, and with no other."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.config import ResumeError, exit_code
from tests.support.cases import every_case
from training.common import identity
from training.common.identity import Identity, check, load, save
from training.data import chat


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLIPWAY_INPUTS", "SLIPWAY_INPUT_DIGESTS", "SLIPWAY_ATTEMPT"):
        monkeypatch.delenv(name, raising=False)


def folders(root: Path) -> dict[str, Any]:
    """A configuration, with its model and its data."""
    model, data = root / "model", root / "data"
    for folder in (model, data / "one", data / "two"):
        folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "README.md"):
        (model / name).write_text(f"{name} of A")
    (data / "one" / "steps.jsonl").write_text("1\n")
    (data / "two" / "steps.jsonl").write_text("2\n")
    return {"model": str(model), "episodes": str(data)}


def checkpoint(root: Path, config: dict[str, Any]) -> str:
    folder = root / "checkpoint-1"
    folder.mkdir()
    save(identity.identity(config), folder)
    return str(folder)


def again(config: dict[str, Any], resume: str) -> list[str]:
    return check(identity.identity(config, load(resume)), resume)


@every_case(
    ("file", "said"),
    [
        ("model/model.safetensors", r"model: model\.safetensors"),
        ("model/tokenizer.json", r"model: tokenizer\.json"),
        ("model/chat_template.jinja", r"model: chat_template\.jinja"),
        ("model/more.safetensors", r"model: more\.safetensors"),
        ("model/chat_template.json", r"model: chat_template\.json"),  # which was not there
        ("model/preprocessor_config.json", r"model: preprocessor_config\.json"),
        ("model/processor_config.json", r"model: processor_config\.json"),  # where transformers 5 writes them
        ("model/tokenizer_config.json", r"model: tokenizer_config\.json"),
        ("data/two/steps.jsonl", "episodes: its files"),
    ],
)
def test_other_content_is_refused_by_the_name_of_what_changed(tmp_path: Path, file: str, said: str) -> None:
    config = folders(root := tmp_path / file.replace("/", "-"))
    resume = checkpoint(root, config)
    (root / file).write_text("other text")
    with pytest.raises(ResumeError, match=rf"was made with other content: {said}; give the same, or --resume-anyway"):
        again(config, resume)
    token = identity.ANYWAY.set(True)
    try:
        (line,) = again(config, resume)
    finally:
        identity.ANYWAY.reset(token)
    assert line.endswith("--resume-anyway")


def test_a_model_without_the_chat_template_that_it_had_is_another(tmp_path: Path) -> None:
    config = folders(tmp_path)
    resume = checkpoint(tmp_path, config)
    (tmp_path / "model" / "generation_config.json").write_text("more of it, as a hub's cache may have")
    assert again(config, resume) == []
    (tmp_path / "model" / "chat_template.jinja").unlink()
    with pytest.raises(ResumeError, match=r"model: chat_template\.jinja; give the same"):
        again(config, resume)


def test_the_same_bytes_elsewhere_go_on_and_a_card_is_no_part_of_a_model(tmp_path: Path) -> None:
    config = folders(tmp_path / "here")
    resume = checkpoint(tmp_path, config)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    (tmp_path / "there" / "model" / "README.md").write_text("another day")
    assert again({name: str(tmp_path / "there" / Path(path).name) for name, path in config.items()}, resume) == []


def test_what_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = folders(tmp_path)
    resume = checkpoint(tmp_path, config)
    reads: list[Path] = []
    monkeypatch.setattr(identity, "file_digest", lambda path: reads.append(path) or "")
    assert again(config, resume) == []
    assert reads == []
    monkeypatch.undo()
    found = identity.identity(config, load(resume))["model"].files
    assert found["model.safetensors"] == hashlib.sha256(b"model.safetensors of A").hexdigest()


def test_the_hubs_cache_names_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = folders(tmp_path)
    resume = checkpoint(tmp_path, config)
    (tmp_path / "blobs").mkdir()
    weights = tmp_path / "model" / "model.safetensors"
    blob = tmp_path / "blobs" / hashlib.sha256(weights.read_bytes()).hexdigest()
    weights.rename(blob)
    weights.symlink_to(blob)
    (tmp_path / "model" / "config.json").touch()  # so that the folder is looked at again
    blob.chmod(0)
    reads: list[str] = []
    inner = identity.file_digest
    monkeypatch.setattr(identity, "file_digest", lambda path: reads.append(path.name) or inner(path))
    assert again(config, resume) == []
    assert "model.safetensors" not in reads


def verified(monkeypatch: pytest.MonkeyPatch, root: Path, digest: str, *, pinned: bool = False) -> None:
    monkeypatch.setenv("SLIPWAY_INPUTS", str(root))
    about = {name: {"digest": digest, "pinned": pinned} for name in ("model", "data")}
    monkeypatch.setenv("SLIPWAY_INPUT_DIGESTS", json.dumps(about))


def never(path: Path) -> str:
    raise AssertionError(f"{path} is read")


def test_what_the_runtime_verified_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = folders(tmp_path / "one")
    verified(monkeypatch, tmp_path / "one", "sha256:aa")
    monkeypatch.setattr(identity, "file_digest", never)
    resume = checkpoint(tmp_path, config)
    shutil.copytree(tmp_path / "one", tmp_path / "node")
    elsewhere = {name: str(tmp_path / "node" / Path(path).name) for name, path in config.items()}
    verified(monkeypatch, tmp_path / "node", "sha256:aa")
    assert again(elsewhere, resume) == []
    verified(monkeypatch, tmp_path / "node", "sha256:bb")
    with pytest.raises(ResumeError, match="model: the input has digest sha256:bb, and had sha256:aa"):
        again(elsewhere, resume)


def test_within_a_run_a_difference_never_ends_it_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = folders(tmp_path / "in")
    verified(monkeypatch, tmp_path / "in", "sha256:aa")
    resume = checkpoint(tmp_path, config)
    monkeypatch.setenv("SLIPWAY_ATTEMPT", "2")
    verified(monkeypatch, tmp_path / "in", "sha256:bb", pinned=True)
    (line,) = again(config, resume)
    assert "the job pins it by its digest, so the training goes on with it" in line
    verified(monkeypatch, tmp_path / "in", "sha256:bb")
    with pytest.raises(ResumeError, match="was made with other content") as raised:
        again(config, resume)
    assert exit_code(raised.value) == 1
    monkeypatch.setenv("SLIPWAY_ATTEMPT", "1")
    assert exit_code(raised.value) == 78


def test_a_checkpoint_of_before_goes_on_with_one_line(tmp_path: Path) -> None:
    config = folders(tmp_path)
    (line,) = again(config, str(tmp_path))
    assert "is of before checkpoints had digests" in line


def test_a_mixture_of_other_shares_is_other_data(tmp_path: Path) -> None:
    root = tmp_path
    folders(root)

    def of(weight: float) -> dict[str, Any]:
        data = root / "data"
        return {"data": [{"path": str(data / "one"), "weight": 1.0}, {"path": str(data / "two"), "weight": weight}]}

    resume = checkpoint(root, of(2.0))
    assert again(of(2.0), resume) == []
    with pytest.raises(ResumeError, match=r"data 1: the configuration says \{\"weight\": 3.0\} of it"):
        again(of(3.0), resume)


def test_whatever_else_a_training_learns_from_is_of_its_content(tmp_path: Path) -> None:
    """A file of chats and the pictures it names, a reward model, demonstrations, DeepSpeed's settings."""
    root = tmp_path
    folders(root)
    picture, judge, shown, shards = root / "p" / "1.png", root / "judge", root / "shown" / "a", root / "ds.json"
    for folder in (picture.parent, judge, shown):
        folder.mkdir(parents=True)
    turns = [{"role": "user", "content": "<image>Who?"}, {"role": "assistant", "content": "Kane."}]
    chats = [{"messages": turns, "images": [{"path": "p/1.png"}]}, {"messages": turns, "images": ["p/gone.png"]}]
    for name in ("chats.json", "chats.jsonl"):
        listed = json.dumps(chats) if name.endswith(".json") else "\n".join([*map(json.dumps, chats), "{"])
        (root / name).write_text(listed)
    files = {picture: "data: its files", judge / "a.safetensors": r"rewards 1 path: its files"}
    files |= {shown / "steps.jsonl": "prompt.demonstration: its files", shards: "deepspeed: its files"}
    rewards = [{"name": "format", "args": {}}, {"name": "learned", "args": {"path": str(judge), "share": 0.5}}]
    for data in ("chats.json", "chats.jsonl"):
        for file in files:
            file.write_text("as it was")
        config = {
            "model": str(root / "model"),
            "data": str(root / data),
            "rewards": rewards,
            "prompt": {"demonstration": {"folder": str(shown.parent)}},
            "deepspeed": str(shards),
        }
        resume = checkpoint(root, config)
        for file, said in files.items():
            file.write_text("something else")
            with pytest.raises(ResumeError, match=f"made with other content: {said};"):
                again(config, resume)
            file.write_text("as it was")
            assert again(config, resume) == []
        older = {name: part for name, part in (load(resume) or {}).items() if name in ("model", "data")}
        save(older, Path(resume))  # of before these had digests
        assert again(config, resume) == []
        shutil.rmtree(resume)


def test_a_data_set_of_a_hub_is_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch goes on; what a training read is known by the commit that it was then."""
    folders(tmp_path)
    config = {"model": str(tmp_path / "model"), "data": [{"path": "hf://datasets/owner/name", "split": "train"}]}
    assert "data" not in identity.identity(config)  # nobody read it
    monkeypatch.setitem(chat.COMMITS, "hf://datasets/owner/name", "1" * 40)
    resume = checkpoint(tmp_path, config)
    assert again(config, resume) == []
    monkeypatch.setitem(chat.COMMITS, "hf://datasets/owner/name", "2" * 40)
    with pytest.raises(ResumeError, match="made with other content: data: its files;"):
        again(config, resume)


@every_case("damage", [lambda file: file.write_text("{"), lambda file: file.write_text("[1]")])
def test_a_damaged_file_of_digests_is_told(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    damage(tmp_path / "identity.json")
    with pytest.raises(ResumeError, match=r"identity\.json cannot be read"):
        load(str(tmp_path))


def test_a_file_of_digests_is_read_as_it_was_written(tmp_path: Path) -> None:
    found: Identity = identity.identity(folders(tmp_path))
    save(found, tmp_path)
    assert load(str(tmp_path)) == found


def test_tasks_with_another_judge_are_refused_and_other_tasks_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewards are compared over a whole training. Which tasks are drawn is the configuration's own affair."""
    config = {**folders(tmp_path), "environment": "click", "tasks": {"count": 3, "seed": 1_000_000}, "options": {}}
    saved = checkpoint(tmp_path, config)
    assert again(config, saved) == []
    assert again({**config, "tasks": {"count": 2, "seed": 1_000_001}}, saved) == []
    monkeypatch.setattr("eval.environments.registry.identity", lambda parts: {"code": "other"})
    with pytest.raises(ResumeError, match="tasks: the judge, programs or desktop of 3 of them"):
        again(config, saved)
    old = {name: part for name, part in (load(saved) or {}).items() if name != identity.TASKS}
    save(old, Path(saved))
    assert "judge unknown" in again(config, saved)[0]


def test_held_out_episodes_may_change_and_are_known_to_be_others(tmp_path: Path) -> None:
    """They move no weight. Their bytes elsewhere are the same ones."""
    held = tmp_path / "held"
    held.mkdir()
    (held / "one.jsonl").write_text("1")
    evaluation = {"episodes": str(held), "split": "validation"}
    config = {**folders(tmp_path), "evaluation": evaluation}
    resume = checkpoint(tmp_path, config)

    def others(**changes: str) -> bool:
        changed = {**config, "evaluation": {**evaluation, **changes}}
        assert again(changed, resume) == []
        return identity.measures_another(identity.identity(changed, load(resume)), resume)

    moved = Path(shutil.copytree(held, tmp_path / "moved"))
    assert not others()
    assert not others(episodes=str(moved))
    assert others(split="test")
    (moved / "one.jsonl").write_text("2")
    assert others(episodes=str(moved))
    now, before = identity.identity(config), tmp_path / "before"
    before.mkdir()
    save({name: part for name, part in now.items() if "evaluation" not in name}, before)
    assert not identity.measures_another(now, str(before))
