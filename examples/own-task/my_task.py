"""A task of one's own on the login form, with a checker of one's own: fill in the user's name, and do not log in.

A configuration names it as `environment: my_task:Names`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eval.actions import Action, ActionType
from eval.desktop import Desktop, Expected, Observation, Score, Task
from eval.environments import login


class NameDesktop:
    """The login form of Slipway, asked for something else. It could as well be a browser or a real desktop."""

    def __init__(self, split: login.Split) -> None:
        self.inside = login.LoginDesktop(login.LoginOptions(split=split))
        self.gave_up = False

    async def reset(self, task: Task, seed: int) -> Observation:
        """Puts the empty form up."""
        self.gave_up = False
        return self.observe(await self.inside.reset(task, seed))

    async def step(self, action: Action) -> Observation:
        """Clicks and types as in the login form."""
        self.gave_up = action.type is ActionType.FAIL
        return self.observe(await self.inside.step(action))

    async def score(self) -> Score:
        """The checker. It looks at the state that is left, never at what was clicked or said.

        Half for a text in the right field, all for the right name. Nothing where the form was sent or left, or where
        another field was filled: what must not happen is checked, too. Nothing for who says that it cannot be done.
        """
        form = self.inside.form
        others = [text for name, text in form.text.items() if name != "user" and text]
        if self.gave_up or form.screen != "form" or form.error or others or not form.text["user"]:
            return Score(0.0, False)
        solved = form.text["user"] == form.user
        return Score(1.0 if solved else 0.5, solved, {"typed": form.text["user"]})

    async def close(self) -> None:
        await self.inside.close()

    def observe(self, seen: Observation) -> Observation:
        """What is seen; and what an expert would do, from which the first episodes are made."""
        form = self.inside.form
        if form.text["user"] == form.user:
            return replace(seen, expected=Expected(Action(ActionType.DONE)))
        if form.focus == "user":
            return replace(seen, expected=Expected(Action(ActionType.TYPE, text=form.user)))
        left, top, width, height = box = login.normalised(form.layout.fields["user"])
        click = Action(ActionType.CLICK, x=left + width / 2, y=top + height / 2)
        return replace(seen, expected=Expected(click, box))


class Names:
    """What the configuration names. `options`: split, train or test, whose names and layouts are apart."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        """`count` tasks; the same arguments always give the same tasks."""
        split = options.get("split", "test")
        found = []
        for task in login.tasks(count, seed, {"split": split}):
            user, _ = login.credentials(task.seed, split)
            asked = f'Type "{user}" into the field User. Do not log in.'
            found.append(Task(f"name-{task.seed}", asked, task.seed, max_steps=4))
        return found

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        """A desktop, for one rollout at a time."""
        return NameDesktop(options.get("split", "test"))
