"""A grounding source: what a step says it points at, asked alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from eval.actions import Action, ActionType
from eval.config import ConfigError
from eval.episodes import Step
from eval.prompts import PromptConfig
from tests.unit.training.data.material import Made, episode, write_folders, write_packed
from training.data.source import SourceConfig, named_element, open_source

pytestmark = pytest.mark.ml
CLICK = Action(ActionType.CLICK, x=0.25, y=0.5)
CODE = "```python\npyautogui.click(x=0.25, y=0.5)\n```"
SECTIONS = f"## Thought:\nIt is there.\n\n## Action:\nClick Save.\n\n## Code:\n{CODE}"


def step(**changes: object) -> Step:
    return Step(index=0, screenshot="step-0.png", action=CLICK, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (step(response=SECTIONS, thought="It is there."), "Click Save."),
        (step(thought="The file is open.\nClick Save.\n"), "Click Save."),
        (step(), None),
        (step(thought="Click Save.", further_actions=(CLICK,)), None),
        (msgspec.structs.replace(step(thought="Type it."), action=Action(ActionType.TYPE, text="a")), None),
    ],
)
def test_the_words_are_the_section_action_or_the_thoughts_last_line(one: Step, said: str | None) -> None:
    assert named_element(one) == said


def told(number: int) -> Made:
    """An episode whose middle step alone says what it points at."""
    made, frames = episode(number)
    steps = [msgspec.structs.replace(each, action=CLICK, thought=None, response=None) for each in made.steps]
    steps[1] = msgspec.structs.replace(steps[1], thought=f"Click the field {number}.")
    return msgspec.structs.replace(made, steps=tuple(steps)), frames


@pytest.mark.parametrize("packed", [False, True])
def test_each_such_step_is_asked_alone(tmp_path: Path, packed: bool) -> None:
    builder = PromptConfig(history=2, decimals=2, system="").builder()
    made = [told(number) for number in range(2)]
    if packed:
        write_packed(tmp_path / "data", {"train": made})
    else:
        write_folders(tmp_path / "data", made)
    samples = open_source(SourceConfig(str(tmp_path / "data"), kind="grounding"), builder)
    assert len(samples) == 2
    for number, sample in enumerate(samples):
        assert sample.step is not None
        assert len(sample.images) == 1
        asked = str(sample.messages[:-1])
        assert f"Click the field {number}." in asked
        assert made[number][0].instruction not in asked
        assert "Click the field" not in sample.target
        assert "0.25" in sample.target


def test_episodes_without_such_a_step_are_one_clear_error(tmp_path: Path) -> None:
    made, frames = episode(0)
    steps = tuple(msgspec.structs.replace(each, thought=None, response=None) for each in made.steps)
    write_folders(tmp_path / "data", [(msgspec.structs.replace(made, steps=steps), frames)])
    with pytest.raises(ConfigError, match="no step says in words what it points at"):
        open_source(SourceConfig(str(tmp_path / "data"), kind="grounding"), PromptConfig().builder())
