from __future__ import annotations

import json
import shutil
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.episodes import Episode, iter_episodes, read_episode
from tests.unit.training.ingest.material import (
    FPS,
    FRAME,
    START,
    capture,
    click,
    down,
    insert,
    key,
    number_of,
    report,
    scene,
    scroll,
    snapshot,
    stroke,
    typed,
    up,
    video,
)
from training.data.__main__ import main


def run(source: Path, tmp_path: Path, **changes: Any) -> tuple[int, Path]:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"format": "openadapt", "recording": str(source), **changes}))
    return main(["ingest", "--config", str(config), "--out", str(tmp_path / "out")]), tmp_path / "out"


def one(out: Path) -> tuple[Path, Episode]:
    ((folder, episode),) = iter_episodes(out)
    return folder, episode


def shown(folder: Path, episode: Episode) -> list[int]:
    """The scene that each step stands on."""
    return [number_of(folder / step.screenshot) for step in episode.steps]


TASK = [
    *click(0.5, 80, 50),
    *typed(1.2, "Hi you"),
    *stroke(2.1, "enter"),
    key("press", 2.3, "ctrl_l"),
    *stroke(2.4, "s"),
    key("release", 2.5, "ctrl_l"),
    scroll(3.2, 160, 100, 0, -1),
    scroll(3.3, 160, 100, 0, -2),
    down(4.3, 40, 40),
    {"name": "move", "timestamp": START + 4.4, "mouse_x": 100, "mouse_y": 100},
    up(4.5, 200, 150),
]


def test_a_recording_becomes_an_episode_on_the_frames_before_each_action(tmp_path: Path) -> None:
    code, out = run(capture(tmp_path / "in" / "first", TASK), tmp_path)
    assert code == 0
    folder, episode = one(out)
    x, y = (lambda v: (v + 0.5) / FRAME[0]), (lambda v: (v + 0.5) / FRAME[1])
    assert [step.action for step in episode.steps] == [
        Action(ActionType.CLICK, x=x(80), y=y(50)),
        Action(ActionType.TYPE, text="Hi you"),
        Action(ActionType.KEY, keys=("enter",)),
        Action(ActionType.HOTKEY, keys=("ctrl", "s")),
        Action(ActionType.SCROLL, x=x(160), y=y(100), direction="down", amount=3),
        Action(ActionType.DRAG, x=x(40), y=y(40), x2=x(200), y2=y(150)),
    ]
    assert shown(folder, episode) == [1, 2, 3, 3, 4, 5]
    assert number_of(folder / "006.png") == 6  # the screen after the last action
    assert [step.time for step in episode.steps] == [START + t for t in (0.5, 1.2, 2.1, 2.4, 3.2, 4.3)]
    assert (episode.instruction, episode.screen, episode.success) == ("Do it", FRAME, None)
    assert report(out)["steps"] == {
        "kept": 6,
        "dropped": {},
        "by_type": {"click": 1, "drag": 1, "hotkey": 1, "key": 1, "scroll": 1, "type": 1},
    }


