"""The login form in another look, dimmed: a program that the model of the start has never seen.

A configuration names it as `environment: dim_form:DimForm`; its options are those of the environment `login`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eval.actions import Action
from eval.desktop import Desktop, Observation, Score, Task
from eval.environments import login

BRIGHTNESS = 0.7


def dimmed(seen: Observation) -> Observation:
    """The same with darker colours."""
    return replace(seen, image=seen.image.point(lambda value: int(value * BRIGHTNESS)))


class DimDesktop:
    def __init__(self, form: Desktop) -> None:
        self.form = form

    async def reset(self, task: Task, seed: int) -> Observation:
        return dimmed(await self.form.reset(task, seed))

    async def step(self, action: Action) -> Observation:
        return dimmed(await self.form.step(action))

    async def score(self) -> Score:
        return await self.form.score()

    async def close(self) -> None:
        await self.form.close()


class DimForm:
    """The tasks of `login`, shown dimmed."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        return login.tasks(count, seed, options)

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return DimDesktop(login.desktop(options))
