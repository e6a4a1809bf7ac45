"""Does a demonstration help? Four arms on one's own recordings, with served models that can use one and that cannot.

The models answer by rule behind a real socket, in OpenAI's form. All that they know stands in the messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image, ImageDraw

from eval import run, steps
from eval.actions import Action, ActionType
from eval.environments.splits import SPLIT_SEED
from eval.episodes import Episode, Step, frame_name, write_episode
from launcher.results import stats
from tests.support.documented import ROOT, blocks
from tests.support.modelserver import ModelServer, Reply, completion, serving

ARMS = ["none", "control", "wrong", "right"]
# a button that no picture tells apart from the others: only who saw a person do it knows which one it is
SETTINGS = ("night light", "loud bell", "big pointer", "slow keys", "blue frame", "quick menu")
GUESS = "CLICK(x=0.15, y=0.30)"


def place(number: int) -> tuple[float, float]:
    return 0.15 + 0.35 * (number % 3), 0.30 + 0.40 * (number // 3)


def screen(pressed: int | None) -> Image.Image:
    image = Image.new("RGB", (200, 100), (90, 90, 90))
    for number in range(len(SETTINGS)):
        x, y = place(number)
        colour = (0, 200, 0) if number == pressed else (220, 220, 220)
        ImageDraw.Draw(image).rectangle((200 * x - 10, 100 * y - 5, 200 * x + 10, 100 * y + 5), fill=colour)
    return image


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 recordings of a person, which nobody judged: three of each setting, under other words."""
    root = tmp_path_factory.mktemp("recordings")
    for number, setting in enumerate(SETTINGS):
        for at, text in enumerate((f"Switch the {setting} on", f"{setting} on, please", f"I want the {setting}")):
            x, y = place(number)
            actions = (Action(ActionType.CLICK, x=x, y=y), Action(ActionType.DONE))
            done = tuple(Step(index=i, screenshot=frame_name(i), action=a) for i, a in enumerate(actions))
            name = f"recording-{number}-{at}"
            episode = Episode(
                episode_id=name, task_id=name, instruction=text, screen=(200, 100), source="human", steps=done
            )
            write_episode(root / name, episode, [screen(None), screen(number), screen(number)])
    return root


def told(request: dict[str, Any]) -> str:
    """All texts of the user's turns."""
    parts = (part for message in request["messages"] if message["role"] == "user" for part in message["content"])
    return "".join(part.get("text", "<image>") for part in parts)


def follows(request: dict[str, Any], _: int) -> Reply:
    """Does what the demonstration did at this step; guesses where it can read none."""
    text = told(request)
    shown = re.findall(r"^Action: (\w+\(.*\))$", text, re.MULTILINE)
    done = len(re.findall(r"^\d+\. ", text, re.MULTILINE))
    return Reply(completion(f"Action: {shown[done]}" if done < len(shown) else guessed(text)))


def ignores(request: dict[str, Any], _: int) -> Reply:
    return Reply(completion(guessed(told(request))))


def guessed(text: str) -> str:
    return "Action: DONE()" if "Actions so far" in text else f"Action: {GUESS}"


