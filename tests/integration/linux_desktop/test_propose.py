"""Tasks that a model proposes, on real desktops: what can be set up, judged and solved is kept, and is a task then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.config import EXIT_CONFIG
from eval.environments.registry import environment
from eval.propose import Proposal, main, read_proposals
from tests.support.modelserver import ModelServer, Reply, completion, serving

EDITOR = [["mousepad", "note.txt"]]
GOOD = {
    "instruction": "Add the line tea to note.txt.",
    "files": {"note.txt": "soap\n"},
    "start": EDITOR,
    "solved": {"note.txt": "soap\ntea\n"},
}
WRITTEN = {"instruction": "Write a letter.", "start": [["mousepad"]], "milestones": ["Does the editor show a letter?"]}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**GOOD, "instruction": "Keep note.txt.", "solved": {"note.txt": "soap\n"}}, "no file of it is other than at the"),
    (
        {**GOOD, "instruction": "Remove more.txt.", "solved": {"more.txt": None}},
        "no file of it is other than at the start",
    ),
    ({**GOOD, "instruction": "Write off.", "solved": {"../off.txt": "x\n"}}, "../off.txt is not a path below the home"),
    (
        {**GOOD, "instruction": "Browse.", "start": [["firefox"]]},
        "start: ['firefox']; allowed: mousepad, thunar, xterm",
    ),
    ({"instruction": "Look."}, "allowed: one of solved and milestones"),
    ({**GOOD, "instruction": "No file.", "files": {"a\0b": "x"}}, "set-up: "),
    (
        {"instruction": "Write a folder.", "files": {"a/b.txt": "x"}, "start": [["mousepad"]], "solved": {"a": "x"}},
        "its oracle does not solve it in 1 tries: 0",
    ),
]


def configured(folder: Path, server: ModelServer, **more: Any) -> list[str]:
    told = {
        "environment": "login",
        "tasks": {"count": 1, "seed": 1_000_000},
        "proposer": {"model": "scripted", "base_url": f"{server.url}/v1", "retries": 0},
        "limits": {"attempts": 1, "concurrency": 1},
        **more,
    }
    (folder / "propose.yaml").write_text(json.dumps(told))
    return ["--config", str(folder / "propose.yaml"), "--out", str(folder / "out")]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.timeout(600)
def test_what_passes_is_a_task_of_ones_own_and_the_rest_has_its_reason(tmp_path: Path) -> None:
    answer = json.dumps([GOOD, *(proposal for proposal, _ in REFUSED), WRITTEN, GOOD])
    with serving(lambda request, number: Reply(completion(f"Here they are:\n{answer}"))) as server:
        assert main(configured(tmp_path, server)) == 0
        (request,) = server.requests
    assert request["messages"][0]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    kept, refused = lines(tmp_path / "out/proposed.jsonl"), lines(tmp_path / "out/refused.jsonl")
    assert [each["instruction"] for each in kept] == [GOOD["instruction"]]
    whys = [each["why"] for each in refused]
    assert len(whys) == len(REFUSED) + 1
    for why, (_, said) in zip(whys, REFUSED, strict=False):
        assert said in why
    assert whys[-1] == "it has milestones, and there is no judge or no agent"
    source = {"source": "file", "path": str(tmp_path / "out/proposed.jsonl")}
    (task,) = environment("sources").tasks(1, 0, {"sources": [source]})
    assert task.instruction == GOOD["instruction"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("said", "code"), [("YES", 1), ("NO", 1)])
def test_a_task_that_is_judged_by_a_model_needs_a_null_of_0_and_an_agent_that_solves_it(
    tmp_path: Path, said: str, code: int
) -> None:
    """A judge that always says the same keeps nothing: who does nothing gets 1, or nobody ever gets anything."""

    def answer(request: dict[str, Any], number: int) -> Reply:
        judged = len(request["messages"]) == 2
        return Reply(completion(said if judged else json.dumps([WRITTEN])))

    with serving(answer) as server:
        judge = {"model": "judge", "base_url": f"{server.url}/v1", "votes": 1, "retries": 0}
        more = {"judge": judge, "agent": {"kind": "random"}, "tries": 1}
        limits = {"attempts": 1, "concurrency": 1, "max_steps": 1}
        assert main(configured(tmp_path, server, **more, limits=limits)) == code
    (refused,) = lines(tmp_path / "out/refused.jsonl")
    expected = {"YES": "who does nothing gets 1", "NO": "its oracle does not solve it in 1 tries: 0"}
    assert refused["why"] == expected[said]


def test_a_proposer_that_cannot_be_reached_refuses_nothing(tmp_path: Path) -> None:
    with serving(lambda request, number: Reply(completion("[]"))) as server:
        words = configured(tmp_path, server)
    assert main(words) not in (0, EXIT_CONFIG)
    assert not (tmp_path / "out/refused.jsonl").exists()


@pytest.mark.parametrize("answer", ["", "I propose nothing.", "[1, 2", "{}"])
def test_an_answer_without_a_list_is_one_refusal(answer: str) -> None:
    assert read_proposals(answer, ["mousepad"]) == ["the answer holds no JSON list"]


def test_what_is_no_proposal_does_not_take_the_others_with_it() -> None:
    found = read_proposals(json.dumps([3, GOOD, {**GOOD, "judge": "my:judge"}]), ["mousepad"])
    assert [isinstance(each, Proposal) for each in found] == [False, True, False]
