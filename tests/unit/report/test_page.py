"""The page: complete, self-contained, and indifferent to what untrusted text says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from launcher.reasons import Reason
from launcher.report.collect import Report, collect
from launcher.report.page import render, write
from launcher.report.replays import choose, read_replay
from launcher.results.read import StoredOutput as Files
from launcher.results.read import open_output
from launcher.selection.select import select
from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from tests.support.fakerun import (
    START,
    FakeAttempt,
    episode_files,
    eval_files,
    fake_job,
    login_pipeline,
    png,
    write_group,
    write_run,
)
from tests.unit.report.test_html import parsed, rendered

EVIL = "</script><script>alert('x')</script><img src=x onerror=alert(1)>"
OUTPUTS = {"results": Output()}


def page(store: Store, *names: str) -> str:
    return rendered(collect(store, select(store, list(names))))


def payloads(html: str) -> list[Any]:
    return [json.loads(body) for body in re.findall(r'<script type="application/json">(.*?)</script>', html)]


def opened(store: Store, files: dict[str, bytes], name: str = "eval") -> Files:
    run = write_run(store, fake_job(name, outputs=OUTPUTS), [FakeAttempt(outputs={"results": files})])
    output = open_output(store, run, 1)
    assert output is not None
    return output


def test_a_pipeline_has_everything_in_one_page(file_store: Store) -> None:
    pipeline = login_pipeline(file_store, n=100, thought="I click the field.")
    html = page(file_store, pipeline.group)
    found = parsed(html)
    for text in ("eval-before", "eval-after", "94.9 %", "loss", "preempted", "the machine was reclaimed", "Provenance"):
        assert text in found.text, text
    for run in (pipeline.data, pipeline.before, pipeline.sft, pipeline.after):
        assert run in found.text
    assert len(payloads(html)) == 7  # every episode that was kept
    assert html == page(file_store, pipeline.group)  # the same runs, the same bytes


def test_nothing_is_loaded_from_anywhere(file_store: Store) -> None:
    pipeline = login_pipeline(file_store, n=20)
    found = parsed(page(file_store, pipeline.group))
    for name, attributes in found.found:
        assert name not in ("link", "iframe", "object", "embed", "base", "form"), name
        for key in ("src", "href", "srcset", "action", "data"):
            assert (attributes.get(key) or "#").startswith(("data:image/", "#")), (name, attributes)
    policy = [a.get("content") for n, a in found.found if n == "meta" and a.get("http-equiv")]
    assert policy[0] is not None
    assert policy[0].startswith("default-src 'none'")
    assert "unsafe-inline" not in policy[0].partition("script-src")[2]


def test_untrusted_text_stays_text(file_store: Store) -> None:
    """A model's answers, a task's words, a command's message and a metric's name are all written by others."""
    steps = json.dumps(
        {
            "index": 0,
            "screenshot": "000.png",
            "action": {"type": EVIL, "text": EVIL, "x": EVIL, "y": 2},
            "thought": EVIL,
        }
    )
    broken = json.dumps({"index": 1, "screenshot": "001.png", "action": None, "response": EVIL, "parse_error": EVIL})
    files = episode_files("e", False, instruction=EVIL) | eval_files([True, False], benchmark=EVIL, agent=EVIL)
    files["episodes/e/steps.jsonl"] = f"{steps}\n{broken}\n".encode()
    files[f"samples/{EVIL.replace('/', '-')}.png"] = png(8, 8, [])
    attempts = [
        FakeAttempt(reason=Reason.PREEMPTED, message=EVIL, metrics=[(EVIL, 0.0, 1.0), (EVIL, 1.0, 2.0)]),
        FakeAttempt(started=START + 70, ended=START + 90, message=EVIL, outputs={"results": files}),
    ]
    run = write_run(file_store, fake_job("evil", outputs=OUTPUTS), attempts, data={EVIL: EVIL})
    html = page(file_store, run)
    found = parsed(html)
    assert "alert('x')" in found.text
    scripts = [attributes for name, attributes in found.found if name == "script"]
    assert len(scripts) == 2  # one replay's data, and the page's own
    assert not any(key.startswith("on") for _, attributes in found.found for key in attributes)
    assert [
        a["src"]
        for n, a in found.found
        if n == "img"
        if not a.get("src", "data:image/png").startswith("data:image/png")
    ] == []
    (payload,) = payloads(html)
    assert (payload["steps"][0]["x"], payload["steps"][0]["y"]) == (None, None)


def test_plots_stand_before_samples_and_the_last_samples_before_those_of_earlier_steps(file_store: Store) -> None:
    files = eval_files([True], benchmark="b", agent="a")
    names = ["plots/calibration.png", "samples/step-00100/000.png", "samples/000.png"]
    files |= {name: png(8, 8, []) for name in names}
    run = write_run(file_store, fake_job("pictures", outputs=OUTPUTS), [FakeAttempt(outputs={"results": files})])
    shown = [str(a["alt"]) for name, a in parsed(page(file_store, run)).found if name == "img" and a.get("alt")]
    assert [name.partition(": ")[2] for name in shown if ": " in name] == ["calibration", "000", "step-00100/000"]


def test_a_sample_tells_its_split_and_whether_it_is_right(file_store: Store) -> None:
    lines = [{"picture": "000.png", "split": "training data", "right": True, "target": "a", "predicted": "a"}]
    lines += [{"picture": "001.png", "split": "training data", "right": False}, {"picture": "002.png"}]
    files = eval_files([True], benchmark="b", agent="a")
    files |= {f"samples/00{number}.png": png(8, 8, []) for number in range(4)}
    files["samples/predictions.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    run = write_run(file_store, fake_job("pictures", outputs=OUTPUTS), [FakeAttempt(outputs={"results": files})])
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page(file_store, run))
    assert [re.sub(r"<[^>]*>", "", caption) for caption in captions] == [
        "pictures: 000, training data right",
        "pictures: 001, training data wrong",
        "pictures: 002",
        "pictures: 003",
    ]
    assert ["good" in caption for caption in captions] == [True, False, False, False]


def test_damaged_words_of_samples_are_a_problem_not_the_end(file_store: Store) -> None:
    files = eval_files([True], benchmark="b", agent="a")
    files |= {"samples/000.png": png(8, 8, []), "samples/predictions.jsonl": b"{"}
    run = write_run(file_store, fake_job("pictures", outputs=OUTPUTS), [FakeAttempt(outputs={"results": files})])
    html = page(file_store, run)
    assert "predictions.jsonl:1" in html
    assert "<figcaption>pictures: 000</figcaption>" in html


def test_a_failing_episode_is_among_the_three(file_store: Store) -> None:
    files: dict[str, bytes] = {}
    for index in range(12):
        files |= episode_files(f"e-{index:03d}", index != 9, index)
    output = opened(file_store, files)
    assert choose(output) == [f"episodes/e-{index:03d}" for index in (9, 0, 1)]


@pytest.mark.parametrize(
    ("outcomes", "chosen"),
    [([True] * 5, 3), ([False] * 5, 3), ([True], 1), ([None, None], 2), ([], 0)],
)
def test_fewer_kinds_of_episodes_are_fine(file_store: Store, outcomes: list[bool | None], chosen: int) -> None:
    files = {"summary.json": b"[]"}
    for index, outcome in enumerate(outcomes):
        files |= episode_files(f"e-{index}", outcome, index)
    assert len(choose(opened(file_store, files))) == chosen


def test_a_replay_has_each_frame_once_and_the_points(file_store: Store) -> None:
    output = opened(file_store, episode_files("e", True, 3))
    replay = read_replay(output, "episodes/e")
    assert len(replay.steps) == 5
    assert len(replay.frames) == 3  # the form empty, half filled, filled
    assert [step.frame for step in replay.steps] == [0, 0, 1, 1, 2]
    assert replay.steps[0].x is not None
    assert replay.steps[1].x is None
    assert replay.steps[1].text == "type “alice”"
    assert replay.left_out == 0


def test_a_step_shows_every_action_of_its_answer_and_what_was_refused(file_store: Store) -> None:
    step = {
        "index": 0,
        "screenshot": "000.png",
        "action": {"type": "key", "keys": ["ctrl", "a"]},
        "further_actions": [
            {"type": "click", "x": 0.25, "y": 0.5},
            {"type": "drag", "x": 0.1, "y": 0.2, "x2": 0.3, "y2": 0.4, "path": [[0.2, 0.2], [0.3, 0.3]]},
        ],
        "refused": "3: no drag here",
    }
    files = episode_files("e", True) | {"episodes/e/steps.jsonl": json.dumps(step).encode() + b"\n"}
    (shown, *_) = read_replay(opened(file_store, files), "episodes/e").steps
    assert shown.text == "key ctrl+a; click 0.250, 0.500; drag 0.100, 0.200 to 0.300, 0.400 by way of 2 points"
    assert (shown.x, shown.y, shown.x2) == (0.25, 0.5, None)
    assert shown.error == "refused: 3: no drag here"


def test_what_is_no_picture_is_left_out_and_said(file_store: Store) -> None:
    files = episode_files("e", True) | {"episodes/e/001.png": b"<svg onload=alert(1)>", "summary.json": b"[]"}
    output = opened(file_store, files)
    replay = read_replay(output, "episodes/e")
    assert replay.left_out == 1
    assert replay.steps[1].frame is None
    run = output.prefix.split("/")[1]
    assert "1 frames left out" in parsed(page(file_store, run)).text


def test_large_frames_are_made_smaller(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    import random

    from PIL import Image

    noise = Image.frombytes("RGB", (1600, 200), random.Random(0).randbytes(1600 * 200 * 3))
    import io

    out = io.BytesIO()
    noise.save(out, "PNG")
    monkeypatch.setattr("launcher.report.replays.FRAME_BYTES", 500_000)
    files = episode_files("e", True) | {"episodes/e/000.png": out.getvalue()}
    replay = read_replay(opened(file_store, files), "episodes/e")
    assert replay.left_out == 0
    assert replay.frames[0].startswith("data:image/webp;base64,")
    assert len(replay.frames[0]) < 500_000


def test_damaged_episodes_are_named_not_fatal(file_store: Store) -> None:
    output = opened(file_store, eval_files([True, False]) | episode_files("a", True) | episode_files("b", False))
    file_store.put(output.prefix + "episodes/a/steps.jsonl", b"torn")
    text = parsed(page(file_store, output.prefix.split("/")[1])).text
    assert "episodes/a/steps.jsonl is damaged" in text
    assert "Replays" in text


def test_overlapping_attempts_show_the_highest(file_store: Store) -> None:
    first = FakeAttempt(reason=Reason.LOST, metrics=[("loss", float(k), 5.0) for k in range(10)])
    second = FakeAttempt(metrics=[("loss", float(k), 1.0) for k in range(6, 12)])
    run = write_run(file_store, fake_job("sft"), [first, second])
    report = collect(file_store, select(file_store, [run]))
    (chart,) = report.curves
    assert chart.series[0].points == [(float(k), 5.0 if k < 6 else 1.0) for k in range(12)]


def test_a_diverged_curve_says_so(file_store: Store) -> None:
    run = write_run(file_store, fake_job("sft"), [FakeAttempt()])
    keys = RunKeys(run).attempt(1)
    lines = b'{"step": 0, "name": "loss", "value": 2.0}\n{"step": 1, "name": "loss", "value": NaN}\ngarbage\n[]\n{"step'
    file_store.put(keys.metrics_piece("main-0", 0), lines)
    text = parsed(page(file_store, run)).text
    assert "1 values of sft are not finite numbers" in text
    assert "sft: 3 lines of metrics are not readable" in text


def test_runs_that_have_not_ended_can_be_reported(file_store: Store) -> None:
    live = write_run(file_store, fake_job("live", outputs=OUTPUTS), [FakeAttempt(ended=None)], outcome=None)
    queued = write_run(file_store, fake_job("queued", outputs=OUTPUTS), [], outcome=None)
    cancelled = write_run(file_store, fake_job("gone"), [], outcome="cancelled", cancelled=True)
    group = write_group(file_store, [live, queued, cancelled])
    text = parsed(page(file_store, group)).text
    assert "0 of 3 succeeded" in text
    assert "Runs without results" in text


def test_the_file_appears_whole(file_store: Store, tmp_path: Path) -> None:
    pipeline = login_pipeline(file_store, n=8)
    path = tmp_path / "deep" / "report.html"
    write(file_store, select(file_store, [pipeline.group]), path)
    assert path.read_text("utf-8").endswith("</html>\n")
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_a_page_that_its_texts_do_not_make_large_is_made_once(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made five times, with the same texts each time."""
    made: list[Report] = []

    def counted(report: Report) -> list[bytes]:
        made.append(report)
        return render(report)

    monkeypatch.setattr("launcher.report.page.MOST_BYTES", 1)
    monkeypatch.setattr("launcher.report.page.render", counted)
    run = write_run(file_store, fake_job("train", outputs={"model": Output()}))
    write(file_store, select(file_store, [run]), tmp_path / "report.html")
    assert len(made) == 1
