"""The judge of the environment `desktop`, asked about end states of its file and of the home around it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from eval.desktop import BrokenByAgent, Score
from eval.desktops.judging.end_states import EndState, FolderStage, file_states
from eval.environments.desktop import FILE, NoteScene

SEED = 1_000_000
NOTE = NoteScene(SEED, "test")
SOLVED = {FILE: "".join(f"{line}\n" for line in [*NOTE.before, NOTE.line])}
STATES = list(file_states({FILE: NOTE.content.decode()}, SOLVED))


def judge(home: Path, state: EndState, end: ActionType = ActionType.DONE) -> Score:
    """The score of a state, made from the start in a folder."""

    async def go() -> Score:
        stage, scene = FolderStage(home), NoteScene(SEED, "test")
        await scene.prepare(stage)
        state.make(home)
        try:
            return await scene.judge(stage, [Action(end)])
        except BrokenByAgent as error:  # what the rollout makes of it
            return Score(0.0, False, {"broken": str(error)})

    return asyncio.run(go())


@pytest.mark.parametrize("state", STATES, ids=lambda each: each.name)
def test_only_right_ends_are_solved(state: EndState, tmp_path: Path) -> None:
    score = judge(tmp_path, state)
    assert (score.value, score.success) == ((1.0, True) if state.kind == "right" else (0.0, False)), score.detail


def test_who_gives_up_has_not_solved_it(tmp_path: Path) -> None:
    assert not judge(tmp_path, STATES[0], ActionType.FAIL).success


def test_the_exact_line_stands_in_quotes_and_the_rest_is_named() -> None:
    assert f'exactly "{NOTE.line}",' in NOTE.instruction
    assert NOTE.instruction.endswith("no other file or folder may be new, changed or gone.")
