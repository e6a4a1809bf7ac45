"""Whatever a source holds: an importer ends with 0, 1 or 78, never with a traceback, and never makes up a click."""

from __future__ import annotations

import io
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eval.episodes import iter_episodes
from tests.unit.training.ingest.material import START, capture, insert, scene
from training.data.__main__ import main

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
SLOW = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def clicks(config: dict[str, Any], tmp_path: Path) -> int:
    """How many clicks came out."""
    (tmp_path / "config.json").write_text(json.dumps({"on_bad_sample": "skip", **config}))
    out = tmp_path / "out"
    assert main(["ingest", "--config", str(tmp_path / "config.json"), "--out", str(out)]) in (0, 1)
    steps = [step for _, episode in iter_episodes(out) for step in episode.steps]
    return sum(step.action is not None and "click" in step.action.type.value for step in steps)


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "code": JSON | st.sampled_from(["pyautogui.press('a')", "pyautogui.scroll(1e999)", "pyautogui.write(x)"]),
        **dict.fromkeys(("thought", "observation", "action", "last_step_correct", "reflection"), JSON),
    },
)
ITEMS = JSON | st.fixed_dictionaries({"image": JSON | st.just("0.png"), "value": VALUES | JSON})
LINES = JSON | st.fixed_dictionaries(
    {"task_id": JSON | st.just("a"), "instruction": JSON | st.just("b"), "traj": JSON | st.lists(ITEMS, max_size=3)},
    optional={"messages": JSON | st.lists(JSON, max_size=3), "images": JSON, "task_completed": JSON},
)


@SLOW
@given(st.lists(LINES, min_size=1, max_size=4))
def test_strange_trajectories(lines: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        tmp_path = Path(name)
        (tmp_path / "in" / "images").mkdir(parents=True)
        scene(1).save(tmp_path / "in" / "images" / "0.png")
        (tmp_path / "in" / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
        assert clicks({"format": "agentnet", "recording": str(tmp_path / "in")}, tmp_path) == 0


ROWS = JSON | st.fixed_dictionaries(
    {"action": JSON, "screenshot_file": JSON | st.just("a.png")},
    optional={"step_num": JSON, "reward": JSON, "done": JSON, "response": JSON, "instruction": JSON, "Error": JSON},
)


@SLOW
@given(st.lists(ROWS, max_size=5), st.none() | st.text(max_size=5))
def test_strange_results(rows: list[Any], score: str | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        tmp_path = Path(name)
        folder = tmp_path / "in" / "chrome" / "one"
        folder.mkdir(parents=True)
        scene(1).save(folder / "a.png")
        told = [{"instruction": "Do it"}, *rows]
        (folder / "traj.jsonl").write_text("\n".join(map(json.dumps, told)))
        if score is not None:
            (folder / "result.txt").write_text(score, encoding="utf-8", errors="replace")
        assert clicks({"format": "osworld", "recording": str(tmp_path / "in")}, tmp_path) == 0


CELL = st.none() | st.integers(-5, 2**62) | st.floats(allow_nan=False) | st.text(max_size=3) | st.binary(max_size=3)
COLUMNS = (
    *("mouse_x", "mouse_y", "mouse_dx", "mouse_dy", "mouse_button_name", "mouse_pressed", "key_name", "key_char"),
    *("canonical_key_name", "canonical_key_char", "parent_id", "disabled", "screenshot_timestamp", "source_ordinal"),
)
EVENTS = st.fixed_dictionaries(
    {
        "name": CELL | st.sampled_from(["scroll", "press", "release", "mouse.drag", "key.type", "move"]),
        "timestamp": CELL | st.floats(START, START + 9),
    },
    optional=dict.fromkeys(COLUMNS, CELL),
)
RECORDINGS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        (
            *("timestamp", "monitor_width", "monitor_height", "pixel_ratio", "double_click_interval_seconds"),
            *("double_click_distance_pixels", "platform", "task_description", "video_start_time", "config"),
        ),
        CELL,
    ),
)


@SLOW
@given(st.lists(EVENTS, max_size=6), st.just({}) | RECORDINGS)
def test_strange_databases(events: list[dict[str, Any]], recording: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        tmp_path = Path(name)
        folder = capture(tmp_path / "in" / "one", events, scenes=[], **recording)
        data = io.BytesIO()
        scene(1).save(data, format="PNG")
        connection = sqlite3.connect(folder / "recording.db")
        insert(connection, "screenshot", {"timestamp": START, "png_data": data.getvalue()})
        connection.commit()
        connection.close()
        assert clicks({"format": "openadapt", "recording": str(folder)}, tmp_path) == 0


@SLOW
@given(JSON, st.lists(JSON, max_size=3))
def test_strange_episodes(marker: Any, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        tmp_path = Path(name)
        folder = tmp_path / "in" / "one"
        folder.mkdir(parents=True)
        scene(1).save(folder / "000.png")
        if isinstance(marker, dict):
            marker["schema_version"] = "1.0.0"
        (folder / "episode.json").write_text(json.dumps(marker))
        (folder / "steps.jsonl").write_text("\n".join(map(json.dumps, steps)))
        assert clicks({"format": "episodes", "recording": str(tmp_path / "in")}, tmp_path) == 0
