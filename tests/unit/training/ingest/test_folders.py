from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from eval.actions import Action, ActionType
from eval.episodes import Episode, Step, frame_name, iter_episodes, read_episode, write_episode
from eval.episodes.pictures import opened
from tests.unit.eval.strategies import NAME, TEXT, actions
from tests.unit.training.ingest.material import FRAME, report, scene, snapshot
from training.data.__main__ import main
from training.data.ingest import source as importers


def run(tmp_path: Path, **changes: Any) -> tuple[int, Path]:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"format": "episodes", "recording": str(tmp_path / "in"), **changes}))
    return main(["ingest", "--config", str(config), "--out", str(tmp_path / "out")]), tmp_path / "out"


CLICK = Action(ActionType.CLICK, x=0.25, y=0.25)
DONE = Action(ActionType.DONE)


def episode(
    root: Path, name: str = "one", made: tuple[Action | None, ...] = (CLICK, DONE), final: bool = True, **more: Any
) -> Path:
    steps = tuple(Step(index=i, screenshot=frame_name(i), action=action) for i, action in enumerate(made))
    about = {"episode_id": name, "task_id": name, "instruction": "Do it", "goal": "Do it", "screen": FRAME}
    frames = [scene(number + 1) for number in range(len(steps) + final)]
    write_episode(root / name, Episode(**{**about, "steps": steps, **more}), frames)
    return root / name


STEPS = st.builds(
    Step,
    index=st.just(0),
    screenshot=st.just(""),
    action=st.none() | actions(),
    response=st.none() | TEXT,
    thought=st.none() | TEXT,
    parse_error=st.none() | TEXT,
    reward=st.floats(-1, 1),
    done=st.booleans(),
    time=st.none() | st.floats(0, 2e9),
    metrics=st.dictionaries(NAME, st.floats(0, 1), max_size=2),
    token_ids=st.none() | st.lists(st.integers(0, 2**20), max_size=3),
    logprobs=st.none() | st.lists(st.floats(-30, 0), max_size=3),
)
EPISODES = st.builds(
    Episode,
    episode_id=st.text("abz-_.@019", min_size=1, max_size=20).filter(lambda name: name[0] != "." and name != "in"),
    task_id=NAME,
    instruction=TEXT,
    screen=st.just((8, 6)),
    goal=TEXT,
    seed=st.integers(0, 2**31),
    success=st.none() | st.booleans(),
    score=st.none() | st.floats(0, 1),
    steps=st.lists(STEPS, min_size=1, max_size=4).map(tuple),
    agent=NAME,
    environment=NAME,
    source=NAME,
    started=st.none() | st.just("2025-11-21T10:00:00+00:00"),
    duration_ms=st.none() | st.integers(0, 10**9),
    tags=st.lists(NAME, max_size=2).map(tuple),
    metadata=st.dictionaries(NAME, st.none() | st.booleans() | st.integers() | TEXT | st.lists(TEXT), max_size=3),
)


@settings(deadline=None, max_examples=40)
@given(EPISODES, st.booleans())
def test_what_is_written_is_read_and_ingested_again_equal(made: Episode, final: bool) -> None:
    steps = tuple(msgspec.structs.replace(step, index=i, screenshot=frame_name(i)) for i, step in enumerate(made.steps))
    made = msgspec.structs.replace(made, steps=steps)
    with tempfile.TemporaryDirectory() as name:
        tmp_path = Path(name)
        frames = [Image.new("RGB", (8, 6), (i, i, i)) for i in range(len(steps) + final)]
        write_episode(tmp_path / "in" / "some", made, frames)
        assert read_episode(tmp_path / "in" / "some") == made
        code, out = run(tmp_path)
        assert code == 0
        ((folder, found),) = iter_episodes(out)
        assert found == made
        assert snapshot(folder) == snapshot(tmp_path / "in" / "some")


def test_checking_writes_nothing_but_the_report(tmp_path: Path) -> None:
    episode(tmp_path / "in")
    code, out = run(tmp_path, check=True)
    assert code == 0
    assert [path.name for path in out.iterdir()] == ["report.json"]
    assert report(out)["steps"] == {"kept": 2, "dropped": {}, "by_type": {"click": 1, "done": 1}}


def test_each_picture_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    episode(tmp_path / "in", "a")
    episode(tmp_path / "in", "b", success=False)
    asked: list[str] = []

    def counted(source: Path | bytes, name: str = "", formats: list[str] | None = None) -> Image.Image:
        asked.append(name)
        return opened(source, name, formats)

    monkeypatch.setattr(importers, "opened", counted)
    assert run(tmp_path)[0] == 0
    assert sorted(asked) == sorted(path.name for path in (tmp_path / "in").glob("*/*.png"))
    assert len(asked) == 6


def test_a_folder_is_not_copied_onto_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    episode(tmp_path / "out")
    before = snapshot(tmp_path / "out")
    assert run(tmp_path, recording=str(tmp_path / "out"))[0] == 78
    assert "check: true" in capsys.readouterr().err
    assert snapshot(tmp_path / "out") == before
    assert run(tmp_path, recording=str(tmp_path / "out"), check=True)[0] == 0


