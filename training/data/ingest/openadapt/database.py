"""The database of an openadapt-capture recording: `recording.db`, SQLite, read and never written.

Columns came and went with the recorder's versions: those that are needed must be there, the others are read where they
are. Times are Unix seconds. A row that is disabled is left out with all that hangs on it (`parent_id`); a merged row
that has children stands for them, so the children are read instead; one without children is taken apart again.

A database whose last rows still lie in its write-ahead log (or are half written, with a journal that undoes them) is
copied, and the copy is read with the log.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from eval.actions.geometry import Screen
from training.data.faults import BadSample
from training.data.ingest.openadapt.keyboard import InputEvent

NEEDED: Final = {
    "recording": {"id", "timestamp", "monitor_width", "monitor_height", "task_description", "video_start_time"},
    "action_event": {
        *("id", "name", "timestamp", "recording_id", "mouse_x", "mouse_y", "mouse_dx", "mouse_dy"),
        *("mouse_button_name", "mouse_pressed", "key_name", "key_char", "canonical_key_name", "canonical_key_char"),
        *("parent_id", "disabled"),
    },
}
ASPECT: Final = 0.02  # by how much the sides of screen and frame may stretch differently: videos have even sides
MERGED: Final = ("singleclick", "doubleclick", "drag", "type")


@dataclass(frozen=True)
class Capture:
    """
    started, video_started  Unix seconds; a video without a start of its own starts with the recording
    monitor                 (width, height) of the desktop in the mouse's pixels, or None
    ratio                   pixels of the screen per pixel of the mouse, or None
    framed                  the recorder has already turned the mouse's places into pixels of its frames
    """

    instruction: str | None
    started: float
    video_started: float
    monitor: tuple[int, int] | None
    ratio: float | None
    framed: bool
    interval: float
    near: float
    platform: str
    events: list[InputEvent]
    left_out: Counter[str]

    def screen(self, frame: tuple[int, int]) -> Screen:
        """The mouse's coordinate frame, given the size of the recorded frames. Raises BadSample.

        On HiDPI screens the mouse counts points and the frames have pixels; both cover the same desktop, so that
        fractions of the one are fractions of the other.
        """
        if self.framed:
            return Screen(*frame)
        if self.monitor is not None:
            (width, height), (monitor_width, monitor_height) = frame, self.monitor
            if abs(width / monitor_width / (height / monitor_height) - 1) > ASPECT:
                shapes = f"frames of {width}x{height} for a desktop of {monitor_width}x{monitor_height}"
                raise BadSample("screen_mismatch", shapes)
            return Screen(*self.monitor)
        if self.ratio is not None:
            return Screen(max(1, round(frame[0] / self.ratio)), max(1, round(frame[1] / self.ratio)))
        raise BadSample("no_screen_size", "neither the size of the desktop nor the pixel ratio is recorded")


def connect(path: Path, scratch: Path) -> sqlite3.Connection:
    """The database for reading. Raises BadSample."""
    if not path.is_file():
        raise BadSample("no_database", f"there is no {path.name}")
    logs = [path.with_name(f"{path.name}-{kind}") for kind in ("wal", "journal")]
    logs = [log for log in logs if log.is_file() and log.stat().st_size]
    try:
        if logs:
            for file in (path, *logs):
                shutil.copyfile(file, scratch / file.name)
            connection = sqlite3.connect(scratch / path.name)
        else:
            connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        connection.row_factory = sqlite3.Row
        return connection
    except (sqlite3.Error, OSError) as error:
        raise BadSample("database_unreadable", str(error)) from None


def read(connection: sqlite3.Connection) -> Capture:
    """The recording and its events. Raises BadSample."""
    try:
        columns = {table: _columns(connection, table) for table in NEEDED}
        recordings = connection.execute("SELECT * FROM recording ORDER BY id").fetchall()
        if len(recordings) != 1:
            raise BadSample("no_recording" if not recordings else "several_recordings", f"{len(recordings)} rows")
        recording = dict(recordings[0])
        order = "timestamp, id"
        if "source_ordinal" in columns["action_event"]:  # the recorder's own count; clocks may jump
            order = f"source_ordinal IS NULL, source_ordinal, {order}"
        query = "SELECT * FROM action_event WHERE recording_id = ? AND (name IS NULL OR name != 'move') ORDER BY "
        rows = [dict(row) for row in connection.execute(query + order, (recording["id"],))]
    except sqlite3.Error as error:
        raise BadSample("database_unreadable", str(error)) from None
    left_out: Counter[str] = Counter()
    started = _number(recording["timestamp"])
    if started is None:
        raise BadSample("no_start", "the recording has no timestamp")
    config = _json(recording.get("config"))
    width, height = _number(recording["monitor_width"]), _number(recording["monitor_height"])
    ratio = _number(recording.get("pixel_ratio")) or _number(config.get("pixel_ratio"))
    described = recording["task_description"]
    return Capture(
        instruction=described.strip() if isinstance(described, str) and described.strip() else None,
        started=started,
        video_started=_number(recording["video_start_time"]) or started,
        monitor=(int(width), int(height)) if width and height and width >= 1 and height >= 1 else None,
        ratio=ratio if ratio and ratio > 0 else None,
        framed=isinstance(config.get("capture_window"), dict) or isinstance(config.get("capture_desktop"), dict),
        interval=_number(recording.get("double_click_interval_seconds")) or 0.5,
        near=_number(recording.get("double_click_distance_pixels")) or 5.0,
        platform=str(recording.get("platform") or ""),
        events=list(_events(rows, left_out)),
        left_out=left_out,
    )


def screenshots(connection: sqlite3.Connection) -> Iterator[tuple[float, bytes]]:
    """(time, PNG) of every picture that the database holds, in the order of time, one at a time."""
    try:
        if not {"timestamp", "png_data"} <= _columns(connection, "screenshot"):
            return
        for time, data in connection.execute(
            "SELECT timestamp, png_data FROM screenshot WHERE png_data IS NOT NULL ORDER BY timestamp, id"
        ):
            if (at := _number(time)) is not None and isinstance(data, bytes):
                yield at, data
    except (sqlite3.Error, BadSample):
        return


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    columns = {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")}
    if not columns:
        raise BadSample("missing_table", table)
    if missing := NEEDED.get(table, set()) - columns:
        raise BadSample("missing_columns", f"{table} lacks {', '.join(sorted(missing))}")
    return columns


def _events(rows: list[dict[str, Any]], left_out: Counter[str]) -> Iterator[InputEvent]:
    parents = {row["id"]: row["parent_id"] for row in rows}
    disabled = {row["id"] for row in rows if row["disabled"]}
    has_children = {row["parent_id"] for row in rows if row["parent_id"] is not None}
    for row in rows:
        line, above = row["id"], set[Any]()
        while line is not None and line not in above:  # stops at a cycle
            above.add(line)
            line = parents.get(line)
        if above & disabled:
            left_out["disabled_events"] += 1
        elif row["id"] not in has_children:
            yield from _taken_apart(row)


def _taken_apart(row: dict[str, Any]) -> Iterator[InputEvent]:
    time = _number(row["timestamp"])
    if time is None:
        raise BadSample("no_time", f"event {row['id']} has no timestamp")
    name = str(row["name"] or "").lower().removeprefix("mouse.").removeprefix("key.")
    x, y, dx, dy = (_number(row[column]) for column in ("mouse_x", "mouse_y", "mouse_dx", "mouse_dy"))
    pressed = row["mouse_pressed"]
    base = InputEvent(
        name=name if name not in MERGED else "click",
        time=time,
        x=x,
        y=y,
        dx=dx,
        dy=dy,
        button=_text(row["mouse_button_name"]),
        pressed=None if pressed is None else bool(pressed),
        key=_text(row["canonical_key_name"]) or _text(row["key_name"]),
        char=_text(row["key_char"]),
        plain=_text(row["canonical_key_char"]),
        code=_text(row.get("key_vk")),
        bound=_number(row.get("screenshot_timestamp")),
    )
    if name in ("singleclick", "doubleclick") and x is not None:
        for _ in range(2 if name == "doubleclick" else 1):
            yield from _pressed(base, base)
    elif name == "drag" and None not in (x, y, dx, dy):
        yield from _pressed(base, replace(base, x=x + dx, y=y + dy))  # type: ignore[operator]
    elif name == "type" and base.char:
        yield from (replace(base, name="press", char=char, plain=char) for char in base.char)
    else:
        yield replace(base, name=name if name not in MERGED else f"{name} without children")


def _pressed(down: InputEvent, up: InputEvent) -> Iterator[InputEvent]:
    yield replace(down, pressed=True)
    yield replace(up, pressed=False)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value == value else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _json(value: Any) -> dict[str, Any]:
    try:
        decoded = json.loads(value) if isinstance(value, str | bytes) else value
    except (ValueError, RecursionError):
        decoded = None
    return decoded if isinstance(decoded, dict) else {}
