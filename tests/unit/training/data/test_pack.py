"""Packing: everything is there once, the marker comes last, and what is broken is told or counted."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from eval.config import ConfigError
from eval.episodes import iter_episodes
from tests.unit.training.data.material import episode, png, write_folders, write_packed
from training.data.packed.pack import PackConfig, SplitConfig, main, pack, side
from training.data.packed.store import from_row, parts, verify
from training.data.packed.writer import DatasetWriter


def test_all_episodes_come_back_and_each_image_is_there_once(folders: Path, tmp_path: Path) -> None:
    manifest = pack(PackConfig(episodes=[str(folders)], split=SplitConfig(test=0.4, by="task")), tmp_path / "out")
    wanted = {folder.name: found for folder, found in iter_episodes(folders)}
    rows: dict[str, dict[str, Any]] = {}
    for shard in manifest.shards:
        found = pq.read_table(tmp_path / "out" / shard.file).to_pylist()
        assert (shard.episodes, shard.steps) == (len(found), sum(len(row["steps"]) for row in found))
        rows |= {row["folder"]: {**row, "split": shard.split} for row in found}
    assert {name: from_row(row) for name, row in rows.items()} == wanted
    assert set(manifest.splits) == {"test", "train"}
    tasks = {split: {row["task_id"] for row in rows.values() if row["split"] == split} for split in manifest.splits}
    assert not tasks["test"] & tasks["train"]

    files = {hashlib.sha256(path.read_bytes()).hexdigest() for path in folders.glob("*/*.png")}
    members = []
    for part in manifest.packs:
        with tarfile.open(tmp_path / "out" / part.file) as tar:
            for member in tar:
                data = tar.extractfile(member)
                assert data is not None
                assert hashlib.sha256(data.read()).hexdigest() == member.name.removesuffix(".png")
                members.append(member.name.removesuffix(".png"))
    assert Counter(members) == Counter(files)
    for row in rows.values():
        paths = [folders / row["folder"] / step["screenshot"] for step in row["steps"]]
        assert [step["image"] for step in row["steps"]] == [hashlib.sha256(p.read_bytes()).hexdigest() for p in paths]
        final = folders / row["folder"] / f"{len(paths):03d}.png"
        assert row["final_image"] == hashlib.sha256(final.read_bytes()).hexdigest()


def test_the_index_says_where_each_image_lies(folders: Path, tmp_path: Path) -> None:
    manifest = pack(PackConfig(episodes=[str(folders)]), tmp_path / "out")
    index = pq.read_table(tmp_path / "out" / "images.parquet").to_pylist()
    assert [row["sha256"] for row in index] == sorted(row["sha256"] for row in index)
    for row in index:
        with (tmp_path / "out" / manifest.packs[row["pack"]].file).open("rb") as file:
            file.seek(row["offset"])
            data = file.read(row["length"])
        assert hashlib.sha256(data).hexdigest() == row["sha256"]


def test_packs_and_shards_are_cut_at_their_size(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path / "out", shard_bytes=1, pack_bytes=5_000)
    for number in range(900):
        made, frames = episode(number, 5, frames=[png((number % 4, index)) for index in range(6)])
        writer.add(made, frames)
    manifest = writer.close()
    assert len(manifest.shards) == 3  # a row group at least
    assert [shard.file for shard in manifest.shards] == [f"train-{i:05d}.parquet" for i in range(3)]
    assert len(manifest.packs) > 2
    assert sum(part.images for part in manifest.packs) == manifest.index.images == 24
    for part in parts(manifest):
        verify(tmp_path / "out", part)


def test_the_datasets_library_reads_shards_and_packs(tmp_path: Path) -> None:
    import datasets

    made = [episode(number) for number in range(3)]
    write_packed(tmp_path / "out", {"train": made[:2], "test": made[2:]})
    files = {split: str(tmp_path / "out" / f"{split}-*.parquet") for split in ("train", "test")}
    found = datasets.load_dataset("parquet", data_files=files)
    assert {split: len(rows) for split, rows in found.items()} == {"train": 2, "test": 1}
    assert from_row(found["train"][1]) == made[1][0]
    images = datasets.load_dataset("webdataset", data_files=str(tmp_path / "out" / "images-*.tar"), split="train")
    assert {row["__key__"] for row in images} == {hashlib.sha256(f).hexdigest() for _, frames in made for f in frames}
    assert images[0]["png"].size == (24, 16)


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=20, unique=True), st.floats(0, 0.5), st.floats(0, 0.49))
def test_the_side_depends_on_the_text_alone_and_grows_with_its_share(ids: list[str], test: float, more: float) -> None:
    for name in ids:
        made, _ = episode(0, goal=name)
        config = SplitConfig(test=test, by="instruction")
        first = side(config, made)
        if first == "test":
            assert side(SplitConfig(test=test + more, by="instruction"), made) == "test"
        assert first in ("test", "train")


def test_shares_are_about_what_was_asked() -> None:
    config = SplitConfig(test=0.1, validation=0.2)
    count = Counter(side(config, episode(number, 1)[0]) for number in range(2000))
    assert abs(count["test"] - 200) < 60
    assert abs(count["validation"] - 400) < 80


def test_a_given_split_is_taken_and_must_be_there(tmp_path: Path) -> None:
    (first, frames), (second, _) = episode(0), episode(1)
    first = msgspec.structs.replace(first, metadata={"split": "test"})
    second = msgspec.structs.replace(second, tags=("split:held-out",))
    root = write_folders(tmp_path / "in", [(first, frames), (second, frames), episode(2)])
    config = PackConfig(episodes=[str(root)], split=SplitConfig(by="given"), on_bad_sample="skip")
    manifest = pack(config, tmp_path / "out")
    assert {name: counts.episodes for name, counts in manifest.splits.items()} == {"held-out": 1, "test": 1}
    assert manifest.skipped["by_reason"] == {"no_split": 1}


def broken(root: Path) -> Path:
    """Eight episodes, of which seven are broken in a way of its own."""
    write_folders(root, [episode(number) for number in range(6)])
    (root / "episode-1" / "001.png").unlink()
    whole = (root / "episode-2" / "001.png").read_bytes()
    (root / "episode-2" / "001.png").write_bytes(whole[: len(whole) // 2])
    (root / "episode-3" / "001.png").write_bytes(b"not a picture")
    steps = root / "episode-4" / "steps.jsonl"
    lines = [json.loads(line) for line in steps.read_text().splitlines()]
    lines[0]["action"]["x"] = 1.2
    steps.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "episode-5" / "steps.jsonl").write_text("")
    data = json.loads((root / "episode-5" / "episode.json").read_text())
    (root / "episode-5" / "episode.json").write_text(json.dumps(data | {"steps": 0}))
    (root / "cut-off").mkdir()
    return root


def test_broken_episodes_are_left_out_counted_and_named(tmp_path: Path) -> None:
    root = broken(tmp_path / "in")
    manifest = pack(PackConfig(episodes=[str(root)], on_bad_sample="skip"), tmp_path / "out")
    assert manifest.splits["train"].episodes == 1
    by_reason = {"broken_episode": 1, "image_broken": 2, "image_missing": 1, "no_steps": 1}
    assert manifest.skipped["by_reason"] == by_reason
    assert "x must be a number from 0 to 1, not 1.2" in manifest.skipped["examples"]["broken_episode"][0]
    assert "episode-2/001.png" in manifest.skipped["examples"]["image_broken"][0]


def run(config: dict[str, Any], out: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    file = out.parent / "pack.yaml"
    file.write_text(yaml.safe_dump(config))
    code = main(["--config", str(file), "--out", str(out)])
    return code, *capsys.readouterr()


def test_by_default_the_first_broken_episode_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run({"episodes": [str(broken(tmp_path / "in"))]}, tmp_path / "out", capsys)
    assert code == 78
    assert "image_missing" in err
    assert err.count("\n") == 1
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"episodes": ["nowhere"]}, "episodes: there is no folder nowhere"),
        ({"episodes": ["."], "split": {"test": 0.6, "validation": 0.4}}, "must be below 1"),
        ({"episodes": ["."], "split": {"by": "user"}}, "Invalid enum value 'user'"),
        (
            {"episodes": ["."], "split": {"test": 0.2, "required": ["validation"]}},
            "split.required: no episode can fall into 'validation'; allowed here: train, test",
        ),
        ({"episodes": []}, "Expected `array` of length >= 1"),
        ({"episodes": ["tests"]}, "there is no episode to pack"),
    ],
)
def test_bad_configurations_are_one_line(
    config: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(config, tmp_path / "out", capsys)
    assert code == 78
    assert message in err
    assert err.count("\n") == 1


def test_a_second_run_finds_its_work_done_and_another_configuration_is_refused(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"episodes": [str(folders)]}
    assert run(config, tmp_path / "out", capsys)[0] == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    code, out, _ = run(config, tmp_path / "out", capsys)
    assert code == 0
    assert "12 episodes" in out
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before
    code, _, err = run(config | {"split": {"test": 0.5}}, tmp_path / "out", capsys)
    assert code == 78
    assert "already holds a dataset" in err


def test_an_empty_split_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three recordings and a fifth for the test: none may fall there, and the next job would find no such split."""
    root = write_folders(tmp_path / "in", [episode(0), episode(2)])
    config = {"episodes": [str(root)], "split": {"test": 0.001, "validation": 0.001, "by": "task"}}
    for _ in range(2):  # made, and found made
        code, out, _ = run(config, tmp_path / "out", capsys)
        assert code == 0
        warnings = [line.strip() for line in out.splitlines() if "warning" in line]
        assert warnings == [
            f"warning: split {name!r} is empty: of 2 episodes none fell into its share of 0.001 (by: task); "
            "more episodes or a larger share fill it"
            for name in ("validation", "test")
        ]
    full = {"episodes": [str(root)]}
    assert "warning" not in run(full, tmp_path / "full", capsys)[1]