def evaluated(folder: Path, model: ModelServer, recordings: Path, **changes: Any) -> dict[str, Any]:
    shown = {"folder": str(recordings), "by": "words"}
    values: dict[str, Any] = {
        "data": str(recordings),
        "agent": {"kind": "openai-compatible", "name": "served", "model": "m", "base_url": f"{model.url}/v1"},
        "prompt": {"dialect": "dsl", "decimals": 2, "demonstration": shown},
        "arms": ARMS,
        **changes,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    code = steps.main(["--config", str(folder / "config.yaml"), "--out", str(folder / "results")])
    assert code == 0
    found: dict[str, Any] = json.loads((folder / "results" / "arms.json").read_text())
    return found


def rates(found: dict[str, Any], metric: str) -> list[tuple[str, int, int]]:
    return [(each["arm"], each["reached"], each["n"]) for each in found["arms"] if each["metric"] == metric]


@pytest.mark.parametrize("by", ["words", "screen"])
def test_a_model_that_can_use_a_demonstration_is_told_from_length_and_from_a_wrong_one(
    tmp_path: Path, recordings: Path, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    prompt = {"dialect": "dsl", "decimals": 2, "demonstration": {"folder": str(recordings), "by": by}}
    with serving(follows) as model:
        found = evaluated(tmp_path, model, recordings, prompt=prompt)
    # it guesses the first button, which is that of three recordings; a wrong demonstration misleads it in these, too
    first = [("none", 3, 18), ("control", 3, 18), ("wrong", 0, 18), ("right", 18, 18)]
    assert rates(found, "first_action") == first
    assert rates(found, "success") == first
    by_pair = {(each["a"], each["b"]): each for each in found["pairs"] if each["metric"] == "first_action"}
    assert len(by_pair) == 6
    for (a, b), (gained, lost) in {
        ("none", "right"): (15, 0),
        ("control", "right"): (15, 0),
        ("wrong", "right"): (18, 0),
        ("none", "control"): (0, 0),
        ("none", "wrong"): (0, 3),
        ("control", "wrong"): (0, 3),
    }.items():
        bounds = stats.tango(gained, lost, 18)
        assert bounds is not None
        pair = by_pair[a, b]
        assert (pair["gained"], pair["lost"], pair["n"]) == (gained, lost, 18)
        assert pair["p"] == stats.mcnemar(lost, gained)
        assert [pair["difference"], pair["ci_low"], pair["ci_high"]] == pytest.approx(
            [bounds.value, bounds.low, bounds.high], abs=1e-12
        )
    said = capsys.readouterr().out
    assert re.search(r"right - control +first_action +\+83\.3 +\+\d+\.\d to \+\d+\.\d +15 to 0 +<.001", said), said
    assert len(model.requests) == 4 * 36
    lengths = {"right": 0, "control": 0}
    for number, request in enumerate(model.requests):
        if number // 36 in (1, 3):
            lengths["control" if number < 72 else "right"] += len(told(request))
    assert lengths["right"] == lengths["control"]


def test_a_model_that_cannot_gains_nothing_and_the_table_says_so(tmp_path: Path, recordings: Path) -> None:
    with serving(ignores) as model:
        found = evaluated(tmp_path, model, recordings)
    assert rates(found, "first_action") == [(arm, 3, 18) for arm in ARMS]
    assert {(each["difference"], each["p"]) for each in found["pairs"]} == {(0.0, 1.0)}
    assert all(each["ci_low"] < 0 < each["ci_high"] for each in found["pairs"])


def test_started_again_it_asks_nothing_twice_and_each_arm_is_an_agent_of_the_results(
    tmp_path: Path, recordings: Path
) -> None:
    with serving(follows) as model:
        first = evaluated(tmp_path, model, recordings)
        asked = len(model.requests)
        assert evaluated(tmp_path, model, recordings) == first
        assert len(model.requests) == asked == 4 * 36
    lines = [json.loads(line) for line in (tmp_path / "results" / "tasks.jsonl").read_text().splitlines()]
    assert {line["agent"] for line in lines} == {"served-none"}
    beside = {path.parent.name for path in (tmp_path / "results" / "baselines").glob("*/tasks.jsonl")}
    assert beside == {"served-control", "served-wrong", "served-right"}
    rows = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert {row["agent"] for row in rows} == {f"served-{arm}" for arm in ARMS}


def test_without_a_folder_the_recordings_are_shown_for_each_other(tmp_path: Path, recordings: Path) -> None:
    prompt = {"dialect": "dsl", "decimals": 2, "demonstration": {"by": "words"}}
    with serving(follows) as model:
        found = evaluated(tmp_path, model, recordings, prompt=prompt, arms=["wrong", "right"])
    assert rates(found, "first_action") == [("wrong", 0, 18), ("right", 18, 18)]


def test_what_the_server_failed_is_in_no_pair_and_still_in_the_rate(tmp_path: Path, recordings: Path) -> None:
    def breaks(request: dict[str, Any], number: int) -> Reply:
        broken = "Switch the loud bell on" in told(request).rpartition("Goal:")[2]
        return Reply("no", status=500) if broken else follows(request, number)

    with serving(breaks) as model:
        agent = {"kind": "openai-compatible", "name": "served", "model": "m", "base_url": f"{model.url}/v1"}
        found = evaluated(tmp_path, model, recordings, agent={**agent, "retries": 0})
    assert rates(found, "first_action")[-1] == ("right", 17, 18)
    assert {(each["n"], each["left_out"]) for each in found["pairs"]} == {(17, 1)}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": ["none", "right", "none"]}, "arms: none twice"),
        ({"arms": ["none"]}, "arms: one arm has nothing beside it"),
        ({"prompt": {}}, "arms: they are rules of prompt.demonstration, and there is no such section"),
        ({"count": 4}, "count"),
        ({"arms": ["none", "best"]}, "arms"),
    ],
)
def test_arms_that_make_no_comparison_are_refused(
    tmp_path: Path, recordings: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], said: str
) -> None:
    values = {
        "data": str(recordings),
        "agent": {"kind": "openai-compatible", "name": "served", "model": "m", "base_url": "http://127.0.0.1:9/v1"},
        "prompt": {"demonstration": {"folder": str(recordings), "by": "words"}},
        "arms": ARMS,
        **changes,
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    assert steps.main(["--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "results")]) == 78
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_a_recording_without_a_demonstration_is_an_error_before_anything_is_asked(
    tmp_path: Path, recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only recording has none but itself, whose actions would be the answer."""
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "one").symlink_to(recordings / "recording-0-0")
    with serving(follows) as model:
        values = {
            "data": str(alone),
            "agent": {"kind": "openai-compatible", "name": "served", "model": "m", "base_url": f"{model.url}/v1"},
            "prompt": {"demonstration": {"folder": str(alone), "by": "words"}},
            "arms": ARMS,
        }
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
        code = steps.main(["--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "results")])
    assert code == 78
    assert "holds no control one for task recording-0-0" in capsys.readouterr().err
    assert not model.requests


@pytest.fixture(scope="module")
def shown_versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of the expert of `versions`, whose form of the button only a demonstration tells."""
    from eval.environments.registry import TasksConfig
    from eval.prompts import PromptConfig
    from training.make_episodes import MakeEpisodesConfig, make

    folder = tmp_path_factory.mktemp("versions")
    config = MakeEpisodesConfig(
        environment="versions",
        tasks=TasksConfig(count=120, seed=0),
        options={"split": "train", "words": 2},
        prompt=PromptConfig(decimals=2),
    )
    make(config, folder)
    return folder / "episodes"


def closed(folder: Path, answer: Callable[[dict[str, Any], int], Reply], shown: Path) -> dict[str, Any]:
    with serving(answer) as model:
        values = {
            "benchmark": "versions",
            "environment": "versions",
            "tasks": {"count": 12, "seed": SPLIT_SEED},
            "options": {"words": 2},
            "agent": {"kind": "openai-compatible", "name": "served", "model": "m", "base_url": f"{model.url}/v1"},
            "prompt": {"dialect": "dsl", "decimals": 2, "demonstration": {"folder": str(shown)}},
            "arms": ARMS,
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(values))
        assert run.main(["--config", str(folder / "config.yaml"), "--out", str(folder / "results")]) == 0
    found: dict[str, Any] = json.loads((folder / "results" / "arms.json").read_text())
    return found


def test_in_a_loop_success_and_the_first_action_are_told_for_each_arm(tmp_path: Path, shown_versions: Path) -> None:
    found = closed(tmp_path, follows, shown_versions)
    for metric in ("first_action", "success"):
        reached = {arm: count for arm, count, _ in rates(found, metric)}
        assert reached["right"] == 12
        assert max(reached["none"], reached["control"], reached["wrong"]) <= 6
    (pair,) = [p for p in found["pairs"] if (p["a"], p["b"], p["metric"]) == ("none", "right", "success")]
    assert pair["p"] < 0.05
    beside = {path.parent.name for path in (tmp_path / "results" / "baselines").glob("*/tasks.jsonl")}
    assert beside == {"served-control", "served-wrong", "served-right"}


def test_the_tutorials_block_runs_as_it_stands(
    tmp_path: Path, recordings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (lines,) = [
        [each.line for each in block]
        for block in blocks(ROOT / "docs" / "tutorials" / "recordings.md")
        if any("demonstrations.yaml" in each.line for each in block)
    ]
    example = ROOT / "examples" / "own-recordings" / "demonstrations.yaml"
    (tmp_path / "examples" / "own-recordings").mkdir(parents=True)
    (tmp_path / "episodes").symlink_to(recordings)
    monkeypatch.chdir(tmp_path)
    with serving(follows) as model:
        text = example.read_text()
        assert text.count("http://127.0.0.1:8000") == 1
        shown = tmp_path / "examples" / "own-recordings" / "demonstrations.yaml"
        shown.write_text(text.replace("http://127.0.0.1:8000", model.url))
        (words,) = [line.split() for line in lines]
        assert words[:3] == ["python", "-m", "eval.steps"]
        assert steps.main(words[3:]) == 0
    assert "right - control" in capsys.readouterr().out
