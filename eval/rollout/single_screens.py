"""Asks an agent about single screens, for benchmarks without a loop: in batches, and through failures of its server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from eval.agents.base import Agent, Decision, History
from eval.agents.config import AgentConfig
from eval.config import ResumeError
from eval.desktop import BadFrame, InfraError, Observation, SetupFailed
from eval.episodes import jsonl
from eval.prompts import PromptConfig
from eval.records.task_record import TaskRecord

K = TypeVar("K")
ANSWERS: Final = "responses.jsonl"
ASKED: Final = "asked.json"  # beside the answers: who gave them, and to what prompt
# fields of an agent that do not decide its answers
BESIDE: Final = {
    "base_url",
    "api_key",
    "timeout",
    "retries",
    "stream",
    "prices",
    "batch_size",
    "device",
    "record_tokens",
}
GIVE_UP: Final = 3  # batches in a row without one answer, after which nothing more is asked


@dataclass(frozen=True)
class ScreenQuestion(Generic[K]):
    """One screen to ask about, and what it is known by. `open` is called when its turn comes; it may raise BadFrame."""

    key: K
    open: Callable[[], tuple[Observation, History]]


@dataclass(frozen=True)
class Asked(Generic[K]):
    """An agent's answer about a screen, or in `infra` what kept the agent from being asked."""

    key: K
    observation: Observation | None = None
    decision: Decision | None = None
    infra: str | None = None


def open_answers(out: Path, agent: AgentConfig, prompt: PromptConfig) -> Path:
    """The file of an agent's answers in `out`. Notes beside it who is asked, and how.

    Raises ConfigError where another agent gave the answers that are there, or another prompt asked for them: they would
    be scored as this agent's. A server's address, a device and the folders of an attempt may differ.
    """
    path, note, told = out / ANSWERS, out / ASKED, _told_of(agent, prompt)
    earlier = jsonl.read(note, dict[str, Any]) if path.is_file() else []
    was = earlier[0] if earlier else told
    differ = [
        f"{name} {was.get(name)!r} where it is {told.get(name)!r} now"
        for name in sorted({*was, *told})
        if was.get(name) != told.get(name)
    ]
    if differ:
        raise ResumeError(
            f"{path} holds answers that were asked for otherwise: {', '.join(differ)}; name another folder"
        )
    jsonl.write(note, [told])
    return path


def _told_of(agent: AgentConfig, prompt: PromptConfig) -> dict[str, Any]:
    """What decides the answers, by field; not the folders, since each attempt of a run has its own."""
    read: dict[str, Any] = {"agent": msgspec.to_builtins(agent), "prompt": msgspec.to_builtins(prompt)}
    fields = dict(_fields(read))
    return {
        name: value
        for name, value in fields.items()
        if name.rpartition(".")[2] not in BESIDE and not (isinstance(value, str) and value.startswith("/"))
    }


def _fields(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _fields(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


async def ask(agent: Agent, screens: Sequence[ScreenQuestion[K]], batch_size: int) -> AsyncIterator[list[Asked[K]]]:
    """Yields what came of each batch. Every screen is yielded once.

    A server that fails costs the screens that it was asked about, and nothing else; after GIVE_UP batches without an
    answer the others are not asked. Raises ConfigError for what the configuration must mend.
    """
    silent = 0
    for start in range(0, len(screens), batch_size):
        batch = await _batch(agent, screens[start : start + batch_size])
        yield batch
        tried = [each for each in batch if each.observation is not None]
        silent = silent + 1 if tried and all(each.infra for each in tried) else 0
        rest = screens[start + batch_size :]
        if silent == GIVE_UP and rest:
            why = f"not asked after {GIVE_UP} batches without an answer; the last one: {tried[-1].infra}"
            yield [Asked(screen.key, infra=why) for screen in rest]
            return


def require_an_answer(records: Sequence[TaskRecord]) -> None:
    """Raises SetupFailed when the agent answered nothing: that is no result, and the job runs again."""
    if records and all(record.outcome == "infra" for record in records):
        raise SetupFailed(f"no question was answered: {records[0].error}")


async def _batch(agent: Agent, screens: Sequence[ScreenQuestion[K]]) -> list[Asked[K]]:
    done: dict[int, Asked[K]] = {}
    shown: list[tuple[int, Observation, History]] = []
    for number, screen in enumerate(screens):
        try:
            shown.append((number, *screen.open()))
        except BadFrame as error:
            done[number] = Asked(screen.key, infra=_told(error))
    answers = await _answers(agent, [seen for _, seen, _ in shown], [history for _, _, history in shown])
    for (number, seen, _), answer in zip(shown, answers, strict=True):
        key = screens[number].key
        if isinstance(answer, InfraError):
            done[number] = Asked(key, seen, infra=_told(answer))
        else:
            done[number] = Asked(key, seen, answer)
    return [done[number] for number in range(len(screens))]


async def _answers(
    agent: Agent, observations: Sequence[Observation], histories: Sequence[History]
) -> Sequence[Decision | InfraError]:
    if not observations:
        return []
    if agent.parallel == 1:  # a model in this process: one batch, one fate
        try:
            return await agent.act(observations, histories)
        except InfraError as error:
            return [error] * len(observations)
    gate = asyncio.Semaphore(agent.parallel)

    async def alone(observation: Observation, history: History) -> Decision | InfraError:
        async with gate:
            try:
                (decision,) = await agent.act([observation], [history])
            except InfraError as error:
                return error
            return decision

    return await asyncio.gather(*(alone(*pair) for pair in zip(observations, histories, strict=True)))


def _told(error: InfraError) -> str:
    return f"{type(error).__name__}: {error}"