def test_mouse_points_of_a_hidpi_screen_are_fractions_of_the_desktop(tmp_path: Path) -> None:
    retina = {"monitor_width": FRAME[0] // 2, "monitor_height": FRAME[1] // 2, "pixel_ratio": 2.0, "platform": "darwin"}
    _, out = run(capture(tmp_path / "in" / "first", click(0.5, 80, 50), **retina), tmp_path)
    assert one(out)[1].steps[0].action == Action(ActionType.CLICK, x=80.5 / 160, y=50.5 / 100)


def test_without_the_size_of_the_desktop_the_pixel_ratio_gives_it(tmp_path: Path) -> None:
    bare = {"monitor_width": None, "monitor_height": None, "pixel_ratio": 2.0}
    _, out = run(capture(tmp_path / "in" / "first", click(0.5, 80, 50), **bare), tmp_path)
    assert one(out)[1].steps[0].action == Action(ActionType.CLICK, x=80.5 / 160, y=50.5 / 100)


def test_places_in_a_recorded_window_are_pixels_of_its_frames(tmp_path: Path) -> None:
    scoped = {"monitor_width": 999, "monitor_height": 10, "config": json.dumps({"capture_window": {"owner": "x"}})}
    _, out = run(capture(tmp_path / "in" / "first", click(0.5, 80, 50), **scoped), tmp_path)
    assert one(out)[1].steps[0].action == Action(ActionType.CLICK, x=80.5 / 320, y=50.5 / 200)


def test_a_frame_at_the_very_moment_of_the_action_is_not_before_it(tmp_path: Path) -> None:
    _, out = run(capture(tmp_path / "in" / "first", [*click(2.0, 9, 9), *click(3.0 + 1 / FPS, 90, 90)]), tmp_path)
    assert shown(*one(out)) == [2, 4]


def test_the_frame_that_the_recorder_bound_is_the_last_one_taken(tmp_path: Path) -> None:
    rows = click(2.5, 9, 9, screenshot_timestamp=START + 1.5)
    _, out = run(capture(tmp_path / "in" / "first", rows), tmp_path)
    assert shown(*one(out)) == [2]


def test_capture_times_in_the_video_count_more_than_its_own(tmp_path: Path) -> None:
    source = capture(tmp_path / "in" / "first", [*click(2.5, 9, 9), *click(4.5, 90, 90)])
    (path,) = source.glob("*.mp4")
    captures = [[second * FPS, START + second / 2] for second in range(6)]  # it was played at half its speed
    payload = json.dumps({"schema": "openadapt.capture-video-timing/v1", "captures": captures}).encode()
    mark = bytes.fromhex("d8e90f0620b44e0cb4494f70656e4164")
    with path.open("ab") as file:
        file.write(struct.pack(">I4s16s", 24 + len(payload), b"uuid", mark) + payload)
    _, out = run(source, tmp_path)
    assert shown(*one(out)) == [5, 6]


def test_an_action_before_the_first_frame_is_dropped(tmp_path: Path) -> None:
    _, out = run(capture(tmp_path / "in" / "first", [*click(-0.3, 9, 9), *click(1.5, 90, 90)]), tmp_path)
    assert report(out)["steps"]["dropped"] == {"no_frame_before": 1}
    assert one(out)[1].metadata["dropped"] == [{"index": 0, "reason": "no_frame_before", "detail": ""}]


def test_pictures_in_the_database_stand_in_for_a_video(tmp_path: Path) -> None:
    import io

    source = capture(tmp_path / "in" / "first", [*click(0.5, 9, 9), *click(2.5, 90, 90)], scenes=[])
    connection = sqlite3.connect(source / "recording.db")
    for second in range(4):
        data = io.BytesIO()
        scene(second + 1).save(data, format="PNG")
        row = {"recording_id": 1, "timestamp": START + second, "png_data": data.getvalue()}
        insert(connection, "screenshot", row)
    connection.commit()
    connection.close()
    _, out = run(source, tmp_path)
    assert shown(*one(out)) == [1, 3]


@pytest.mark.parametrize(
    ("end", "length", "kinds"),
    [("none", 2, ["click"]), ("done", 2, ["click", "done"]), ("done", 1, ["click"])],
)
def test_done_is_added_only_when_asked_for_and_on_a_frame_of_its_own(
    end: str, length: int, kinds: list[str], tmp_path: Path
) -> None:
    scenes = [(float(second), scene(second + 1)) for second in range(length)]
    _, out = run(capture(tmp_path / "in" / "first", click(0.5, 9, 9), scenes), tmp_path, end=end)
    folder, episode = one(out)
    assert [step.action.type.value for step in episode.steps if step.action] == kinds
    assert shown(folder, episode) == [1, 2][: len(kinds)]
    assert report(out)["notes"] == ({"no_frame_for_done": 1} if (end, length) == ("done", 1) else {})
    assert episode.success is None


def test_what_stopped_the_recording_is_no_part_of_the_task(tmp_path: Path) -> None:
    source = capture(tmp_path / "in" / "first", [*click(0.5, 9, 9), *typed(1.5, "oa.stop")])
    _, out = run(source, tmp_path)
    assert [step.action.type.value for step in one(out)[1].steps if step.action] == ["click"]
    assert report(out)["notes"] == {"stop_sequence": 1}


def test_disabled_rows_and_their_children_are_left_out(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "name": "mouse.singleclick", "timestamp": START + 0.5, "disabled": 1},
        *[row | {"parent_id": 1} for row in click(0.5, 9, 9)],
        {"id": 10, "name": "mouse.doubleclick", "timestamp": START + 1.5, "disabled": 0},
        *[row | {"parent_id": 10} for row in [*click(1.5, 50, 50), *click(1.7, 50, 50)]],
        {"id": 20, **down(2.5, 80, 80), "name": "mouse.singleclick"},
        {"id": 21, **down(3.5, 80, 80), "name": "mouse.drag", "mouse_dx": 60, "mouse_dy": 0},
        {"id": 22, "name": "key.type", "timestamp": START + 4.2, "key_char": "abc"},
        {"id": 23, "name": "key.shortcut", "timestamp": START + 4.4, "key_name": "c"},
        {"id": 24, "name": "browser.click", "timestamp": START + 4.5, "mouse_x": 5, "mouse_y": 5},
        *[row | {"disabled": 1} for row in click(4.6, 9, 9)],
    ]
    _, out = run(capture(tmp_path / "in" / "first", rows), tmp_path)
    kinds = [step.action.type.value for step in one(out)[1].steps if step.action]
    assert kinds == ["double_click", "click", "drag", "type"]
    assert report(out)["notes"] == {"disabled_events": 5}
    assert report(out)["steps"]["dropped"] == {"unknown_event": 2}


