"""Our tasks for Inspect (inspect_ai): `desktop_task` gives one of its tasks, for `inspect eval`.

A sample is a task of ours, on a desktop of its own. Its tools are those of the face for MCP, each call of one is an
answer of an episode under `out`, and the score is the checker's, as in `eval.run`. What the infrastructure failed is an
error of the sample, and never a score.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from eval import config as configuration
from eval.agents.base import Decision
from eval.agents.wire import png
from eval.config import ConfigError
from eval.desktops.mcp.tools import listed
from eval.serve.choosing import OfferedTasks, RequestRefused
from eval.serve.config import ServeConfig
from eval.serve.mcp import McpClient
from eval.serve.sessions import AfterAnswer, ClientSessions

try:
    from inspect_ai import Task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ContentImage, ContentText
    from inspect_ai.scorer import Score, Scorer, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver
    from inspect_ai.tool import ToolDef, ToolError, ToolParams
    from inspect_ai.util import store
except ModuleNotFoundError as error:
    raise ImportError("eval.inspect needs inspect_ai: pip install inspect-ai") from error

__all__ = ["desktop_task"]
KEY: Final = "slipway_sample"  # of the sample's store: whose session its tools use


class SampleSessions:
    """The sessions of one evaluation by the uuid of their sample. They are made inside of Inspect's event loop."""

    def __init__(self, config: ServeConfig, out: Path) -> None:
        self.config, self.out = config, out
        self.all: ClientSessions | None = None
        self.open: dict[str, McpClient] = {}
        self.ended: dict[str, AfterAnswer] = {}

    async def begin(self, sample: str, task_id: str, seed: int) -> AfterAnswer:
        """Begins the episode of a sample; waits while all desktops are in use. Raises InfraError."""
        if self.all is None:
            self.all = ClientSessions(self.config, self.out)
        client = self.open[sample] = McpClient(self.all, self.all.session())
        while True:
            try:
                return await client.session.start(task_id, seed)
            except RequestRefused as refused:
                if refused.kind != "full":
                    raise

    async def perform(self, sample: str, name: str, arguments: dict[str, Any]) -> AfterAnswer:
        """Does a call. Raises RequestRefused, and InfraError."""
        return self._seen(sample, await self.open[sample].perform(name, arguments))

    async def say(self, sample: str, text: str) -> AfterAnswer:
        """An answer without a call, which is no action. Raises InfraError."""
        decision = Decision(text, None, parse_error="the answer calls no tool")
        return self._seen(sample, await self.open[sample].session.answer(decision))

    def _seen(self, sample: str, seen: AfterAnswer) -> AfterAnswer:
        if seen.done:
            self.ended[sample] = seen
        return seen

    async def close(self, sample: str) -> None:
        """Gives the desktop of a sample back."""
        self.ended.pop(sample, None)
        if (client := self.open.pop(sample, None)) is not None:
            await client.session.close()


def desktop_task(config: str | Path | ServeConfig, out: str | Path) -> Task:
    """The tasks of a configuration of `eval.serve` as a task of Inspect.

    out  gets the episodes and their records

    Raises ConfigError.
    """
    chosen = config if isinstance(config, ServeConfig) else configuration.load(Path(config), ServeConfig)
    if chosen.tasks is None:
        raise ConfigError("tasks: is missing; Inspect judges tasks")
    chosen.check()
    sessions = SampleSessions(chosen, Path(out))
    samples = [
        Sample(
            id=f"{task.task_id}/{task.seed}",
            input=task.instruction,
            metadata={"task_id": task.task_id, "seed": task.seed},
        )
        for task in OfferedTasks(chosen).tasks
    ]

    async def cleanup(state: TaskState) -> None:
        await sessions.close(state.uuid)

    return Task(
        dataset=MemoryDataset(samples, name=chosen.benchmark),
        setup=solver("desktop")(lambda: _begun(sessions))(),
        solver=solver("answers")(lambda: _answers(sessions))(),
        scorer=scorer(metrics=[mean(), stderr()], name="success")(lambda: _verdict(sessions))(),
        cleanup=cleanup,
        version=chosen.version,
    )


def _begun(sessions: SampleSessions) -> Solver:
    """Begins the episode: the desktop is ready, and the model sees it."""
    tools = [tool for tool in listed(sessions.config.interface, tasks=False) if tool["name"] != "start"]

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        seen = await sessions.begin(state.uuid, state.metadata["task_id"], state.metadata["seed"])
        store().set(KEY, state.uuid)
        state.messages = [ChatMessageUser(content=await _content(seen, seen.task.instruction))]
        state.tools = [_tool(sessions, described).as_tool() for described in tools]
        return state

    return solve


def _answers(sessions: SampleSessions) -> Solver:
    """Asks the model until the episode has ended."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        while state.uuid not in sessions.ended and not state.completed:
            state = await generate(state, tool_calls="single")
            said = next(m for m in reversed(state.messages) if isinstance(m, ChatMessageAssistant))
            if not said.tool_calls:
                seen = await sessions.say(state.uuid, said.text)
                state.messages.append(ChatMessageUser(content=await _content(seen, seen.told or "")))
        return state

    return solve


def _verdict(sessions: SampleSessions) -> Scorer:
    """The checker's. An agent that ended its loop without done has said so by that."""

    async def score(state: TaskState, target: Any) -> Score:
        if (seen := sessions.ended.get(state.uuid)) is None:
            seen = await sessions.perform(state.uuid, "done", {})
        record = seen.record
        assert record is not None, "done ends an episode"
        why = None if record.failure is None else f"{record.failure.kind}: {record.failure.why}"
        told = {"score": record.score, "steps": record.steps, "episode": record.episode}
        return Score(value=float(bool(record.success)), explanation=why, metadata=told)

    return score


def _tool(sessions: SampleSessions, described: dict[str, Any]) -> ToolDef:
    """One of our tools for Inspect."""
    name = described["name"]

    async def call(**arguments: Any) -> list[Any]:
        given = {key: value for key, value in arguments.items() if value is not None}
        try:
            seen = await sessions.perform(store().get(KEY), name, given)
        except RequestRefused as refused:
            raise ToolError(str(refused)) from None
        return await _content(seen, seen.words)

    made: Callable[..., Awaitable[list[Any]]] = call
    schema = described["inputSchema"]
    return ToolDef(made, name, described["description"], ToolParams.model_validate(schema), parallel=False)


async def _content(seen: AfterAnswer, text: str) -> list[Any]:
    """A text, and the screen."""
    picture = await asyncio.to_thread(png, seen.observation.image)
    return [ContentText(text=text), ContentImage(image=f"data:image/png;base64,{picture}")]
