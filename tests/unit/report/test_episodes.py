"""The list of episodes: what is in it, where its pictures go, and how large the page may become."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from launcher.report import episodes as listed
from launcher.report import page as pages
from launcher.report.collect import collect
from launcher.report.page import write
from launcher.selection.select import select
from launcher.spec.model import Output
from launcher.store.base import Store
from tests.support.fakerun import FakeAttempt, episode_files, eval_files, fake_job, png, write_run
from tests.unit.report.test_html import parsed, rendered

OUTPUTS = {"results": Output()}


def record(task_id: str, **fields: Any) -> dict[str, Any]:
    told = {"benchmark": "login", "version": "1", "agent": "tiny", "score": 0.0, "success": False, "outcome": "scored"}
    return {**told, "task_id": task_id, **fields}


def run_of(store: Store, files: dict[str, bytes], *records: dict[str, Any]) -> str:
    if records:
        files |= {"tasks.jsonl": b"".join(json.dumps(one).encode() + b"\n" for one in records)}
    made = eval_files([True]) | files
    return write_run(store, fake_job("eval", outputs=OUTPUTS), [FakeAttempt(outputs={"results": made})])


def noise(seed: int, size: int) -> bytes:
    """A PNG that does not compress, of about `size` bytes."""
    rng = random.Random(seed)
    side = max(2, int((size / 3) ** 0.5))
    boxes = [(x, 0, 1, 1, (rng.randrange(256), rng.randrange(256), rng.randrange(256))) for x in range(4)]
    body = png(side, side, boxes)
    return body + rng.randbytes(max(0, size - len(body)))


def test_every_task_has_a_line_and_those_that_were_kept_a_replay(file_store: Store) -> None:
    why = {"kind": "loop", "rule": "The last answers repeat.", "why": "the same answer 4 times"}
    run = run_of(
        file_store,
        episode_files("kept", False),
        record("kept", episode="episodes/kept", failure=why, programs=["a", "b"], difficulty="hard", steps=4),
        record("gone", success=None, score=None, outcome="infra", error="the desktop is gone"),
        record("lacks", success=None, score=None, outcome="not run", error="no program gimp"),
        record("won", success=True, score=1.0, duration_ms=1500, metrics={"cost": 0.5}),
    )
    report = collect(file_store, select(file_store, [run]))
    told = {
        e.task: (e.outcome, e.failure, e.why, e.program, e.difficulty, e.replay is not None) for e in report.episodes
    }
    assert told == {
        "kept": ("failed", "loop", "the same answer 4 times", "a + b", "hard", True),
        "gone": ("infra", "infrastructure", "the desktop is gone", "", "", False),
        "lacks": ("not run", "not run", "no program gimp", "", "", False),
        "won": ("solved", "", "", "", "", False),
    }
    found = parsed(rendered(report))
    rows = [
        attributes
        for name, attributes in found.found
        if name == "details" and "episode" in (attributes.get("class") or "")
    ]
    assert [row.get("data-failure") for row in rows] == ["loop", "infrastructure", "not run", None]
    assert ["open" in row for row in rows] == [True, False, False, False]
    for words in ("Rule: The last answers repeat.", "1.5 s", "0.5000 USD", "no screens kept"):
        assert words in found.text, words


def test_episodes_are_folded_by_outcome_and_what_failed_comes_first(file_store: Store) -> None:
    files = episode_files("solved", True) | episode_files("failed", False)
    lines = [record(f"task-{k}", success=k % 2 == 0, outcome="scored", score=float(k % 2 == 0)) for k in range(50)]
    text = rendered(collect(file_store, select(file_store, [run_of(file_store, files, *lines)])))
    folds = re.findall(r'<details class="outcome"( open)?><summary><span class="badge \w*">(\w+)</span><b>(\d+)', text)
    assert [name for _, name, _ in folds] == ["failed", "solved"]
    links = re.findall(r'<a href="#(part-\d+)">([^<]+)</a>', text)
    assert "Replays" in [name for _, name in links]
    assert all(f'<h2 id="{place}">{name}</h2>' in text for place, name in links)


def test_an_episode_that_failed_before_its_first_screen_is_a_line_without_a_replay(file_store: Store) -> None:
    head = json.loads(episode_files("e", None)["episodes/e/episode.json"])
    files = {
        "episodes/e/episode.json": json.dumps(head | {"screen": [0, 0], "steps": 0}).encode(),
        "episodes/e/steps.jsonl": b"",
    }
    infra = {"success": None, "score": None, "outcome": "infra", "error": "no screen"}
    run = run_of(file_store, files, record("e", episode="episodes/e", **infra))
    report = collect(file_store, select(file_store, [run]))
    assert [(e.outcome, e.replay) for e in report.episodes] == [("infra", None)]
    assert "no screen" in parsed(rendered(report)).text


def test_a_screen_without_a_size_does_not_stop_the_page(file_store: Store) -> None:
    files = episode_files("e", True)
    head = json.loads(files["episodes/e/episode.json"])
    files["episodes/e/episode.json"] = json.dumps(head | {"screen": [0, 0]}).encode()
    assert "Replays" in rendered(collect(file_store, select(file_store, [run_of(file_store, files)])))


def test_a_step_tells_where_the_screen_stays_the_same(file_store: Store) -> None:
    run = run_of(file_store, episode_files("e", True))
    (episode,) = [e for e in collect(file_store, select(file_store, [run])).episodes if e.replay]
    assert episode.replay is not None
    assert [step.same for step in episode.replay.steps] == [True, False, True, False, False]


def test_pictures_that_are_too_many_for_a_page_go_into_a_folder(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = episode_files("e", True) | {f"episodes/e/{k:03d}.png": noise(k, 40_000) for k in range(5)}
    run = run_of(file_store, files)
    path, folder = tmp_path / "r" / "report.html", tmp_path / "r" / "report-pictures"
    write(file_store, select(file_store, [run]), path)
    assert not folder.exists()
    assert "data:image/png" in path.read_text()
    monkeypatch.setattr("launcher.report.pictures.ROOM", 200_000)
    write(file_store, select(file_store, [run]), path)
    text = path.read_text()
    names = {entry.name for entry in folder.iterdir()}
    assert len(names) == 5
    assert all(f"report-pictures/{name}" in text for name in names)
    assert {entry.read_bytes() for entry in folder.iterdir()} == {files[f"episodes/e/{k:03d}.png"] for k in range(5)}
    assert "in the folder report-pictures beside this page" in parsed(text).text
    assert "frames left out" not in text
    policy = next(a["content"] for n, a in parsed(text).found if n == "meta" and a.get("http-equiv"))
    assert "img-src data: file: 'self';" in str(policy)
    # the next report takes its own old pictures away, and nothing else
    (folder / "mine.png").write_bytes(b"mine")
    monkeypatch.setattr("launcher.report.pictures.ROOM", 10_000_000)
    write(file_store, select(file_store, [run]), path)
    assert [entry.name for entry in folder.iterdir()] == ["mine.png"]
    (folder / "mine.png").unlink()
    write(file_store, select(file_store, [run]), path)
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_one_line(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from launcher.errors import BadInput

    monkeypatch.setattr("launcher.report.pictures.ROOM", 10)
    run = run_of(file_store, episode_files("e", True))
    (tmp_path / "report-pictures").write_text("a file")
    with pytest.raises(BadInput, match="report-pictures"):
        write(file_store, select(file_store, [run]), tmp_path / "report.html")


def test_long_texts_are_cut_where_they_would_make_the_page_too_large(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = episode_files("e", True, thought="\u00fc" * 30_000)
    run = run_of(file_store, files)
    whole = rendered(collect(file_store, select(file_store, [run])))
    assert "\u00fc" * 30_000 in whole
    monkeypatch.setattr(pages, "MOST_BYTES", 100_000)
    write(file_store, select(file_store, [run]), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert len(text.encode()) <= 100_000
    assert "the page would be too large" in parsed(text).text


def test_a_page_has_so_many_replays_and_says_how_many_more_there_are(
    file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed, "LISTED_REPLAYS", 4)
    files: dict[str, bytes] = {}
    for index in range(6):
        files |= episode_files(f"e-{index}", index != 5, index)
    report = collect(file_store, select(file_store, [run_of(file_store, files)]))
    shown = [e.replay.head.episode_id for e in report.episodes if e.replay]
    assert shown == ["e-5", "e-0", "e-1", "e-2"]  # the failed one first
    assert any(problem.startswith("2 more episodes are in the store") for problem in report.problems)
