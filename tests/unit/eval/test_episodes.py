from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from eval.actions import Action, ActionType
from eval.episodes import (
    Episode,
    EpisodeError,
    EpisodeWriter,
    Step,
    frame_name,
    is_complete,
    iter_episodes,
    read_episode,
    write_episode,
)
from tests.unit.eval.strategies import NAME, TEXT, actions

FRAME = Image.new("RGB", (4, 3))


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    decisions = draw(st.lists(st.none() | st.lists(actions(), min_size=1, max_size=3), max_size=3))
    steps = tuple(
        Step(
            index=index,
            screenshot=frame_name(index),
            action=decision and decision[0],
            further_actions=tuple((decision or [])[1:]),
            response=draw(st.none() | TEXT),
            thought=draw(st.none() | TEXT),
            parse_error=draw(st.none() | TEXT),
            reward=draw(st.floats(-2, 3)),
            done=draw(st.booleans()),
            time=draw(st.none() | st.floats(0, 2e9)),
            metrics=draw(st.dictionaries(NAME, st.floats(0, 1), max_size=2)),
            token_ids=draw(st.none() | st.lists(st.integers(0, 10**6), max_size=3)),
            logprobs=draw(st.none() | st.lists(st.floats(-100, 0), max_size=3)),
        )
        for index, decision in enumerate(decisions)
    )
    return Episode(
        episode_id=draw(NAME),
        task_id=draw(NAME),
        instruction=draw(TEXT),
        screen=(draw(st.integers(1, 4000)), draw(st.integers(1, 4000))),
        seed=draw(st.integers(0, 2**31)),
        success=draw(st.none() | st.booleans()),
        score=draw(st.none() | st.floats(0, 1)),
        outcome=draw(st.sampled_from(["scored", "infra"])),
        error=draw(st.none() | TEXT),
        steps=steps,
        tags=tuple(draw(st.lists(NAME, max_size=2))),
        metadata=draw(st.dictionaries(NAME, TEXT | st.integers(-9, 9) | st.booleans(), max_size=2)),
    )


@given(episodes(), st.booleans())
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(tmp_path: Path, episode: Episode, final: bool) -> None:
    folder = tmp_path / "e"
    write_episode(folder, episode, [FRAME] * (len(episode.steps) + final))
    assert read_episode(folder) == episode
    assert len(list(folder.glob("*.png"))) == len(episode.steps) + final


def simple(**values: Any) -> Episode:
    steps = tuple(Step(index=i, screenshot=frame_name(i)) for i in range(2))
    return Episode(
        **{"episode_id": "e", "task_id": "t", "instruction": "i", "screen": (4, 3), "steps": steps, **values}
    )


def test_a_folder_without_its_marker_is_no_episode(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path / "e")
    for index in range(2):
        writer.frame(index, FRAME)
    assert not is_complete(tmp_path / "e")
    with pytest.raises(EpisodeError, match=r"no episode\.json"):
        read_episode(tmp_path / "e")
    write_episode(tmp_path / "whole", simple(), [FRAME] * 2)
    assert [folder.name for folder, _ in iter_episodes(tmp_path)] == ["whole"]


def test_a_cut_off_try_leaves_nothing_in_the_next(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path / "e")
    for index in range(9):
        writer.frame(index, FRAME)
    write_episode(tmp_path / "e", simple(), [FRAME] * 2)
    assert sorted(path.name for path in (tmp_path / "e").iterdir()) == [
        "000.png",
        "001.png",
        "episode.json",
        "steps.jsonl",
    ]


def test_frames_are_copied_as_they_are_when_they_are_bytes_or_files(tmp_path: Path) -> None:
    FRAME.save(tmp_path / "a.png", compress_level=0)
    data = (tmp_path / "a.png").read_bytes()
    write_episode(tmp_path / "e", simple(), [data, tmp_path / "a.png"])
    assert (tmp_path / "e" / "000.png").read_bytes() == (tmp_path / "e" / "001.png").read_bytes() == data


