"""Agents without a model. Baselines that an agent must beat: nothing at all, random actions, always the commonest
action of the training episodes, or a copy of the nearest episode. Besides: the environment's own expert, and a person,
whose mouse and keyboard become the actions of an episode."""

from __future__ import annotations

import random
import string
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.base import Dialect
from eval.agents.base import Decision, History
from eval.agents.computer import Computer
from eval.config import ConfigError
from eval.desktop import Observation
from eval.episodes import EpisodeError, iter_episodes
from eval.episodes.pictures import opened
from eval.prompts.marks import to_mark, to_point

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image


THUMB = 64  # frames are compared as grey THUMB x THUMB pictures


RANDOM_RATE: Final = 0.01  # of tasks that acting at random may solve
RANDOM_KEYS: Final = ("enter", "tab", "backspace", "space", "up", "down", "left", "right", "pageup", "pagedown")
RANDOM_TEXT: Final = string.ascii_letters + string.digits + " .,-"
MAX_TYPED: Final = 12  # characters that a random action types


def _decision(dialect: Dialect, action: Action) -> Decision:
    text = dialect.format_response(action)
    return Decision(text, dialect.parse_response(text).action)


class DoesNothing:
    """Says done at the first screen, or fail: what a task gives that needs no work."""

    parallel = 1

    def __init__(self, dialect: Dialect, name: str = "nothing", says: ActionType = ActionType.DONE) -> None:
        self.name = name
        self.decision = _decision(dialect, Action(says))

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        return [self.decision] * len(observations)


class RandomAction:
    """An action drawn anew at each step: its kind from those that the dialect can say, each equally likely, then its
    point uniformly from the screen, its text, its key or its direction.

    A task, its seed, its trial and the number of the step decide what is drawn, not the order in which episodes run. It
    never says done or fail.
    """

    parallel = 1

    def __init__(self, dialect: Dialect, seed: int = 0, name: str = "random") -> None:
        """Raises ConfigError for a dialect that can say none of its actions."""
        self.name = name
        self.dialect = dialect
        self.seed = seed
        self.kinds = [kind for kind in RANDOM_KINDS if self._drawn(kind, random.Random(0)) is not None]
        if not self.kinds:
            raise ConfigError(f"agent {name}: the dialect can say none of {', '.join(RANDOM_KINDS)}")

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        return [self._decide(history) for history in histories]

    def _decide(self, history: History) -> Decision:
        task = history.task
        trial = f" {task.trial}" if task.trial else ""
        drawn = random.Random(f"{self.seed} {task.task_id} {task.seed} {len(history.past)}{trial}")
        while (decision := self._drawn(drawn.choice(self.kinds), drawn)) is None:
            pass  # a text that this dialect cannot say
        return decision

    def _drawn(self, kind: ActionType, drawn: random.Random) -> Decision | None:
        """A decision of this kind; None where the dialect cannot say it."""
        try:
            return _decision(self.dialect, _random_action(kind, drawn))
        except (Unrepresentable, ParseError):
            return None


# Kinds of a random action: what a mouse and a keyboard do, each whole in itself
RANDOM_KINDS: Final = (
    ActionType.CLICK,
    ActionType.DOUBLE_CLICK,
    ActionType.RIGHT_CLICK,
    ActionType.DRAG,
    ActionType.SCROLL,
    ActionType.HOVER,
    ActionType.TYPE,
    ActionType.KEY,
    ActionType.WAIT,
)


def _random_action(kind: ActionType, drawn: random.Random) -> Action:
    x, y, x2, y2 = (drawn.random() for _ in range(4))
    if kind is ActionType.DRAG:
        return Action(kind, x=x, y=y, x2=x2, y2=y2)
    if kind is ActionType.SCROLL:
        return Action(kind, x=x, y=y, direction=drawn.choice(("up", "down")), amount=float(drawn.randint(1, 5)))
    if kind is ActionType.TYPE:
        text = "".join(drawn.choice(RANDOM_TEXT) for _ in range(drawn.randint(1, MAX_TYPED)))
        return Action(kind, text=text.strip() or "a")
    if kind is ActionType.KEY:
        return Action(kind, keys=(drawn.choice(RANDOM_KEYS),))
    if kind is ActionType.WAIT:
        return Action(kind, duration=1.0)
    return Action(kind, x=x, y=y)


