"""Agents without a model: one that follows the environment's own expert, and a person, whose mouse and keyboard become
the actions of an episode."""

from __future__ import annotations

from collections.abc import Sequence

from eval.actions import Action, Unrepresentable
from eval.actions.dialects.base import Dialect
from eval.agents.base import Decision, History
from eval.agents.computer import Computer
from eval.config import ConfigError
from eval.desktop import Observation
from eval.prompts.marks import to_mark, to_point


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