def test_the_number_of_frames_must_fit(tmp_path: Path) -> None:
    for count in (1, 4):
        with pytest.raises(EpisodeError, match=f"{count} frames for 2 steps"):
            write_episode(tmp_path / "e", simple(), [FRAME] * count)
    writer = EpisodeWriter(tmp_path / "e")
    with pytest.raises(EpisodeError, match=r"step 0 has no frame 000\.png"):
        writer.close(simple())
    assert not is_complete(tmp_path / "e")


def edit(path: Path, **values: Any) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in {**data, **values}.items() if v != "absent"}))


@pytest.mark.parametrize(
    "values",
    [
        {"schema_version": "2.0.0"},
        {"steps": 3},
        {"steps": "absent"},
        {"unknown": 1},
        {"success": "yes"},
        {"outcome": "lost"},
        {"screen": [4]},
        {"task_id": "absent"},
    ],
)
def test_a_wrong_marker_is_refused(values: dict[str, Any], tmp_path: Path) -> None:
    write_episode(tmp_path / "e", simple(), [FRAME] * 2)
    edit(tmp_path / "e" / "episode.json", **values)
    with pytest.raises(EpisodeError):
        read_episode(tmp_path / "e")


@pytest.mark.parametrize(
    "values",
    [
        {"index": 5},
        {"action": {"type": "hover"}},
        {"action": {"type": "clack"}},
        {"action": "CLICK"},
        {"action": []},
        {"unknown": 1},
        {"reward": "high"},
    ],
)
def test_a_wrong_step_is_refused(values: dict[str, Any], tmp_path: Path) -> None:
    write_episode(tmp_path / "e", simple(), [FRAME] * 2)
    path = tmp_path / "e" / "steps.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(json.dumps({**json.loads(first), **values}) + "\n" + second + "\n")
    with pytest.raises(EpisodeError):
        read_episode(tmp_path / "e")


def test_broken_files_are_refused(tmp_path: Path) -> None:
    write_episode(tmp_path / "e", simple(), [FRAME] * 2)
    for name in ("steps.jsonl", "episode.json"):
        odd = '{"\\ud83d": 1}', '{"index": "\\ud83d", "outcome": "\\ud83d"}'
        for text in ("{", "[]\n5\n", "[" * 2000, "9" * 5000, *odd):
            (tmp_path / "e" / name).write_text(text)
            with pytest.raises(EpisodeError):
                read_episode(tmp_path / "e")


def test_an_episode_of_schema_1_0_is_read_and_one_of_1_1_holds_several_actions(tmp_path: Path) -> None:
    old = tmp_path / "old"
    made = Episode(
        episode_id="e",
        task_id="t",
        instruction="i",
        screen=(4, 3),
        steps=(Step(index=0, screenshot="000.png", action=Action(ActionType.CLICK, x=0.5, y=0.5)),),
    )
    write_episode(old, made, [FRAME])
    marker = json.loads((old / "episode.json").read_text())
    assert marker["schema_version"] == "1.1.0"
    (old / "episode.json").write_text(json.dumps(marker | {"schema_version": "1.0.0"}))
    assert "further_actions" not in (old / "steps.jsonl").read_text()
    assert read_episode(old).steps == made.steps

    lines = {"action": {"type": "click"}, "further_actions": [{"type": "key", "keys": ["a"]}, {"type": "wait"}]}
    step = Step.from_json({"index": 0, "screenshot": "000.png", **lines})
    assert [action.type for action in step.further_actions] == ["key", "wait"]
    for wrong in ({"action": None}, {"further_actions": {}}, {"further_actions": [1]}, {"further_actions": [{}]}):
        with pytest.raises(EpisodeError):
            Step.from_json({"index": 0, "screenshot": "000.png", **lines, **wrong})
