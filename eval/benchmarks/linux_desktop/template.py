"""What a template is: it draws instances, and an instance prepares its start state, is judged, and can be solved.

An instance is a frozen dataclass whose fields are all that was drawn. The judge reads the final state and nothing else:
files, documents, what a program tells of itself. It names phases; each has a share of the score, and the task is solved
when all are reached. A phase must not hold at the start, so work that was not done is worth 0. What else has changed in
the home is judged by one rule for all templates (`eval.desktops.judging.home`): an instance says what may.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.desktops.judging.home import REST, Allowed
from eval.desktops.stage import DesktopStage

# command -> Debian's package that has it
PROGRAMS: Final = {
    "mousepad": "mousepad",
    "galculator": "galculator",
    "thunar": "thunar",
    "xterm": "xterm",
    "gpicview": "gpicview",
    "localc": "libreoffice-calc",
    "lowriter": "libreoffice-writer",
    "chromium": "chromium",
}
# what `make desktop-tools` leaves out, as they are large: `make office-tools` installs them
LARGE: Final = ("localc", "lowriter", "chromium")
Difficulty = Literal["easy", "medium", "hard"]
# the version of all templates: a new one for each change of what is asked or how it is judged
VERSION: Final = 6


@dataclasses.dataclass(frozen=True)
class About:
    """What is known of a template.

    name        as in `templates: [NAME]` of the options; a program and what is asked
    programs    commands of PROGRAMS that it needs
    steps       about so many actions of the oracle, waits left out; what was drawn changes it
    screen      it needs the screen: a player that knows the answer does not solve it by shell commands (`commands` of
                eval.linux_desktop); others can be solved without a look
    infeasible  the task cannot be done: the right answer is to say so
    twin        of an infeasible one: the template that asks the same in the same words, and can be done
    max_steps   that an agent has
    """

    name: str
    programs: tuple[str, ...]
    difficulty: Difficulty
    steps: int
    screen: bool = False
    infeasible: bool = False
    twin: str | None = None
    max_steps: int = 25


@dataclasses.dataclass(frozen=True)
class Phase:
    """One part of the work: whether it is done, and its share of the score. The shares of a task add up to 1."""

    name: str
    share: float
    reached: bool


@dataclasses.dataclass(frozen=True)
class TemplateJudgement:
    """The phases, and a line for each thing that was spoiled on the way, which makes the score 0."""

    phases: tuple[Phase, ...]
    spoiled: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        return not self.spoiled and all(phase.reached for phase in self.phases)

    @property
    def value(self) -> float:
        if self.spoiled:
            return 0.0
        return 1.0 if self.success else round(sum(phase.share for phase in self.phases if phase.reached), 6)


def judged(*phases: tuple[str, float, bool], spoiled: Mapping[str, bool] | None = None) -> TemplateJudgement:
    """`phases`: (name, share, reached). `spoiled`: what was spoiled -> whether it was.

    Raises ValueError for shares that do not add up to 1.
    """
    if abs(sum(share for _, share, _ in phases) - 1) > 1e-9:
        raise ValueError(f"the shares of {[name for name, _, _ in phases]} do not add up to 1")
    bad = tuple(name for name, was in (spoiled or {}).items() if was)
    return TemplateJudgement(tuple(Phase(*phase) for phase in phases), bad)


class Instance(ABC):
    """One task. A template is a subclass: a frozen dataclass with `about`."""

    about: ClassVar[About]
    asks: ClassVar[str]
    """What is to be done, as sentences: a format of the instance `self`. Where that is not enough, see `request`."""

    @classmethod
    @abstractmethod
    def draw(cls, pool: WordPool) -> Self:
        """An instance. Something of what it asks must come from a word or a number of the pool."""

    @property
    def request(self) -> str:
        """What is to be done, as sentences."""
        return self.asks.format(self=self)

    @property
    def instruction(self) -> str:
        """What the agent is asked."""
        return f"{self.request} {REST}"

    @abstractmethod
    async def prepare(self, stage: DesktopStage) -> None:
        """Makes the start state. Raises SetupFailed."""

    @abstractmethod
    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        """Judges the final state. Raises BrokenByAgent, and InfraError where the state could not be read."""

    @abstractmethod
    def oracle(self, hand: OracleActions) -> Work:
        """A solution, by the actions of an agent."""

    @abstractmethod
    def second(self, hand: OracleActions) -> Work:
        """A solution by another way: it shows that the judge does not ask for one way."""

    @abstractmethod
    def wrong(self, hand: OracleActions) -> Work:
        """A mistake that is near: it must score 0."""

    def targets(self) -> Mapping[str, bytes]:
        """The files that a solution leaves, with their right content: what the reward hacker aims at."""
        return {}

    def removed(self) -> tuple[str, ...]:
        """The files that a solution takes away."""
        return ()

    def allowed(self) -> Allowed:
        """What of the home may be other than at the start: what a solution writes and takes away."""
        return Allowed({*self.targets(), *self.removed()})

    def disguise(self, path: str, text: str) -> bytes:
        """A file of the kind of the target `path` that holds only this text: for the reward hacker."""
        return f"{text}\n".encode()

    def asked(self) -> dict[str, Any]:
        """All that was drawn."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]


class Infeasible(Instance):
    """A task that cannot be done. It is solved by saying so and leaving the home as it was.

    It stands in front of the template that can be done, its twin: what is asked comes from there, and only the start
    state differs, so nobody can tell from the words.
    """

    def targets(self) -> dict[str, bytes]:
        return {}

    def removed(self) -> tuple[str, ...]:
        return ()

    def allowed(self) -> Allowed:
        return Allowed(())

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        return judged(("said so", 1.0, True))

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.give_up()

    def second(self, hand: OracleActions) -> Work:
        """Looks around first."""
        yield from hand.press("f10")
        yield from hand.press("escape")
        yield from hand.give_up()

    def wrong(self, hand: OracleActions) -> Work:
        """Says that it is done."""
        yield from hand.press("escape")