class CommonestAction:
    """Always the commonest action of the episodes, compared as the dialect writes it; of equals the first by name."""

    parallel = 1

    def __init__(self, episodes: Path, dialect: Dialect, name: str = "commonest") -> None:
        self.name = name
        counts: Counter[str] = Counter()
        actions: dict[str, Action] = {}
        for _, episode in iter_episodes(episodes):
            for step in episode.steps:
                if step.action is not None:
                    text = dialect.format(step.action)
                    counts[text] += 1
                    actions[text] = step.action
        if not counts:
            raise EpisodeError(f"{episodes}: no episode with an action")
        commonest = min(counts, key=lambda text: (-counts[text], text))
        self.decision = _decision(dialect, actions[commonest])

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        return [self.decision] * len(observations)


class NearestEpisode:
    """Copies the training episode with the nearest first frame, of those with the same instruction if there are any.

    Nearest: the smallest squared difference of pixels. After the last action of that episode it repeats that action.
    """

    parallel = 1

    def __init__(self, episodes: Path, dialect: Dialect, name: str = "nearest") -> None:
        import numpy as np

        self.name = name
        thumbs: list[Any] = []
        self.decisions: list[list[Decision]] = []
        self.instructions: dict[str, list[int]] = {}
        for folder, episode in iter_episodes(episodes):
            actions = [step.action for step in episode.steps if step.action is not None]
            if not actions:
                continue
            thumbs.append(_thumb(opened(folder / episode.steps[0].screenshot)))
            self.instructions.setdefault(episode.instruction, []).append(len(self.decisions))
            self.decisions.append([_decision(dialect, action) for action in actions])
        if not thumbs:
            raise EpisodeError(f"{episodes}: no episode with an action")
        self.thumbs = np.stack(thumbs)
        self.chosen: dict[tuple[str, int, int], int] = {}

    def _nearest(self, observation: Observation, instruction: str) -> int:
        import numpy as np

        among = np.asarray(self.instructions.get(instruction) or range(len(self.decisions)))
        distances = ((self.thumbs[among] - _thumb(observation.image)) ** 2).sum(axis=1)
        return int(among[int(distances.argmin())])

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        decisions = []
        for observation, history in zip(observations, histories, strict=True):
            key = (history.task.task_id, history.task.seed, history.task.trial)
            if not history.past:
                self.chosen[key] = self._nearest(observation, history.task.instruction)
            copy = self.decisions[self.chosen[key]]
            decisions.append(copy[min(len(history.past), len(copy) - 1)])
        return decisions


def _thumb(image: Image.Image) -> NDArray[np.float32]:
    """(THUMB * THUMB,) grey values in [0, 1]."""

    import numpy as np
    from PIL import Image

    small = image.convert("L").resize((THUMB, THUMB), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32).reshape(-1) / 255.0


def expected(observation: Observation, history: History) -> Action:
    """The action of the environment's expert. Raises ConfigError, which ends the evaluation, where there is none: no
    later try would have one."""
    if observation.expected is None:
        raise ConfigError(
            f"agent.kind: scripted: nobody wrote an expert for task {history.task.task_id}; allowed: another kind, or "
            "tasks of an environment with an expert"
        )
    return observation.expected.action


class ScriptedAgent:
    """Answers in the dialect, so its episodes read like a model's. The action is parsed from its own text."""

    parallel = 1

    def __init__(self, dialect: Dialect, name: str = "scripted") -> None:
        self.name = name
        self.dialect = dialect
        self.marks = dialect.marks

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        decisions = []
        for observation, history in zip(observations, histories, strict=True):
            action = expected(observation, history)
            try:
                text = self.dialect.format_response(to_mark(action, observation.marks) if self.marks else action)
            except Unrepresentable as error:
                raise ConfigError(f"prompt.dialect: agent {self.name} cannot write its action in it: {error}") from None
            decisions.append(Decision(text, to_point(self.dialect.parse_response(text).action, observation.marks)))
        return decisions


class HumanAgent:
    """A person, on real desktops only, one at a time. Each step has its action in the dialect, where it can."""

    one_at_a_time = True

    def __init__(self, dialect: Dialect, name: str = "human") -> None:
        self.name = name
        self.dialect = dialect

    async def run(self, computer: Computer) -> None:
        print(f"the task: {computer.task.instruction}", flush=True)
        await computer.follow(self._written)

    def _written(self, action: Action) -> str:
        try:
            return self.dialect.format_response(action)
        except Unrepresentable:
            return ""