@pytest.mark.parametrize("by", ["task", "given"])
def test_an_empty_split_that_a_later_job_needs_is_refused(
    by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [
        (msgspec.structs.replace(which, tags=("split:train",)), frames) for which, frames in (episode(0), episode(2))
    ]
    root = write_folders(tmp_path / "in", made)
    split = {"by": by, "required": ["test"]} | ({} if by == "given" else {"test": 0.001})
    code, _, err = run({"episodes": [str(root)], "split": split}, tmp_path / "out", capsys)
    assert code == 78
    assert "split.required: split 'test' is empty: " in err
    assert err.count("\n") == 1
    assert not any((tmp_path / "out").iterdir())
    assert run({"episodes": [str(root)], "split": split | {"required": ["train"]}}, tmp_path / "out", capsys)[0] == 0


def test_a_split_without_an_action_is_as_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, frames = episode(0)
    silent = tuple(msgspec.structs.replace(step, action=None, parse_error="?") for step in made.steps)
    tagged = msgspec.structs.replace(made, steps=silent, tags=("split:test",))
    other, _ = episode(1)
    learnable = msgspec.structs.replace(other, tags=("split:train",))
    root = write_folders(tmp_path / "in", [(tagged, frames), (learnable, frames)])
    config = {"episodes": [str(root)], "split": {"by": "given"}}
    code, out, _ = run(config, tmp_path / "out", capsys)
    assert code == 0
    assert "warning: split 'test' holds 1 episodes and no step with an action" in out
    code, _, err = run({**config, "split": {"by": "given", "required": ["test"]}}, tmp_path / "again", capsys)
    assert code == 78
    assert "split 'test' holds 1 episodes and no step with an action" in err


def test_a_dataset_of_an_older_version_is_found_made(folders: Path, tmp_path: Path) -> None:
    """Its dataset.json lacks the fields of the configuration that are younger than it."""
    config = PackConfig(episodes=[str(folders)], split=SplitConfig(test=0.3))
    pack(config, tmp_path / "out")
    marker = tmp_path / "out" / "dataset.json"
    data = json.loads(marker.read_text())
    del data["made_from"]["split"]["required"]
    marker.write_text(json.dumps(data))
    assert pack(config, tmp_path / "out").splits["train"].episodes
    assert "required" not in json.loads(marker.read_text())["made_from"]["split"]


def test_foreign_files_are_not_touched(folders: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    mine = tmp_path / "out" / "mine-00000.parquet"
    mine.write_text("mine")
    with pytest.raises(ConfigError, match="holds files that are not a dataset's"):
        pack(PackConfig(episodes=[str(folders)]), tmp_path / "out")
    assert mine.read_text() == "mine"


def test_an_image_is_decoded_once_however_often_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    real = Image.open

    def count(*args: Any, **more: Any) -> Any:
        decoded.append(1)
        return real(*args, **more)

    monkeypatch.setattr(Image, "open", count)
    write_packed(tmp_path / "out", {"train": [episode(number, frames=[png("same")] * 4) for number in range(5)]})
    assert len(decoded) == 1


def test_a_writer_does_not_remember_what_it_wrote(tmp_path: Path) -> None:
    """The database is asked for hashes that have left the memory."""
    from training.data.packed import writer as module

    before, module.RECENT = module.RECENT, 1  # type: ignore[misc]
    try:
        manifest = write_packed(tmp_path / "out", {"train": [episode(n % 3, 2) for n in range(9)]})
    finally:
        module.RECENT = before  # type: ignore[misc]
    assert manifest.index.images == 9
