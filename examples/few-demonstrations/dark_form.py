"""The login form in another look, dark: a program that the model of the start has never seen.

A configuration names it as `environment: dark_form:DarkForm`; its options are those of the environment `login`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from PIL import ImageOps

from eval.actions import Action
from eval.desktop import Desktop, Observation, Score, Task
from eval.environments import login


def dark(seen: Observation) -> Observation:
    """The same with every colour turned round: white becomes black."""
    return replace(seen, image=ImageOps.invert(seen.image))


class DarkDesktop:
    def __init__(self, form: Desktop) -> None:
        self.form = form

    async def reset(self, task: Task, seed: int) -> Observation:
        return dark(await self.form.reset(task, seed))

    async def step(self, action: Action) -> Observation:
        return dark(await self.form.step(action))

    async def score(self) -> Score:
        return await self.form.score()

    async def close(self) -> None:
        await self.form.close()


class DarkForm:
    """The tasks of `login`, shown dark."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        return login.tasks(count, seed, options)

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return DarkDesktop(login.desktop(options))