def test_a_video_cut_short_gives_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = capture(tmp_path / "in" / "first", TASK)
    (path,) = source.glob("*.mp4")
    scenes = [(float(second), scene(second + 1)) for second in range(6)]
    video(path, scenes, 6.0, "faststart")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    code, out = run(source, tmp_path)
    assert code == 78
    assert "frame_missing: oa_recording" in (line := capsys.readouterr().err)
    assert line.count("\n") == 1
    code, out = run(source, tmp_path, on_bad_sample="skip")
    assert code == 0
    folder, episode = one(out)
    kept = len(episode.steps)
    assert 0 < kept < 6
    assert shown(folder, episode) == [1, 2, 3, 3, 4, 5][:kept]
    assert report(out)["steps"]["dropped"] == {"frame_missing": 6 - kept}
    assert sorted(p.name for p in folder.glob("*.png")) == [f"{i:03d}.png" for i in range(kept)]  # and no final one


def test_actions_after_the_last_frame_of_a_whole_video_stand_on_it(tmp_path: Path) -> None:
    _, out = run(capture(tmp_path / "in" / "first", [*click(5.5, 9, 9), *click(60, 90, 90)]), tmp_path)
    assert shown(*one(out)) == [6, 6]


def no_database(folder: Path) -> None:
    (folder / "recording.db").write_bytes(b"This is no database." * 100)


def execute(sql: str) -> Any:
    def change(folder: Path) -> None:
        connection = sqlite3.connect(folder / "recording.db")
        connection.executescript(sql)
        connection.close()

    return change


def truncate(folder: Path) -> None:
    (path,) = folder.glob("*.mp4")
    path.write_bytes(path.read_bytes()[:2000])


def remove(pattern: str) -> Any:
    return lambda folder: [path.unlink() for path in folder.glob(pattern)]


def second_video(folder: Path) -> None:
    (path,) = folder.glob("*.mp4")
    shutil.copy(path, folder / "oa_recording-2.mp4")


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (no_database, "first: database_unreadable: file is not a database"),
        (remove("recording.db"), "first: no_database: there is no recording.db"),
        (execute("DROP TABLE action_event"), "first: missing_table: action_event"),
        (execute("ALTER TABLE action_event DROP COLUMN mouse_x"), "missing_columns: action_event lacks mouse_x"),
        (execute("DELETE FROM recording"), "first: no_recording: 0 rows"),
        (execute("INSERT INTO recording (id) VALUES (2)"), "first: several_recordings: 2 rows"),
        (execute("UPDATE recording SET task_description = ' '"), "first: no_instruction"),
        (execute("UPDATE recording SET timestamp = NULL"), "first: no_start"),
        (execute("UPDATE action_event SET timestamp = NULL"), "first: no_time: event 1 has no timestamp"),
        (execute("DELETE FROM action_event"), "first: no_steps"),
        (execute("UPDATE recording SET monitor_width = 640"), "first: screen_mismatch: frames of 320x200"),
        (execute("UPDATE recording SET monitor_width = NULL"), "first: no_screen_size"),
        (execute("UPDATE action_event SET mouse_x = 320"), "first action 0 at 1.00 s: off_screen: (320.0, 50.0)"),
        (execute("UPDATE action_event SET mouse_y = -1"), "first action 0 at 1.00 s: off_screen"),
        (truncate, "first: video_unreadable: oa_recording"),
        (remove("*.mp4"), "first: no_video"),
        (second_video, "first: several_videos"),
    ],
)
def test_damage_is_one_line_and_78_or_a_counted_skip(
    damage: Any, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in"
    damage(capture(source / "first", click(0.5, 80, 50)))
    capture(source / "second", click(0.5, 80, 50))
    code, out = run(source, tmp_path)
    assert code == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert what in line
    code, out = run(source, tmp_path, on_bad_sample="skip")
    assert code == 0
    assert [episode.episode_id for _, episode in iter_episodes(out)] == ["second"]
    assert report(out)["faults"]["total"] == 1
    assert sum(report(out)["episodes"]["dropped"].values()) == 1


def test_rows_that_still_lie_in_the_log_are_read_and_the_recording_stays_as_it_is(tmp_path: Path) -> None:
    source = capture(tmp_path / "in" / "first", click(0.5, 80, 50))
    connection = sqlite3.connect(source / "recording.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    for row in click(2.5, 9, 9):
        insert(connection, "action_event", {"recording_id": 1, **row})
    connection.commit()
    crashed = tmp_path / "crashed"
    shutil.copytree(source, crashed)
    connection.close()
    before = snapshot(crashed)
    assert any(name.endswith("-wal") for name in before)
    _, out = run(crashed, tmp_path)
    assert len(read_episode(out / "crashed").steps) == 2
    assert snapshot(crashed) == before


def test_running_again_changes_nothing(tmp_path: Path) -> None:
    source = capture(tmp_path / "in" / "first", TASK)
    before = snapshot(source)
    _, out = run(source, tmp_path)
    first = snapshot(out)
    run(source, tmp_path)
    assert snapshot(out) == first
    assert snapshot(source) == before


def test_a_folder_without_recordings_is_78(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in" / "empty").mkdir(parents=True)
    assert run(tmp_path / "in", tmp_path)[0] == 78
    assert "there is no recording" in capsys.readouterr().err
