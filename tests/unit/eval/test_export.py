"""Results in the formats of others: our importer reads them back, the published schema fits, videos show actions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.actions.geometry import Screen
from eval.episodes import Episode, Step, TokenUsage, ToolCall, frame_name, iter_episodes, jsonl, write_episode
from eval.export.__main__ import main
from eval.export.osworld import code_of
from eval.records.task_record import TaskRecord
from training.data.__main__ import main as training_data

SCHEMA = json.loads((Path(__file__).parents[2] / "data/atif/trajectory.schema.json").read_text())
FRAME = (200, 100)
SCREEN = Screen(*FRAME)


def at(x: int, y: int) -> dict[str, float]:
    return dict(zip(("x", "y"), SCREEN.to_norm(x, y), strict=True))


WORK = (
    Action(ActionType.CLICK, **at(10, 20)),
    Action(ActionType.TYPE, text="it's \\ \u00e4"),
    Action(ActionType.CLICK, **at(199, 99), modifiers=("ctrl",)),
    Action(ActionType.SCROLL, direction="down", amount=3.0, **at(5, 5)),
    Action(ActionType.DRAG, **at(5, 5), x2=0.5025, y2=0.505),
    Action(ActionType.HOTKEY, keys=("ctrl", "s")),
    Action(ActionType.TRIPLE_CLICK, **at(0, 0)),
)
DONE = Action(ActionType.DONE)


def record(task_id: str, **fields: Any) -> TaskRecord:
    told = {"benchmark": "b", "agent": "one", "seed": 7, "score": 1.0, "success": True, "outcome": "scored", **fields}
    return TaskRecord(task_id=task_id, **told)


def keep(folder: Path, given: TaskRecord, actions: Sequence[Action | Step]) -> TaskRecord:
    """Writes the episode of a record, a picture of another colour before each answer and at the end."""
    name = f"{given.task_id}-{given.seed}".replace("/", "-").lstrip(".")
    steps = []
    for index, one in enumerate(actions):
        step = one if isinstance(one, Step) else Step(index=0, screenshot="", action=one, response=f"say {index}")
        fields = {k: getattr(step, k) for k in Step.__struct_fields__} | {
            "index": index,
            "screenshot": frame_name(index),
            "time": 1_780_000_000.25,  # all in one moment: names of pictures must differ all the same
        }
        steps.append(Step(**fields))
    episode = Episode(
        episode_id=name,
        task_id=given.task_id,
        instruction="Do it",
        screen=FRAME,
        seed=given.seed,
        success=given.success,
        score=given.score,
        outcome=given.outcome,
        error=given.error,
        steps=tuple(steps),
        agent=given.agent,
    )
    frames = [Image.new("RGB", FRAME, (0, 10 + 20 * index, 0)) for index in range(len(steps) + 1)]
    write_episode(folder / "episodes" / name, episode, frames)
    fields = {k: getattr(given, k) for k in TaskRecord.__struct_fields__}
    return TaskRecord(**fields | {"episode": f"episodes/{name}", "steps": len(steps)})


def results(tmp_path: Path, *records: TaskRecord) -> Path:
    jsonl.write(tmp_path / "results" / "tasks.jsonl", records)
    return tmp_path / "results"


def usual(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    failed = record("half", score=0.5, success=False, programs=("mousepad", "thunar"))
    infra = record("gone", score=None, success=None, outcome="infra", error="the desktop is gone")
    made = results(
        tmp_path,
        keep(folder, record("solved", programs=("mousepad",)), [*WORK, DONE]),
        keep(folder, failed, [WORK[0], Action(ActionType.FAIL)]),
        keep(folder, infra, [WORK[0]]),
        record("not-kept", score=0.25, success=False),
    )
    other = [record("solved", agent="two", score=0.0, success=False)]
    jsonl.write(made / "baselines" / "two" / "tasks.jsonl", other)
    return made


def run(*argv: object) -> int:
    return main([str(one) for one in argv])


def imported(tmp_path: Path, recording: Path) -> list[tuple[Path, Episode]]:
    config = tmp_path / "ingest.json"
    config.write_text(json.dumps({"format": "osworld", "recording": str(recording), "on_bad_sample": "skip"}))
    assert training_data(["ingest", "--config", str(config), "--out", str(tmp_path / "in")]) == 0
    return list(iter_episodes(tmp_path / "in"))


def test_our_importer_reads_the_layout_of_osworld_back(tmp_path: Path) -> None:
    assert run("osworld", usual(tmp_path), tmp_path / "out") == 0
    back = {episode.task_id: (folder, episode) for folder, episode in imported(tmp_path, tmp_path / "out")}
    told = {name: (e.outcome, e.success, e.score, e.agent) for name, (_, e) in back.items()}
    assert told == {
        "solved": ("scored", True, 1.0, "one"),
        "half": ("scored", False, 0.5, "one"),
        "gone": ("infra", None, None, "one"),
    }
    folder, solved = back["solved"]
    assert solved.instruction == "Do it"
    assert [step.action for step in solved.steps] == [*WORK, DONE]
    assert [step.response for step in solved.steps] == [f"say {index}" for index in range(8)]
    greens = [Image.open(folder / frame_name(index)).getpixel((0, 0)) for index in range(9)]
    assert greens == [(0, 10 + 20 * index, 0) for index in range(9)]
    assert solved.metadata["domain"] == "mousepad"
    assert back["half"][1].metadata["domain"] == "multi_apps"


def test_every_score_is_where_osworld_looks_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("osworld", usual(tmp_path), tmp_path / "out") == 0
    found = {
        "/".join(path.parts[-4:-1]): float(path.read_text())
        for path in (tmp_path / "out").glob("pyautogui/screenshot/*/*/*/result.txt")
    }
    assert found == {
        "one/mousepad/solved": 1.0,
        "one/multi_apps/half": 0.5,
        "one/b/not-kept": 0.25,
        "two/b/solved": 0.0,
    }
    said = capsys.readouterr().out
    assert "5 tasks" in said
    assert "2 scores only" in said
    assert "1 infrastructure" in said


def test_an_answer_is_a_row_and_what_pyautogui_cannot_say_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = Step(index=0, screenshot="", action=WORK[0], further_actions=(WORK[1],))
    none = Step(index=0, screenshot="", parse_error="no action", response="hm")
    zoom = Action(ActionType.ZOOM, x=0.1, y=0.1, x2=0.2, y2=0.2)
    folder = tmp_path / "results"
    results(tmp_path, keep(folder, record("t"), [two, none, zoom, Action(ActionType.WAIT), DONE]))
    assert run("osworld", folder, tmp_path / "out") == 0
    (path,) = (tmp_path / "out").rglob("traj.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step_num"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[0]["action"] == 'pyautogui.click(x=10, y=20)\npyautogui.write(message="it\'s \\\\ \u00e4")'
    assert [row["action"] for row in rows[1:]] == [None, None, "WAIT", "DONE"]
    assert rows[1]["info"] == {"actions": [], "parse_error": "no action"}
    assert rows[2]["info"]["actions"] == [zoom.to_json()]
    assert "1 answers that PyAutoGUI cannot say" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (Action(ActionType.CLICK), "pyautogui.click()"),
        (Action(ActionType.TRIPLE_CLICK, x=0.5, y=0.5), "pyautogui.tripleClick(x=100, y=50)"),
        (
            Action(ActionType.CLICK, x=1.0, y=1.0, modifiers=("ctrl", "shift")),
            "pyautogui.keyDown('ctrl')\npyautogui.keyDown('shift')\npyautogui.click(x=199, y=99)\n"
            "pyautogui.keyUp('shift')\npyautogui.keyUp('ctrl')",
        ),
        (Action(ActionType.WAIT, duration=2.0), "time.sleep(2.0)"),
        (Action(ActionType.CLICK, element=3), None),
    ],
)
def test_code_is_what_pyautogui_itself_knows(action: Action, code: str | None) -> None:
    assert code_of([action], SCREEN) == code


def test_a_trajectory_is_what_the_published_schema_asks_for(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    call = ToolCall(name="run_command", id="x", arguments={"command": "ls"}, result="a file")
    wrong = ToolCall(name="open_file", arguments={}, error="no such file")
    rich = Step(
        index=0,
        screenshot="",
        action=WORK[0],
        further_actions=(WORK[1],),
        response="I click.",
        thought="There it is.",
        calls=(call, wrong),
        usage=TokenUsage(input_tokens=10, output_tokens=4, cached_tokens=2),
        cost=0.5,
        token_ids=[1, 2],
        logprobs=[-0.5, -0.25],
    )
    bad = Step(index=0, screenshot="", parse_error="no action", response="hm", raw={"secret": "s3cr3t"})
    results(tmp_path, keep(folder, record("t", score=0.5, success=False), [rich, bad, DONE]), record("not-kept"))
    assert run("atif", folder, tmp_path / "out") == 0
    path = tmp_path / "out" / "one" / "t" / "trajectory.json"
    assert "s3cr3t" not in path.read_text()
    document = json.loads(path.read_text())
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)
    steps = document["steps"]
    assert document["schema_version"] == "ATIF-v1.7"
    assert [step["step_id"] for step in steps] == [1, 2, 3, 4]  # the format asks for 1, 2, ...
    assert [step["source"] for step in steps] == ["user", "agent", "agent", "agent"]
    assert steps[0]["message"][0] == {"type": "text", "text": "Do it"}
    for step in steps:  # an observation may only name a call of its own step
        calls = {one["tool_call_id"] for one in step.get("tool_calls", [])}
        assert {
            one["source_call_id"] for one in step.get("observation", {}).get("results", []) if "source_call_id" in one
        } <= calls
    names = [one["function_name"] for one in steps[1]["tool_calls"]]
    assert names == ["click", "type", "run_command", "open_file"]
    assert steps[1]["tool_calls"][0]["arguments"] == at(10, 20)
    assert [one["content"] for one in steps[1]["observation"]["results"][:2]] == ["a file", "no such file"]
    assert steps[1]["metrics"]["cost_usd"] == 0.5
    assert steps[1]["reasoning_content"] == "There it is."
    assert steps[2]["extra"] == {"parse_error": "no action"}
    shown = [part["source"]["path"] for step in steps for part in _pictures(step)]
    assert shown == ["000.png", "001.png", "002.png", "003.png"]
    assert all((path.parent / name).is_file() for name in shown)
    assert document["final_metrics"] == {
        "total_steps": 4,
        "total_prompt_tokens": 10,
        "total_completion_tokens": 4,
        "total_cached_tokens": 2,
        "total_cost_usd": 0.5,
    }
    assert {k: document["extra"][k] for k in ("score", "success", "outcome")} == {
        "score": 0.5,
        "success": False,
        "outcome": "scored",
    }


def _pictures(step: dict[str, Any]) -> list[dict[str, Any]]:
    results = step.get("observation", {}).get("results", [])
    contents = [step["message"], *(one["content"] for one in results)]
    return [part for content in contents if isinstance(content, list) for part in content if part["type"] == "image"]


def test_without_ffmpeg_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = usual(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("video", made, tmp_path / "out") == 78
    assert "apt-get install ffmpeg" in capsys.readouterr().err


def test_names_of_others_lead_nowhere_else_and_stay_apart(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    evil = {"agent": "../../up", "benchmark": "../b", "programs": ("../../p",)}
    results(
        tmp_path,
        keep(folder, record("../../../t", **evil), [DONE]),
        record("a/b", score=0.5, success=False, **evil),
        record("a-b", score=0.25, success=False, **evil),
        record("same", seed=1, **evil),
        record("same", seed=2, **evil),
    )
    assert run("osworld", folder, tmp_path / "deep" / "out") == 0
    assert run("atif", folder, tmp_path / "deep" / "atif") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "results"]
    found = sorted(path.parent.name for path in (tmp_path / "deep").rglob("result.txt"))
    assert len(found) == 5
    assert {"same-1", "same-2"} <= set(found)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "tasks.jsonl").unlink(), "there is no tasks.jsonl"),
        (lambda folder: (folder / "tasks.jsonl").write_text("{}\n"), "tasks.jsonl: "),
        (lambda folder: (folder / "episodes" / "solved-7" / "steps.jsonl").write_text("torn\n"), "solved-7"),
        (lambda folder: results(folder.parent, record("t", episode="../../t")), "lies outside"),
        (lambda folder: (folder.parent / "out" / "mine").mkdir(parents=True), "is not empty"),
        (lambda folder: (folder.parent / "out").write_text(""), "out: "),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Any, words: str) -> None:
    folder = usual(tmp_path)
    spoil(folder)
    assert run("osworld", folder, tmp_path / "out") == 78
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_log_of_inspect_has_every_task_and_what_each_answer_showed(tmp_path: Path) -> None:
    """Inspect's own reader opens such logs in tests/integration/eval/test_export.py."""
    folder = tmp_path / "results"
    mixed = Step(
        index=0,
        screenshot="",
        action=DONE,
        response="both",
        thought="first look",
        calls=(ToolCall(name="run_command", id="c", arguments={"command": "ls"}, error="no such tool"),),
    )
    unread = Step(index=0, screenshot="", response="hm", parse_error="no action")
    results(tmp_path, keep(folder, record("a"), [unread, mixed]), record("b", trial=1, seed=8))
    assert run("inspect", folder, tmp_path / "out") == 0
    (file,) = (tmp_path / "out").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\S*_b_one\.json", file.name)
    log = json.loads(file.read_text())
    assert [(sample["id"], sample["epoch"]) for sample in log["samples"]] == [("a/7", 1), ("b/8", 2)]
    user, first, told, second, done, refused = log["samples"][0]["messages"]
    assert (user["role"], user["content"][0]["text"], len(user["content"])) == ("user", "Do it", 2)
    assert ("tool_calls" in first, told["role"], told["content"][0]["text"]) == (False, "user", "no action")
    assert [part["type"] for part in second["content"]] == ["reasoning", "text"]
    assert [(call["function"], call["arguments"]) for call in second["tool_calls"]] == [
        ("done", {}),
        ("run_command", {"command": "ls"}),
    ]
    assert [done["tool_call_id"], refused["tool_call_id"]] == [call["id"] for call in second["tool_calls"]]
    assert ([part["type"] for part in done["content"]], refused["content"][0]["text"]) == (["text"], "no such tool")
    assert refused["content"][1]["image"].startswith("data:image/png;base64,")
    score = log["results"]["scores"][0]["metrics"]["success"]
    assert (score["value"], score["metadata"]["n"]) == (1.0, 2)
