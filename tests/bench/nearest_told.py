"""A baseline that is stronger than `nearest`: it copies single steps, and types what its own task says.

    agent: {kind: custom, factory: "tests.bench.nearest_told:NearestTold", options: {episodes: FOLDER}}

`nearest` copies whole episodes, so on a task whose words no episode has it types wrong words and solves nothing. This
one looks at each screen for the most alike of all steps (the smallest squared difference of grey 64 x 64 pictures), and
where that step typed the first or second quoted text of its instruction, it types that of its own. What a model solves
beyond it, it owes neither to the words nor to screens that look alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from eval.actions import Action
from eval.agents.base import Decision, History
from eval.agents.baselines import _decision, _thumb
from eval.desktop import Observation
from eval.episodes import iter_episodes

if TYPE_CHECKING:
    from eval.prompts import PromptBuilder


def quoted(instruction: str) -> list[str]:
    return re.findall(r'"([^"]*)"', instruction)


class NearestTold:
    parallel = 1

    def __init__(self, builder: PromptBuilder, *, name: str, episodes: str) -> None:
        import numpy as np

        self.name = name
        self.dialect = builder.dialect
        thumbs: list[Any] = []
        self.steps: list[tuple[Action, int | None]] = []  # an action, and which of the quoted texts it types
        for folder, episode in iter_episodes(Path(episodes)):
            words = quoted(episode.instruction)
            for step in episode.steps:
                if step.action is None:
                    continue
                with Image.open(folder / step.screenshot) as image:
                    thumbs.append(_thumb(image))
                typed = step.action.text
                self.steps.append((step.action, words.index(typed) if typed in words else None))
        self.thumbs = np.stack(thumbs)

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        decisions = []
        for seen, history in zip(observations, histories, strict=True):
            distances = ((self.thumbs - _thumb(seen.image)) ** 2).sum(axis=1)
            action, word = self.steps[int(distances.argmin())]
            if word is not None:
                action = replace(action, text=quoted(history.task.instruction)[word])
            decisions.append(_decision(self.dialect, action))
        return decisions
