"""Where preference pairs come from, what is dropped on the way, and that no pair is one by mistake."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from eval.actions import Action, ActionType
from eval.agents.config import CommonestConfig, ScriptedConfig
from eval.config import ConfigError
from eval.desktop import Expected
from eval.prompts import PromptConfig
from tests.support.cases import every_case
from tests.unit.training.data.tries import (
    FAR,
    HIT,
    HIT_TOO,
    NEAR,
    NOTHING,
    PROMPT,
    RIGHT,
    TYPED,
    episode,
    pairs,
    sides,
)
from training.data.__main__ import main
from training.data.pairs.agents import AgentsSource, Rule
from training.data.pairs.human import HumanSource
from training.data.pairs.rollouts import RankedSource, RolloutsSource
from training.data.pairs.synthetic import SyntheticSource


@pytest.mark.parametrize(
    ("rule", "first", "second", "chosen"),
    [
        ("matches", HIT, FAR, HIT),
        ("matches", NOTHING, HIT, HIT),
        ("matches", TYPED, HIT_TOO, HIT_TOO),
        ("matches", HIT, HIT_TOO, None),
        ("matches", NEAR, FAR, None),
        ("in_box", NEAR, HIT_TOO, HIT_TOO),
        ("in_box", "Action: HOVER(x=0.50, y=0.50)", FAR, "Action: HOVER(x=0.50, y=0.50)"),
        ("nearer", FAR, NEAR, NEAR),
        ("nearer", TYPED, FAR, FAR),
        ("nearer", TYPED, NOTHING, None),
    ],
)
def test_of_two_agents_the_better_by_the_rule_is_chosen(
    tmp_path: Path, rule: Rule, first: str, second: str, chosen: str | None
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for root, answer in ((a, first), (b, second)):
        episode(root, "one", [answer])
        episode(root, "filler", [FAR if answer is first else HIT], task="filler", shades=[9])  # a pair there is
    found, report = pairs(AgentsSource(episodes=[str(a), str(b)], rule=rule), tmp_path)
    of_task = [pair for pair in found if pair.task_id == "task"]
    if chosen is None:
        assert not of_task
        assert report["dropped"]["tie"] == 1
    else:
        (pair,) = of_task
        assert (pair.chosen, pair.rejected) == (chosen, second if chosen == first else first)
        assert pair.note == f"chosen: {'first' if chosen == first else 'second'}"
        assert report["position"]["first"] + report["position"]["second"] == 2


def test_a_gap_that_is_too_small_is_a_tie(tmp_path: Path) -> None:
    for name, answer in (("a", NEAR), ("b", FAR)):
        episode(tmp_path / name, "one", [answer])
    folders = [str(tmp_path / name) for name in "ab"]
    with pytest.raises(ConfigError, match=r'no pair is left.*"tie": 1'):
        pairs(AgentsSource(episodes=folders, rule="nearer", min_gap=0.4), tmp_path)
    assert not (tmp_path / "pairs").exists()
    assert not (tmp_path / ".pairs.tmp").exists()


def test_only_what_both_saw_alike_is_compared(tmp_path: Path) -> None:
    """Same pixels, but other words before, another goal, or another screen: no pair."""
    a, b = tmp_path / "a", tmp_path / "b"
    episode(a, "same", [HIT], shades=[1])
    episode(b, "same", [FAR], shades=[1])
    episode(a, "screen", [HIT], shades=[2], task="screen")
    episode(b, "screen", [FAR], shades=[3], task="screen")
    episode(a, "goal", [HIT], shades=[4], task="goal")
    episode(b, "goal", [FAR], shades=[4], task="another goal")
    episode(a, "past", [TYPED, HIT], shades=[5, 6], task="past")
    episode(b, "past", [NEAR, FAR], shades=[7, 6], task="past")
    found, report = pairs(AgentsSource(episodes=[str(a), str(b)]), tmp_path)
    assert sides(found) == [(HIT, FAR)]
    assert (report["tasks"], report["images"]) == (1, 1)
    episode(tmp_path / "c", "one", [FAR], shades=[200])
    with pytest.raises(ConfigError, match="share no observation"):
        pairs(AgentsSource(episodes=[str(a), str(tmp_path / "c")]), tmp_path / "x")


def test_two_agents_are_asked_about_a_folder(tmp_path: Path) -> None:
    episode(tmp_path / "seen", "one", [FAR], shades=[1])
    episode(tmp_path / "seen", "two", [FAR], shades=[2], task="two")
    agents = [CommonestConfig(episodes=str(tmp_path / "seen")), ScriptedConfig()]
    found, _ = pairs(AgentsSource(observations=str(tmp_path / "seen"), agents=agents), tmp_path)
    assert sides(found) == [(HIT, FAR)] * 2
    recorded = AgentsSource(observations=str(tmp_path / "seen"), agents=agents, truth="recorded", rule="nearer")
    found, _ = pairs(recorded, tmp_path)
    assert sides(found) == [(FAR, HIT)] * 2


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (AgentsSource(), "either episodes or observations"),
        (AgentsSource(episodes=["a"]), "two folders"),
        (AgentsSource(observations="a"), "two agents"),
        (AgentsSource(episodes=["a", "b"], truth="recorded"), "what agents did is not the truth"),
        (AgentsSource(episodes=["nowhere", "b"]), "no folder nowhere"),
        (RankedSource(episodes=["nowhere"]), "no folder nowhere"),
        (HumanSource(ratings="nowhere.csv", episodes="nowhere"), "no folder nowhere"),
        (SyntheticSource(episodes=["."], ways=[]), "at least one way"),
    ],
)
def test_a_source_that_can_not_be_is_refused(tmp_path: Path, source: AgentsSource, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        pairs(source, tmp_path)


# --- several tries at one task


def test_ranked_tries_are_compared_where_they_first_differ(tmp_path: Path) -> None:
    root = tmp_path / "tries"
    wait = "Action: WAIT()"
    episode(root, "best", [wait, HIT], shades=[1, 2], score=1.0)
    episode(root, "middle", [wait, NEAR], shades=[1, 2], score=0.5)
    episode(root, "worst", [wait, FAR, FAR], shades=[1, 2, 3], score=0.0)
    episode(root, "other", [HIT], shades=[1], score=0.0, task="other")
    found, report = pairs(RankedSource(episodes=[str(root)]), tmp_path)
    assert sides(found) == [(HIT, NEAR), (HIT, FAR), (NEAR, FAR)]
    assert {pair.step for pair in found} == {1}
    assert all("1. WAIT()" in pair.prompt[0]["content"][0]["text"] for pair in found)
    assert report["dropped"] == {"task_without_contrast": 1}
    found, _ = pairs(RankedSource(episodes=[str(root)], min_gap=0.5), tmp_path)
    assert sides(found) == [(HIT, FAR)]
    found, _ = pairs(RankedSource(episodes=[str(root)], per_task=1), tmp_path)
    assert len(found) == 1


def test_tries_that_saw_other_things_or_did_the_same_say_nothing(tmp_path: Path) -> None:
    root = tmp_path / "tries"
    episode(root, "a1", [HIT], shades=[1], score=1.0, task="a")
    episode(root, "a2", [FAR], shades=[2], score=0.0, task="a")
    episode(root, "b1", [HIT], shades=[3], score=1.0, task="b")
    episode(root, "b2", [HIT], shades=[3], score=0.0, task="b")
    episode(root, "c1", [NOTHING], shades=[4], score=1.0, task="c")
    episode(root, "c2", [HIT], shades=[4], score=0.0, task="c")
    episode(root, "d1", [FAR], shades=[5], score=1.0, task="d")
    episode(root, "d2", [HIT], shades=[5], score=0.0, task="d")
    episode(root, "e1", [HIT], shades=[6], score=1.0, task="e")
    episode(root, "e2", [FAR], shades=[6], score=0.0, task="e")
    found, report = pairs(RolloutsSource(episodes=[str(root)]), tmp_path)
    assert sides(found) == [(HIT, FAR)]
    assert report["dropped"] == {
        "better_try_is_no_action": 1,
        "no_divergence": 1,
        "no_shared_observation": 1,
        "worse_try_as_expected": 1,
    }


def test_an_infrastructure_failure_is_no_failed_try(tmp_path: Path) -> None:
    root = tmp_path / "tries"
    episode(root, "solved", [HIT], score=1.0)
    episode(root, "broke", [FAR], outcome="infra", error="the desktop is gone")
    episode(root, "failed", [NEAR], score=0.0)
    episode(root, "unknown", [FAR])
    found, report = pairs(RolloutsSource(episodes=[str(root)]), tmp_path)
    assert sides(found) == [(HIT, NEAR)]
    assert report["dropped"] == {"infra": 1, "unjudged": 1}


def test_prompts_are_those_of_an_evaluation(tmp_path: Path) -> None:
    """Goal, history, system prompt and images: what an agent is asked at that step, byte for byte."""
    from eval.desktop import Observation
    from eval.episodes import read_episode
    from eval.prompts import PastStep
    from training.data.pairs.store import read_pairs
    from training.data.samples import open_image

    prompt = PromptConfig(decimals=2, history=5, images=2)
    folder = episode(tmp_path / "seen", "one", [TYPED, NOTHING, HIT])
    found, _ = pairs(SyntheticSource(episodes=[str(folder.parent)], ways=["malformed"]), tmp_path, prompt=prompt)
    made, folder_pairs = read_episode(folder), read_pairs(tmp_path / "pairs")
    past: list[PastStep] = []
    for step in made.steps:
        frame = open_image(folder / step.screenshot)
        messages, images = prompt.builder().messages(made.instruction, past, Observation(frame, made.screen))
        pair = found[step.index]
        assert pair.prompt == messages
        assert [open_image(path).tobytes() for path in folder_pairs.images(pair)] == [i.tobytes() for i in images]
        past.append(PastStep(step.action, frame))


# --- people


def ratings(path: Path, rows: list[dict[str, object]]) -> str:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_ratings_become_pairs_where_raters_agree(tmp_path: Path, suffix: str) -> None:
    folder = episode(tmp_path / "seen", "one", [HIT, HIT], shades=[1, 2]).parent

    def rated(step: int, response: str, rating: object, rater: str) -> dict[str, object]:
        return {"episode": "one", "step": step, "response": response, "rating": rating, "rater": rater}

    rows = [
        *(rated(0, HIT, 5, "ann"), rated(0, FAR, 1, "ann"), rated(0, HIT, 4, "bob"), rated(0, FAR, 3, "bob")),
        *(rated(0, NEAR, 1, "ann"),),  # ann: HIT > NEAR, FAR = NEAR
        *(rated(1, HIT, 5, "ann"), rated(1, FAR, 1, "ann"), rated(1, HIT, 1, "bob"), rated(1, FAR, 2, "bob")),
        *(rated(1, NEAR, 3, "cid"), rated(1, NEAR, 5, "cid"), rated(1, HIT, 4, "cid")),  # NEAR: two opinions
    ]
    source = HumanSource(ratings=ratings(tmp_path / f"ratings.{suffix}", rows), episodes=str(folder))
    found, report = pairs(source, tmp_path)
    assert sorted(sides(found)) == sorted([(HIT, FAR), (HIT, NEAR)])
    assert {pair.step for pair in found} == {0}
    assert report["dropped"] == {"contradictory_ratings": 2, "tie": 1}


def test_choices_become_pairs_and_tell_their_position(tmp_path: Path) -> None:
    folder = episode(tmp_path / "seen", "one", [HIT, HIT, HIT], shades=[1, 2, 3]).parent
    rows: list[dict[str, object]] = [
        {"episode": "one", "step": step, "first": first, "second": second, "choice": choice}
        for step, first, second, choice in [
            (0, HIT, FAR, "first"),
            (1, FAR, HIT, "second"),
            (2, FAR, HIT, "tie"),
            (0, HIT, NEAR, "first"),
            (0, NEAR, HIT, "first"),
        ]
    ]
    source = HumanSource(ratings=ratings(tmp_path / "choices.jsonl", rows), episodes=str(folder))
    found, report = pairs(source, tmp_path)
    assert sides(found) == [(HIT, FAR), (HIT, FAR)]
    assert report["dropped"] == {"contradictory_ratings": 1, "tie": 1}
    assert report["position"] == {"first": 1, "second": 1, "share_first_chosen": 0.5}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"episode": "two"}, "unknown_episode"),
        ({"episode": "../one"}, "unknown_episode"),
        ({"episode": "one" * 100}, "unknown_episode"),
        ({"step": 7}, "unknown_step"),
        ({"step": "first"}, "broken_rating"),
        ({"rating": "good"}, "broken_rating"),
        ({"rating": "nan"}, "broken_rating"),
        ({"response": " "}, "broken_rating"),
    ],
)
def test_a_rating_of_nothing_is_a_fault(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    folder = episode(tmp_path / "seen", "one", [HIT]).parent
    rows = [
        {"episode": "one", "step": 0, "response": response, "rating": rating}
        for response, rating in ((HIT, 3), (FAR, 2), (NEAR, 1))
    ]
    rows.append({**rows[0], **change})
    rows.append({**rows[1], **change, "rating": change.get("rating", 1)})
    source = HumanSource(ratings=ratings(tmp_path / "ratings.csv", rows), episodes=str(folder))
    with pytest.raises(ConfigError, match=reason):
        pairs(source, tmp_path)
    found, report = pairs(source, tmp_path, on_bad_sample="skip")
    assert len(found) == 3
    assert report["faults"]["by_reason"].keys() == {reason}


def test_an_answer_whose_only_rating_is_none_is_in_no_pair(tmp_path: Path) -> None:
    folder = episode(tmp_path / "seen", "one", [HIT]).parent
    rows: list[dict[str, object]] = [
        {"episode": "one", "step": 0, "response": response, "rating": rating}
        for response, rating in ((HIT, 3), (FAR, 2), (NEAR, "good"))
    ]
    source = HumanSource(ratings=ratings(tmp_path / "ratings.csv", rows), episodes=str(folder))
    found, report = pairs(source, tmp_path, on_bad_sample="skip")
    assert sides(found) == [(HIT, FAR)]
    assert report["faults"]["by_reason"] == {"broken_rating": 1}


def test_a_quote_without_an_end_is_told_with_its_line(tmp_path: Path) -> None:
    folder = episode(tmp_path / "seen", "one", [HIT]).parent
    lines = ["episode,step,response,rating", f'one,0,"{HIT}",5', f'one,0,"{FAR},1', *[f"one,0,{NOTHING},2"] * 9000]
    (tmp_path / "ratings.csv").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"ratings\.csv:3: .*quote"):
        pairs(HumanSource(ratings=str(tmp_path / "ratings.csv"), episodes=str(folder)), tmp_path, on_bad_sample="skip")


PLAIN = "episode,step,response,rating\r\none,0,{hit},5\r\none,0,{far},1\r\n"
SEMICOLONS = PLAIN.replace(",", ";")
SHEETS: dict[str, bytes] = {
    "a byte order mark": b"\xef\xbb\xbf" + PLAIN.encode(),
    "semicolons": SEMICOLONS.encode(),
    "semicolons and decimal commas": b"\xef\xbb\xbf" + SEMICOLONS.replace(";5", ";4,5").replace(";1", ";1,5").encode(),
    "sep": b"sep=;\r\n" + SEMICOLONS.encode(),
    "tabs, UTF-16": PLAIN.replace(",", "\t").encode("utf-16"),
    "UTF-16, big end first": b"\xfe\xff" + PLAIN.encode("utf-16-be"),
    "UTF-16 without a mark": PLAIN.encode("utf-16-le"),
    "blanks and quotes": b'"episode" , step,"response",rating \n"one",0,"{hit}",5\none,0,"{far}",1\n,,,\n',
}


@every_case("name", SHEETS)
def test_a_spreadsheets_ratings_are_read_as_it_wrote_them(name: str, tmp_path: Path) -> None:
    folder = episode(tmp_path / name / "seen", "one", [HIT]).parent
    data = SHEETS[name]
    quote = "" if name == "blanks and quotes" else '"'  # these are quoted there
    for mark, answer in (("{hit}", HIT), ("{far}", FAR)):
        for code in ("utf-8", "utf-16-le", "utf-16-be"):
            data = data.replace(mark.encode(code), f"{quote}{answer}{quote}".encode(code))
    file = tmp_path / name / "ratings.CSV"
    file.write_bytes(data)
    found, report = pairs(HumanSource(ratings=str(file), episodes=str(folder)), tmp_path / name)
    assert sides(found) == [(HIT, FAR)]
    assert not report["faults"]["by_reason"]


def test_a_column_that_looks_like_another_is_shown_as_it_is(tmp_path: Path) -> None:
    folder = episode(tmp_path / "seen", "one", [HIT]).parent
    file = tmp_path / "ratings.csv"
    file.write_text("\u200bepisode,step,response,rating\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"has the columns '\\u200bepisode', rating, response, step; allowed"):
        pairs(HumanSource(ratings=str(file), episodes=str(folder)), tmp_path)
    file.write_bytes(b"episode,step,response,rating\nd\xe9j\xe0,0,a,1\n")
    with pytest.raises(ConfigError, match=r"neither UTF-8 nor UTF-16: .* save it as CSV UTF-8"):
        pairs(HumanSource(ratings=str(file), episodes=str(folder)), tmp_path)


def test_columns_that_are_not_known_are_refused(tmp_path: Path) -> None:
    folder = episode(tmp_path / "seen", "one", [HIT]).parent
    file = ratings(tmp_path / "ratings.csv", [{"episode": "one", "step": 0, "score": 3}])
    with pytest.raises(ConfigError, match="has the columns episode, score, step; allowed"):
        pairs(HumanSource(ratings=file, episodes=str(folder)), tmp_path)


# --- spoilt experts


def test_spoilt_answers_are_wrong_and_right_ones_are_anywhere_in_the_box(tmp_path: Path) -> None:
    root = tmp_path / "seen"
    other = Expected(Action(ActionType.CLICK, x=0.1, y=0.1), (0.05, 0.05, 0.1, 0.1))
    for number in range(6):
        episode(root, f"a{number}", [HIT], shades=[number], task=f"a{number}")
        episode(root, f"b{number}", [HIT], shades=[50 + number], task=f"b{number}", expected=other)
    found, report = pairs(SyntheticSource(episodes=[str(root)], per_step=4), tmp_path)
    assert report["by_note"].keys() == {"element", "perturbed", "type", "malformed"}
    builder = PROMPT.builder()
    for pair in found:
        assert pair.expected is not None
        right = Expected(Action.from_json(pair.expected["action"]), tuple(pair.expected["box"]))
        assert right.matches(builder.read(pair.chosen).action)
        if pair.note != "malformed":
            assert not right.matches(builder.read(pair.rejected).action)
        if pair.note == "element":  # in the other box: the text alone does not tell which side is right
            assert (other if right.box != other.box else RIGHT).hit(builder.read(pair.rejected).action)
    assert len({pair.chosen for pair in found}) > 20
    again, _ = pairs(SyntheticSource(episodes=[str(root)], per_step=4), tmp_path / "again")
    assert again == found


def test_marks_are_followed(tmp_path: Path) -> None:
    from eval.environments.registry import TasksConfig
    from training.make_episodes import MakeEpisodesConfig, make

    options = {"split": "train", "distractors": 2}
    prompt = PromptConfig(marks=True, system="")
    tasks = TasksConfig(count=6, seed=0)
    make(MakeEpisodesConfig(environment="click", tasks=tasks, options=options, prompt=prompt), tmp_path)
    source = SyntheticSource(episodes=[str(tmp_path / "episodes")], ways=["element"])
    found, _ = pairs(source, tmp_path, prompt=prompt)
    assert len(found) == 6
    for pair in found:
        assert pair.chosen.startswith("Action: CLICK([")
        assert pair.rejected.startswith("Action: CLICK([")
        assert len(pair.marks) == 3


# --- the verb


def test_the_verb_writes_a_folder_and_tells_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    episode(tmp_path / "seen", "one", [HIT])
    config = tmp_path / "pairs.yaml"
    config.write_text(
        yaml.safe_dump({"sources": [{"kind": "synthetic", "episodes": [str(tmp_path / "seen")], "per_step": 2}]})
    )
    assert main(["pairs", "--config", str(config), "--out", str(tmp_path / "out")]) == 0
    assert "2 pairs of 1 tasks with 1 images" in capsys.readouterr().out
    config.write_text(yaml.safe_dump({"sources": [{"kind": "synthetic", "episode": ["x"]}]}))
    assert main(["pairs", "--config", str(config), "--out", str(tmp_path / "out")]) == 78
    assert "unknown field `episode`" in capsys.readouterr().err
    assert (tmp_path / "out" / "pairs" / "report.json").exists()  # what was there stays
