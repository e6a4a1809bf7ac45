"""The environment `mcp`: a server of the Model Context Protocol as an environment. See `McpOptions`.

Where the server has a tool for one of our actions, as `eval.serve mcp` names them (click, type, key, done), the action
is a call of it, with points in pixels of the last picture. Its other tools are called as tools (`interface: both` or
`tools`), or typed as JSON, {"name": NAME, "arguments": {...}}, where it has no tool `type`. Each episode has a
connection of its own, and a server of its own where `mcp` is a command. What the server does not answer is the
infrastructure's failure; what a tool says that it could not do is told to the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eval.actions import Action, ActionType
from eval.actions.geometry import Cells
from eval.config import ConfigError, convert
from eval.desktop import ActionRefused, Desktop, InfraError, Observation, Score, Task
from eval.desktops.mcp.client import McpResult, McpServer, McpServerConfig
from eval.desktops.mcp.tools import ACTIONS, call_of
from eval.desktops.tools import Tool
from eval.environments.drawn import STILL, RewardKind, picture_of, reward_score, sent_picture, served_tasks

MAX_STEPS: Final = 50


class McpOptions(McpServerConfig, frozen=True):
    """
    mcp      the command that starts the server, as in a shell but without one, or its URL
    token    the environment variable with the token of a URL, which is sent as a Bearer's
    environ  the environment variables that a command gets besides HOME, PATH and the like
    timeout  seconds in which the server has to answer
    instruction  what the agent is told; none: what `start` answers
    start    the tool that begins an episode; where it takes a `seed` it gets the task's. none: the connection begins it
    arguments    of it
    reward   the number of a result's structured content that is a reward
    done     what of it says that the episode has ended
    rewards  which rewards are the score: the last one, or their sum
    solved   the reward from which an episode is solved; it is cut to [0, 1] for the score
    max_steps    answers of an episode at most
    """

    instruction: str | None = None
    start: str | None = None
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    reward: str = "score"
    done: str = "done"
    rewards: RewardKind = "last"
    solved: float = 1.0
    max_steps: int = MAX_STEPS

    def check(self) -> None:
        """Raises ConfigError."""
        self.check_server("options")
        if self.instruction is None and self.start is None:
            raise ConfigError("options.instruction: is missing, and there is no `start` whose answer tells it")


class McpDesktop:
    """One connection."""

    def __init__(self, options: McpOptions) -> None:
        self.options = options
        self.given: list[float] = []
        self.server: McpServer | None = None
        self.last: Observation

    async def reset(self, task: Task, seed: int) -> Observation:
        return self._seen(await self._begin(seed))

    async def _begin(self, seed: int) -> McpResult:
        """What `start` answers. Raises ConfigError, InfraError."""
        await self.close()
        self.given = []
        self.server = McpServer(self.options, "options")
        await self.server.start()
        if (start := self.options.start) is None:
            return McpResult("")
        if (tool := self.server.tools.get(start)) is None:
            raise ConfigError(f"options.start: {start!r}; the server has {', '.join(self.server.tools) or 'no tools'}")
        seeded = {"seed": seed} if "seed" in tool.schema().get("properties", {}) else {}
        try:
            result = await self.server.call(start, {**self.options.arguments, **seeded})
        except ActionRefused as refused:
            raise ConfigError(f"options.arguments: {refused}") from None
        if result.failed:
            raise InfraError(f"{self.options.mcp}: {start}: {result.text[:300]}")
        return result

    async def instruction(self, seed: int) -> str:
        """What `start` answers to a seed, in words. Raises ConfigError where it says nothing."""
        result = await self._begin(seed)
        if not result.text.strip():
            raise ConfigError("options.instruction: is missing; what `start` answers has no text")
        return result.text.strip()

    @property
    def described(self) -> Mapping[str, Tool]:
        """See eval.desktop.DescribedTools."""
        known = {} if self.server is None else self.server.tools
        return {name: tool for name, tool in known.items() if name not in ACTIONS and name != self.options.start}

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(self.described)

    async def step(self, action: Action) -> Observation:
        if self.last.done:
            return self.last
        name, arguments = self._call(action)
        if name is not None:
            await self.call(name, arguments)
        return self.last

    def _call(self, action: Action) -> tuple[str | None, dict[str, Any]]:
        """The call that an action is; no name where nothing is to be done. Raises ActionRefused."""
        assert self.server is not None
        try:
            name, arguments = call_of(action, Cells(*self.last.image.size))
        except ConfigError as error:
            raise ActionRefused(str(error)) from None
        if name in self.server.tools:
            return name, arguments
        if action.type is ActionType.TYPE and action.text is not None:
            return _typed(action.text)
        if action.type in STILL or action.type is ActionType.CLICK:
            return None, {}
        raise ActionRefused(f"here one can only call tools: {', '.join(self.server.tools)}")

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        """See eval.desktop.ToolDesktop."""
        assert self.server is not None
        result = await self.server.call(name, arguments)
        if result.failed and result.facts.get("error") == "infra":  # a server of ours
            raise InfraError(f"{self.options.mcp}: {result.text[:300]}")
        seen = self._seen(result)
        if result.failed and not seen.done:
            raise ActionRefused(result.text or f"{name} failed")
        return result.text, seen

    async def score(self) -> Score:
        assert self.server is not None
        if not self.last.done and "done" in self.server.tools:  # at the limit of steps: it is to be judged as it is
            try:
                await self.step(Action(ActionType.DONE))
            except ActionRefused as refused:
                raise InfraError(f"{self.options.mcp}: nothing was judged: {refused}") from None
        if not self.last.done:
            await self.server.check()  # of one that died, nobody knows what it would have told
        elif not self.given:
            raise InfraError(
                f"{self.options.mcp}: the episode ended, and no result had the number {self.options.reward!r}"
            )
        return reward_score(self.given, self.options.rewards, self.options.solved)

    async def close(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            await server.close()

    def _seen(self, result: McpResult) -> Observation:
        reward = result.facts.get(self.options.reward)
        if isinstance(reward, int | float):
            self.given.append(float(reward))
        image = picture_of(result.text)
        if result.pictures:
            image = sent_picture(result.pictures[-1], f"{self.options.mcp}: a picture")
        self.last = Observation(image, image.size, done=result.facts.get(self.options.done) is True)
        return self.last


def _typed(text: str) -> tuple[str, dict[str, Any]]:
    """The call that a text is. Raises ActionRefused."""
    try:
        call = msgspec.json.decode(text, type=dict[str, Any])
        name, arguments = call["name"], call.get("arguments", {})
    except (msgspec.DecodeError, KeyError, UnicodeEncodeError):
        name, arguments = None, None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ActionRefused('type a call of a tool: {"name": NAME, "arguments": {...}}')
    return name, arguments


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks with the seeds from `seed` on. Raises ConfigError, and SetupFailed where the server is not there to
    tell their instructions."""
    chosen = _options(options)
    return served_tasks("mcp", range(seed, seed + count), chosen, McpDesktop, "mcp")


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A connection of its own for each episode. Raises ConfigError."""
    return McpDesktop(_options(options))


def _options(options: Mapping[str, Any]) -> McpOptions:
    chosen = convert(dict(options), McpOptions, "options")
    chosen.check()
    return chosen
