"""What the tests of the importers share."""

from __future__ import annotations

import functools
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image


def report(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    return found


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# openadapt-capture. The tables as its recorder makes them, without those that nothing reads.

SCHEMA = """
CREATE TABLE recording (
    id INTEGER PRIMARY KEY, timestamp NUMERIC(10, 2), monitor_width INTEGER, monitor_height INTEGER, pixel_ratio FLOAT,
    double_click_interval_seconds NUMERIC, double_click_distance_pixels NUMERIC, platform VARCHAR,
    task_description VARCHAR, video_start_time NUMERIC(10, 2), config JSON, original_recording_id INTEGER
);
CREATE TABLE action_event (
    id INTEGER PRIMARY KEY, source_ordinal INTEGER, name VARCHAR, timestamp NUMERIC(10, 2),
    recording_timestamp NUMERIC(10, 2), recording_id INTEGER, screenshot_timestamp NUMERIC(10, 2),
    screenshot_id INTEGER, window_event_timestamp NUMERIC(10, 2), window_event_id INTEGER,
    browser_event_timestamp NUMERIC(10, 2), browser_event_id INTEGER,
    mouse_x NUMERIC, mouse_y NUMERIC, mouse_dx NUMERIC, mouse_dy NUMERIC, active_segment_description VARCHAR,
    available_segment_descriptions VARCHAR, mouse_button_name VARCHAR, mouse_pressed BOOLEAN,
    key_name VARCHAR, key_char VARCHAR, key_vk VARCHAR,
    canonical_key_name VARCHAR, canonical_key_char VARCHAR, canonical_key_vk VARCHAR,
    parent_id INTEGER, element_state JSON, structural_observation JSON, disabled BOOLEAN
);
CREATE TABLE screenshot (
    id INTEGER PRIMARY KEY, source_ordinal INTEGER, recording_timestamp NUMERIC(10, 2), recording_id INTEGER,
    timestamp NUMERIC(10, 2), png_data BLOB, png_sha256 VARCHAR
);
CREATE TABLE window_event (id INTEGER PRIMARY KEY, recording_id INTEGER, timestamp NUMERIC(10, 2), title VARCHAR);
"""
START = 1_700_000_000.0
FRAME = (320, 200)
FPS = 20


def down(time: float, x: float, y: float, button: str = "left", **more: Any) -> dict[str, Any]:
    more = {"mouse_button_name": button, "mouse_pressed": 1, **more}
    return {"name": "click", "timestamp": START + time, "mouse_x": x, "mouse_y": y, **more}


def up(time: float, x: float, y: float, button: str = "left", **more: Any) -> dict[str, Any]:
    return down(time, x, y, button, **{"mouse_pressed": 0, **more})


def click(time: float, x: float, y: float, button: str = "left", **more: Any) -> list[dict[str, Any]]:
    return [down(time, x, y, button, **more), up(time + 0.05, x, y, button, **more)]


def scroll(time: float, x: float, y: float, dx: float, dy: float) -> dict[str, Any]:
    named = {"mouse_x": x, "mouse_y": y, "mouse_dx": dx, "mouse_dy": dy}
    return {"name": "scroll", "timestamp": START + time, **named}


def key(name: str, time: float, key: str, **more: Any) -> dict[str, Any]:
    """A press or release, as the recorder writes it: characters under char, all else under name."""
    typed = {"key_char": key, "canonical_key_char": key.lower()} if len(key) == 1 else {}
    named = {"key_name": key, "canonical_key_name": key.removesuffix("_l").removesuffix("_r")}
    return {"name": name, "timestamp": START + time, **(typed or named), **more}


def stroke(time: float, name: str, **more: Any) -> list[dict[str, Any]]:
    return [key("press", time, name, **more), key("release", time + 0.02, name, **more)]


def typed(time: float, text: str) -> list[dict[str, Any]]:
    return [row for number, char in enumerate(text) for row in stroke(time + 0.1 * number, char)]


def scene(number: int, size: tuple[int, int] = FRAME) -> Image.Image:
    """Pictures that a person tells apart at a glance; `number_of` reads them back."""
    image = Image.new("RGB", size, (40, 40, 40))
    for bit in range(6):
        if number >> bit & 1:
            box = (size[0] * bit // 6, 0, size[0] * (bit + 1) // 6, size[1])
            image.paste((230, 230, 230), box)
    return image


def number_of(path: Path) -> int:
    with Image.open(path) as image:
        middle = [
            image.convert("L").getpixel((image.width * (2 * bit + 1) // 12, image.height // 2)) for bit in range(6)
        ]
    return sum(1 << bit for bit, shade in enumerate(middle) if isinstance(shade, int) and shade > 128)


def video(path: Path, scenes: list[tuple[float, Image.Image]], length: float, options: str = "") -> None:
    """An MP4 of FPS frames a second, each scene shown from its time on."""
    import av

    with av.open(str(path), "w", options={"movflags": options} if options else {}) as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "10", "preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = *scenes[0][1].size, "yuv420p"
        for number in range(round(length * FPS)):
            image = [image for time, image in scenes if time <= number / FPS + 1e-9][-1]
            frame = av.VideoFrame.from_image(image)
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


@functools.cache
def _six_scenes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        video(path, [(float(second), scene(second + 1)) for second in range(6)], 6.0)
        return path.read_bytes()


def capture(
    folder: Path, rows: list[dict[str, Any]], scenes: list[tuple[float, Image.Image]] | None = None, **recording: Any
) -> Path:
    """A recording: its database, and a video unless `scenes` is empty (by default one scene a second for six)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recording.db").unlink(missing_ok=True)
    about = {
        "id": 1,
        "timestamp": START - 0.5,
        "monitor_width": FRAME[0],
        "monitor_height": FRAME[1],
        "double_click_interval_seconds": 0.5,
        "double_click_distance_pixels": 5,
        "platform": "linux",
        "task_description": "Do it",
        "video_start_time": START,
        **recording,
    }
    connection = sqlite3.connect(folder / "recording.db")
    connection.executescript(SCHEMA)
    insert(connection, "recording", about)
    for row in rows:
        insert(connection, "action_event", {"recording_id": 1, "recording_timestamp": START - 0.5, **row})
    connection.commit()
    connection.close()
    path = folder / f"oa_recording-{START - 0.5}.mp4"
    if scenes is None:
        path.write_bytes(_six_scenes())
    elif scenes:
        video(path, scenes, 6.0)
    return folder


def insert(connection: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


# OSWorld


def osworld(
    folder: Path, actions: list[Any], score: str | None = "1.0\n", task: Path | None = None, **rows: Any
) -> Path:
    """A task's results: a row and the picture after it per action; scene n + 1 comes after action n."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, action in enumerate(actions, 1):
        name = f"step_{number}_20251121@10000{number}.png"
        scene(number).save(folder / name)
        row = {"step_num": number, "action_timestamp": f"20251121@10000{number}", "action": action, "response": "So."}
        lines.append({**row, "reward": 0, "done": action in ("DONE", "FAIL"), "info": {}, "screenshot_file": name})
    (folder / "traj.jsonl").write_text("".join(json.dumps(line | rows) + "\n" for line in lines))
    if score is not None:
        (folder / "result.txt").write_text(score)
    if task is not None:
        (task / folder.parent.name).mkdir(parents=True, exist_ok=True)
        text = json.dumps({"id": folder.name, "instruction": "Do it"})
        (task / folder.parent.name / f"{folder.name}.json").write_text(text)
    return folder
