"""The `prompt` section of a configuration, and the prompt builder that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from eval.actions.dialects.registry import make_dialect
from eval.config import Config, ConfigError
from eval.prompts.builder import GOAL, PromptBuilder, Shown
from eval.prompts.demonstrations import DemonstrationConfig, Pool, Rule
from eval.prompts.wording import LEVELS, Level, Style

TURN_IMAGES: Final = (1, 3, 5)  # how many screenshots OpenCUA's form of history knows
HISTORY: Final = 10
EVERY: Final = 2**31  # more steps than an episode has
USUAL_IMAGES: Final[dict[Style, int]] = {"list": 1, "turns": 3, "opencua": 3, "chat": EVERY}


class PromptConfig(Config, frozen=True):
    """The `prompt` section of a configuration, of training and evaluation alike: give both the same one.

    dialect        how actions are written: dsl, pyautogui, the form of a published agent (docs/reference/actions.md),
                   or one of your own as `package.module:name`, a class or a function of (decimals, marks)
    decimals       places per coordinate, enough for a screen of 10^decimals - 1 pixels each way
    marks          Set-of-Marks (dsl): screenshots show the desktop's numbered boxes, and answers name a number
    observation    what of the present screen is shown: screenshot; tree, the accessibility tree as text, without a
                   picture; both; or som, the screenshot with marks and the tree with their numbers (it sets marks). All
                   but screenshot need an environment with trees, such as desktop
    tree_tokens    how long the tree may be, in tokens (estimated); what is left out first:
                   docs/explanation/desktops.md
    system         system prompt; "" leaves the turn out, none takes the dialect's instructions
    history        how many past actions the prompt tells, the latest ones
    goal           how the task is told, {goal} in the place of its text; none: a line `Goal: ` and the text
    history_style  list: within the user's turn; turns: each an assistant's turn headed `# Step n:`; opencua: as
                   OSWorld's agent asks OpenCUA models, whose own system prompt and goal must be given; chat: every
                   screenshot and every answer as it was given, in turns of their own, so that each prompt continues
                   the one before. It has no window: leave out history and images; limits.max_steps bounds its length
    history_level  how much of its reasoning a past turn keeps, where its answer has it: l1 the code and the action in
                   words; l2 also the thought; l3 also the observation (pyautogui). In opencua without the code
    images         how many screenshots are shown: the current one and the latest images - 1 before it; none: 1 for
                   list, 3 for turns and opencua, all for chat. turns takes 1, 3 or 5
    thought        whether targets carry reasoning: false none; true the step's thought; l1, l2, l3 (pyautogui) the
                   sections of the recorded answer: l1 action, l2 thought and action, l3 observation, thought and action
    demonstration  another episode that is shown first; none: no demonstration
    lenient        repairs answers as far as the dialect knows to repair them (docs/reference/actions.md says what),
                   also those of the agents openai and claude; results name it among their rules
    """

    dialect: str = "dsl"
    decimals: Annotated[int, msgspec.Meta(ge=1, le=15)] = 4
    marks: bool = False
    observation: Shown = "screenshot"
    tree_tokens: Annotated[int, msgspec.Meta(ge=100)] = 2000
    system: str | None = None
    goal: str | None = None
    history: Annotated[int, msgspec.Meta(ge=0)] = HISTORY
    history_style: Style = "list"
    history_level: Level = "l1"
    images: Annotated[int, msgspec.Meta(ge=1)] | None = None
    thought: bool | Level = False
    demonstration: DemonstrationConfig | None = None
    lenient: bool = False

    @property
    def marked(self) -> bool:
        """Whether answers name marks."""
        return self.marks or self.observation == "som"

    def check(self) -> None:
        """Raises ConfigError for fields that contradict each other."""
        dialect = make_dialect(self.dialect, self.decimals, self.marked)
        if self.history_style in ("list", "chat") and self.history_level != "l1":
            raise ConfigError(
                f"prompt.history_level: {self.history_level} needs history_style turns; {self.history_style} allows l1 "
                "only"
            )
        if self.history_style in ("opencua", "chat") and self.observation != "screenshot":
            raise ConfigError(
                f"prompt.observation: {self.observation}; allowed with history_style {self.history_style}: screenshot"
            )
        if self.history_style == "chat":
            for name, given in (("images", self.images is not None), ("history", self.history != HISTORY)):
                if given:
                    raise ConfigError(f"prompt.{name}: history_style chat tells every step and shows it; leave it out")
        if self.goal is not None and self.goal.count("{goal}") != 1:
            raise ConfigError("prompt.goal: it must hold {goal} once, where the task's text comes")
        if self.history_level != "l1" and not self.thought and self.history_style != "opencua":
            raise ConfigError(
                f"prompt.history_level: {self.history_level} needs thought: without it there is no reasoning to keep"
            )
        for name, level in (("history_level", self.history_level), ("thought", self.thought)):
            if not isinstance(level, str) or (name == "history_level" and level != "l3"):
                continue  # every dialect has a history without Observation: it leaves out sections that it lacks
            if missing := [section for section in LEVELS[level] if section not in dialect.reasoning]:
                raise ConfigError(
                    f"prompt.{name}: {level} needs the sections {' and '.join(missing)}, "
                    f"which dialect {self.dialect} does not have"
                )
        if self.history_style == "turns" and self.images not in (None, *TURN_IMAGES):
            raise ConfigError(f"prompt.images: history_style turns takes 1, 3 or 5 images, not {self.images}")
        if self.history_style == "turns" and self.history > 10:
            raise ConfigError(f"prompt.history: history_style turns takes at most 10 steps, not {self.history}")

    def arms(self, rules: Sequence[Rule]) -> list[PromptConfig]:
        """The section once for each rule of the demonstration. Raises ConfigError for rules that compare nothing."""
        if self.demonstration is None:
            raise ConfigError("arms: they are rules of prompt.demonstration, and there is no such section")
        if twice := [rule for number, rule in enumerate(rules) if rule in rules[:number]]:
            raise ConfigError(f"arms: {twice[0]} twice")
        if len(rules) == 1:
            raise ConfigError("arms: one arm has nothing beside it; allowed: several of none, control, wrong, right")
        replace = msgspec.structs.replace
        return [replace(self, demonstration=replace(self.demonstration, rule=rule)) for rule in rules]

    def builder(self) -> PromptBuilder:
        """Raises ConfigError; also for a folder of demonstrations that is not there."""
        self.check()
        shown = self.demonstration
        return PromptBuilder(
            make_dialect(self.dialect, self.decimals, self.marked),
            self.system,
            EVERY if self.history_style == "chat" else self.history,
            self.images or USUAL_IMAGES[self.history_style],
            self.thought,
            self.history_style,
            self.history_level,
            shown,
            None if shown is None or shown.folder is None else Pool.folder(Path(shown.folder)),
            self.observation,
            self.tree_tokens,
            GOAL if self.goal is None else self.goal,
            self.lenient,
        )