def edit(name: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edited(folder: Path) -> None:
        lines = (
            [json.loads(line) for line in (folder / name).read_text().splitlines()] if name != "episode.json" else []
        )
        if not lines:
            lines = [json.loads((folder / name).read_text())]
        change(lines[0])
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    return edited


def write(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data) and None


def other_size(folder: Path) -> None:
    scene(1, (100, 100)).save(folder / "001.png")


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda folder: (folder / "episode.json").unlink(), "unfinished: there is no episode.json"),
        (edit("episode.json", lambda e: e.update(schema_version="0.9")), "wrong_schema: schema_version is '0.9'"),
        (edit("episode.json", lambda e: e.pop("schema_version")), "wrong_schema: schema_version is None"),
        (write("episode.json", b"[]"), "wrong_schema"),
        (write("episode.json", b"\xff{"), "broken_episode: episode.json"),
        (edit("episode.json", lambda e: e.update(task_id=5)), "broken_episode: Expected `str`"),
        (edit("episode.json", lambda e: e.update(steps=7)), "broken_episode: steps.jsonl does not have the steps"),
        (lambda folder: (folder / "steps.jsonl").unlink(), "broken_episode: no steps.jsonl"),
        (write("steps.jsonl", b"{half\n"), "bad_line: steps.jsonl:1 is no JSON object"),
        (edit("steps.jsonl", lambda s: s["action"].update(x=1.2)), "off_screen: steps.jsonl:1: x is 1.2"),
        (edit("steps.jsonl", lambda s: s["action"].update(type="jump")), "broken_episode: step: unknown action type"),
        (edit("steps.jsonl", lambda s: s.update(screenshot="../x.png")), "broken_episode: frames are named ../x.png"),
        (lambda folder: (folder / "000.png").unlink(), "image_missing: 000.png"),
        (lambda folder: (folder / "002.png").write_bytes(b"none") and None, "image_broken: 002.png"),
        (other_size, "other_size: 001.png is 100x100"),
    ],
)
def test_damage_is_one_line_and_78_or_a_counted_skip(
    damage: Callable[[Path], None], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episode(tmp_path / "in", "good")
    damage(episode(tmp_path / "in", "bad"))
    code, out = run(tmp_path)
    assert code == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"config: bad: {what}")
    code, out = run(tmp_path, on_bad_sample="skip")
    assert code == 0
    assert report(out)["episodes"] == {"kept": 1, "dropped": {what.split(":")[0]: 1}}
    assert [found.episode_id for _, found in iter_episodes(out)] == ["good"]


def test_an_episode_without_steps_is_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    episode(tmp_path / "in", made=())
    assert run(tmp_path)[0] == 78
    assert capsys.readouterr().err.startswith("config: one: no_steps")


def test_one_id_in_two_folders_is_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    episode(tmp_path / "in", "a")
    episode(tmp_path / "in", "b", episode_id="a")
    assert run(tmp_path)[0] == 78
    assert capsys.readouterr().err.startswith("config: b: duplicate_id: a")


@pytest.mark.parametrize(
    ("other", "about", "contradicts"),
    [
        ((CLICK, DONE), {}, False),
        ((Action(ActionType.CLICK, x=0.28, y=0.25), DONE), {}, False),
        ((Action(ActionType.CLICK, x=0.5, y=0.25), DONE), {}, True),
        ((Action(ActionType.RIGHT_CLICK, x=0.25, y=0.25), DONE), {}, True),
        ((CLICK, Action(ActionType.FAIL)), {}, True),
        ((None, Action(ActionType.FAIL)), {}, False),  # another past
        ((Action(ActionType.CLICK, x=0.5, y=0.25), DONE), {"goal": "Do that"}, False),
        ((Action(ActionType.CLICK, x=0.5, y=0.25), DONE), {"success": False}, False),
        ((Action(ActionType.CLICK, x=0.5, y=0.25), DONE), {"outcome": "infra"}, False),
    ],
)
def test_labels_that_contradict_each_other_are_found(
    other: tuple[Action | None, ...],
    about: dict[str, Any],
    contradicts: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    episode(tmp_path / "in", "a")
    folder = episode(tmp_path / "in", "b", other, **about)
    with Image.open(folder / "000.png") as image:
        image.save(folder / "000.png", compress_level=0)  # other bytes, the same pixels
    code, _ = run(tmp_path)
    assert code == (78 if contradicts else 0)
    if contradicts:
        assert capsys.readouterr().err.startswith("config: b: contradictory_label: step ")
    code, out = run(tmp_path, on_bad_sample="skip")
    assert report(out)["episodes"]["dropped"] == ({"contradictory_label": 1} if contradicts else {})


def test_a_folder_without_episodes_is_78(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("a file")
    assert run(tmp_path)[0] == 78
    assert "there is no episode folder in" in capsys.readouterr().err
