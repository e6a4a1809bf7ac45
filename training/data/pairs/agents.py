"""Preference pairs from two agents that answered the same observations: the answer nearer to the expert's wins."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from eval.actions import Action
from eval.agents.base import Agent, Decision, History
from eval.agents.config import AgentConfig, make_deciding
from eval.config import Config, ConfigError
from eval.desktop import Expected, Observation
from training.data.faults import BadSample
from training.data.pairs.maker import Maker, ObservedStep, observations
from training.data.samples import open_image

BATCH = 64  # observations per request to an agent
Rule = Literal["matches", "in_box", "nearer"]


class AgentsSource(Config, frozen=True, tag_field="kind", tag="agents"):
    """
    episodes      two folders of episodes or rollouts; their answers are compared where the observations are the same
    observations  instead of `episodes`: one folder of episodes; `agents` answer every step of it
    agents        with `observations`: the two agents that answer
    rule          which answer is preferred:
                  matches: the one that does what the expert would
                  in_box: the one that points into the expert's box
                  nearer: the one of the expert's action type whose point is nearer to the expert's
    min_gap       with `rule: nearer`: how much nearer the point must be, as a fraction of the screen
    truth         what the expert would do: the step's `expected`, or (observations only) the action that was recorded
    """

    episodes: list[str] | None = None
    observations: str | None = None
    agents: list[AgentConfig] = msgspec.field(default_factory=list)
    rule: Rule = "matches"
    min_gap: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    truth: Literal["expected", "recorded"] = "expected"

    def check(self) -> None:
        """Raises ConfigError for fields that contradict each other."""
        if (self.episodes is None) == (self.observations is None):
            raise ConfigError("sources: agents needs either episodes or observations")
        if self.episodes is not None and (len(self.episodes) != 2 or self.agents):
            raise ConfigError("sources: agents.episodes are two folders, and then there are no agents to ask")
        if self.observations is not None and len(self.agents) != 2:
            raise ConfigError("sources: agents.observations needs two agents to ask")
        if self.episodes is not None and self.truth == "recorded":
            raise ConfigError("sources: agents.truth: recorded needs observations: what agents did is not the truth")


def merit(action: Action | None, expected: Expected, rule: Rule) -> float:
    """An action's score by the rule; higher is better. Raises BadSample when the rule does not apply."""
    if rule == "matches":
        return float(expected.matches(action))
    if rule == "in_box":
        if expected.box is None:
            raise BadSample("no_box", "the rule in_box needs an expected box")
        return float(expected.hit(action))
    if (there := expected.action.point) is None:
        raise BadSample("no_point", "the rule nearer needs an expected point")
    if action is None or action.type is not expected.action.type or action.point is None:
        return -math.inf
    return -math.dist(action.point, there)


def make(source: AgentsSource, maker: Maker) -> None:
    """Raises ConfigError."""
    source.check()
    answered = _shared(source, maker) if source.episodes is not None else _asked(source, maker)
    for at, answers, expected in answered:
        if expected is None:
            maker.gate.drop("no_expert")
            continue
        (first, first_action), (second, second_action) = answers
        try:
            a, b = merit(first_action, expected, source.rule), merit(second_action, expected, source.rule)
        except BadSample as fault:
            maker.gate.drop(fault.reason)
            continue
        if a == b or abs(a - b) <= source.min_gap:
            maker.gate.drop("tie")
        elif a > b:
            maker.pair(at, first, second, "agents", expected=expected, note="chosen: first")
        else:
            maker.pair(at, second, first, "agents", expected=expected, note="chosen: second")


ReadAnswer = tuple[str, Action | None]  # the text, and its action if it has one
Answered = tuple[ObservedStep, tuple[ReadAnswer, ReadAnswer], Expected | None]


def _shared(source: AgentsSource, maker: Maker) -> Iterator[Answered]:
    """The observations in both folders, with both answers."""
    assert source.episodes is not None
    first, second = (Path(folder) for folder in source.episodes)
    known: dict[str, list[ObservedStep]] = {}
    for at in observations(first, maker.faults):
        if (key := _key(at, maker)) is not None:
            known.setdefault(key, []).append(at)
    shared = 0
    for at in observations(second, maker.faults):
        if (key := _key(at, maker)) is None:
            continue
        for other in known.get(key, ()):
            shared += 1
            try:
                answers = tuple((maker.answer(seen.step), seen.step.action) for seen in (other, at))
            except BadSample as fault:
                maker.faults.bad(str(at), fault)
                continue
            yield other, (answers[0], answers[1]), other.step.expected or at.step.expected
    if not shared:
        raise ConfigError(f"sources: {first} and {second} share no observation")


def _key(at: ObservedStep, maker: Maker) -> str | None:
    try:
        return at.key()
    except BadSample as fault:
        maker.faults.bad(str(at), fault)
        return None


def _asked(source: AgentsSource, maker: Maker) -> Iterator[Answered]:
    """Every observation of a folder, with the answers of two agents to it."""
    assert source.observations is not None
    first, second = (make_deciding(config, maker.builder) for config in source.agents)
    steps = iter(observations(Path(source.observations), maker.faults))
    while part := list(itertools.islice(steps, BATCH)):
        opened: list[tuple[ObservedStep, Observation]] = []
        for at in part:
            try:
                opened.append((at, _observation(at)))
            except BadSample as fault:
                maker.faults.bad(str(at), fault)
        if not opened:
            continue
        both = zip(opened, _ask(first, opened), _ask(second, opened), strict=True)
        for (at, _), a, b in both:
            expected = at.step.expected
            if source.truth == "recorded" and at.step.action is not None:
                expected = Expected(at.step.action)
            yield at, (a, b), expected


def _observation(at: ObservedStep) -> Observation:
    """Raises BadSample."""
    return Observation(
        image=open_image(at.image),
        screen=at.episode.screen,
        marks=at.step.marks,
        expected=at.step.expected,
    )


def _ask(agent: Agent, opened: Iterable[tuple[ObservedStep, Observation]]) -> list[ReadAnswer]:
    seen = list(opened)
    histories = [History(at.task, at.past) for at, _ in seen]
    decisions = asyncio.run(_act(agent, [observation for _, observation in seen], histories))
    return [(decision.response, decision.action) for decision in decisions]


async def _act(agent: Agent, seen: list[Observation], histories: list[History]) -> list[Decision]:
    return [decision.single() for decision in await agent.act(seen, histories)]
