"""The bounds of a rollout, and what of them defines a score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from eval.config import Config
from eval.desktop import Interface, Task
from eval.records.task_record import Count

# of the rule by which answers count, docs/explanation/answers.md; results of before it was written have "1"
ANSWERS: Final = "3"
UNSAID_STEPS: Final = 15  # of an episode, where neither the task nor the limits say a number
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class RolloutLimits(Config, frozen=True):
    """The bounds of a rollout.

    max_steps       steps of every episode at most; a step is one answer of the model, however many actions it holds.
                    None: what the task says, or 15 where it says nothing
    concurrency     episodes in which the agent acts at once, each on a desktop of its own
    spares          so many more desktops are prepared for the next tasks meanwhile, so that the agent does not wait for
                    programs that start slowly; each needs as much memory as one in use
    reset_timeout   seconds that a reset may take; the same holds for score and close
    step_timeout    seconds that an action may take beyond what it asks for: the seconds of a wait, 0.05 s a character.
                    After that the agent is told that it took too long; where the desktop does not answer any more, the
                    episode is `infra`
    waiting         seconds that the actions of an episode may ask to wait (wait, hold a key, drag), together
    answer_timeout  seconds that an agent may take for an answer; after that the episode is `infra`
    attempts        how often an episode is started at most, when the infrastructure fails
    backoff         seconds before the second attempt; doubles with each further attempt
    parse_failures  the episode fails at this many answers that are no action
    refused         the episode fails at this many answers of which something could not be done; none: it goes on
    """

    max_steps: Count | None = None
    concurrency: Count = 16
    spares: Annotated[int, msgspec.Meta(ge=0)] = 0
    reset_timeout: Seconds = 300.0
    step_timeout: Seconds = 60.0
    waiting: Seconds = 900.0
    answer_timeout: Seconds = 1800.0
    attempts: Count = 3
    backoff: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    parse_failures: Count = 1
    refused: Count | None = None

    def steps_of(self, task: Task) -> int:
        """How many steps an episode of a task has."""
        return self.max_steps or task.max_steps or UNSAID_STEPS


def scoring_rules(
    environment: str,
    options: Mapping[str, Any],
    limits: RolloutLimits,
    *,
    lenient: bool = False,
    interface: Interface = "gui",
    agent: object = None,
) -> dict[str, Any]:
    """What defines the score of a task besides the benchmark and its version.

    max_steps    for tasks that say no number of their own
    step_budget  in its place, where the limits say a number: for all tasks
    answers      the rule by which answers count, with its limits; `lenient` where they were repaired
    interface    only where it is not gui
    tools        the MCP servers of the agent, where it has some
    """
    servers = getattr(agent, "tool_servers", ())
    answers: dict[str, Any] = {"rule": ANSWERS, "waiting": limits.waiting}
    if limits.refused is not None:
        answers["refused"] = limits.refused
    if lenient:
        answers["lenient"] = True
    budget = {"max_steps": UNSAID_STEPS} if limits.max_steps is None else {"step_budget": limits.max_steps}
    return {
        "environment": environment,
        "options": dict(options),
        **budget,
        "parse_failures": limits.parse_failures,
        "answers": answers,
        **({} if interface == "gui" else {"interface": interface}),
        **({"tools": [server.mcp for server in servers]} if servers else {}),
    }
