"""Claude through the SDK's own toolset and loop (`anthropic.tools.computer`, its tool runner) and our driver."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from eval.actions.dialects.anthropic import Anthropic
from eval.agents.base import Decision
from eval.agents.computer import Computer, EpisodeOver, no_mouse
from eval.agents.driver import Driver
from eval.agents.wire import Prices, ServerFailed, failure, http_client, key, package, plain
from eval.config import ConfigError
from eval.desktop import ActionRefused, InfraError
from eval.desktops.tools import Tool
from eval.episodes import TokenUsage, ToolCall
from eval.prompts.messages import not_done

STOPS = {
    "refusal": "refusal: the model refused",
    "max_tokens": "truncated: the answer was cut off at its limit of tokens",
    "model_context_window_exceeded": "limit: the conversation no longer fits the model's context",
}


class ClaudeAgent:
    """See ClaudeConfig in eval.agents.config for the options. Raises ConfigError."""

    calls_tools = True

    def __init__(
        self,
        model: str,
        *,
        name: str = "claude",
        base_url: str | None = None,
        api_key: str = "ANTHROPIC_API_KEY",
        longest: int = 1366,
        keyboard: bool = True,
        instructions: str | None = None,
        max_tokens: int = 4096,
        timeout: float = 300.0,
        retries: int = 4,
        prices: Prices | None = None,
        lenient: bool = False,
    ) -> None:
        self.name = name
        self.model = model
        self.sdk = package("anthropic", name)
        self.tools = package("anthropic.tools", name)
        self.computer_tools = package("anthropic.tools.computer", name)
        self.functions = package("anthropic.lib.tools", name)
        self.longest = longest
        self.keyboard = keyboard
        self.instructions = instructions
        self.max_tokens = max_tokens
        self.prices = prices
        self.lenient = lenient
        self.settings = {
            "base_url": base_url,
            "api_key": key(api_key, name),
            "timeout": timeout,
            "max_retries": retries,
        }

    async def run(self, computer: Computer) -> None:
        driver = Driver(computer, Anthropic(version="20260801"), self.longest, lenient=self.lenient)
        async with self.sdk.AsyncAnthropic(http_client=http_client(self.sdk), **self.settings) as client:
            content = [
                {"type": "text", "text": computer.task.instruction},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": driver.screenshot()},
                },
            ]
            more = {} if self.instructions is None else {"system": self.instructions}
            messages: list[Any] = [{"role": "user", "content": content}]
            while messages:
                runner = client.beta.messages.tool_runner(
                    model=self.model,
                    max_tokens=self.max_tokens,
                    messages=messages,
                    tools=[*([self._toolset(driver)] if computer.gui else []), *self._functions(computer)],
                    **more,
                )
                messages = await self._converse(driver, runner)

    async def _converse(self, driver: Driver, runner: Any) -> list[Any]:
        """Takes the answers of one loop of the SDK's. Gives the messages to go on with: the SDK ends its loop at a cut
        off answer and at one without a call, also where the rules let the episode go on."""
        answers, undone = aiter(runner), False
        while True:
            try:
                message = await anext(answers)
            except StopAsyncIteration:
                return _messages(runner) if undone else []
            except Exception as error:
                self._failed(driver.computer, error)
            else:
                undone = await self._answered(driver, message, runner)

    def _failed(self, computer: Computer, error: Exception) -> None:
        """The SDK gives no answer. Raises EpisodeOver, InfraError or ConfigError."""
        try:
            why = failure(self.sdk, error, self.name)
        except (EpisodeOver, InfraError, ConfigError):
            raise
        except Exception:  # a body without what every answer has
            raise ServerFailed(f"no answer: {type(error).__name__}: {str(error)[:200]}") from None
        computer.begin(Decision("", None))
        computer.stop(why)

    async def _answered(self, driver: Driver, message: Any, runner: Any) -> bool:
        """Records an answer as a step; the SDK does its calls afterwards. Whether nothing of it is done."""
        blocks = getattr(message, "content", None)
        if not isinstance(blocks, list):
            raise ServerFailed(f"an answer without content: {str(message)[:200]}")
        texts = [block.text for block in blocks if getattr(block, "type", None) == "text" and block.text]
        thinking = [block.thinking for block in blocks if getattr(block, "type", None) == "thinking" and block.thinking]
        usage = _tokens(message.usage)
        raw = plain(message)
        calls = [block for block in blocks if getattr(block, "type", None) == "tool_use"]
        why = STOPS.get(message.stop_reason)
        if why is None and not calls and not texts and message.stop_reason != "pause_turn":
            why = "neither a call of a tool nor a text"
        decision = Decision(
            json.dumps(raw.get("content", [])) if raw is not None else str(blocks),
            None,
            thought="\n".join([*thinking, *texts]) or None,
            parse_error=why,
            usage=usage,
            cost=None if self.prices is None or usage is None else self.prices.cost(usage),
            raw=raw,
        )
        computer_calls = self._computer_calls(driver, calls)
        if computer_calls is not None and not driver.computer.gui:  # a toolset that the SDK was not given
            decision = replace(decision, refused=no_mouse(driver.computer.tools))
        if (told := driver.begin(decision, computer_calls)) is not None:
            runner.append_messages(*_undone(message, calls, told))
            return True
        if not calls and message.stop_reason != "pause_turn":
            await driver.finish("\n".join(texts))
        return False

    def _computer_calls(self, driver: Driver, calls: list[Any]) -> list[dict[str, Any]] | None:
        """The calls of an answer but those of the desktop's own tools; None where it has no others."""
        tools = driver.computer.tools
        own = [call for call in calls if getattr(call, "toolset_name", None) is None and call.name in tools]
        return [call.to_dict(mode="json") for call in calls if call not in own] or None

    def _functions(self, computer: Computer) -> list[Any]:
        """The desktop's own tools as the SDK has them."""
        refused = self.tools.ToolError

        def made(tool: Tool) -> Any:
            async def call(**arguments: Any) -> str:
                try:
                    return await computer.call(ToolCall(name=tool.name, arguments=arguments)) or "done"
                except ActionRefused as error:
                    raise refused(not_done(str(error))) from None  # the model reads it and goes on

            kind = self.functions.BetaAsyncFunctionTool
            return kind(call, name=tool.name, description=tool.description, input_schema=tool.schema())

        return [made(computer.known[name]) for name in computer.tools]

    def _toolset(self, driver: Driver) -> Any:
        """The SDK's toolset with our driver: every member goes through `execute`."""
        results, refused = self.computer_tools, self.tools.ToolError

        async def execute(_: Any, context: Any, name: str, given: Any) -> Any:
            arguments = given.model_dump(mode="json", exclude_none=True)
            identity = "" if context.tool_use is None else context.tool_use.id
            driver.heard(identity)
            call = ToolCall(name=name, id=identity, arguments=arguments)
            block = {"type": "tool_use", "id": identity, "toolset_name": "computer", "name": name, "input": arguments}
            if name == "cursor_position" and driver.computer.undone is None:
                if (at := driver.pointer()) is None:
                    driver.computer.refuse(why := "this desktop does not tell where the pointer is")
                    raise refused(not_done(why))
                driver.computer.note(ToolCall(name=name, id=identity, result=f"{at[0]}, {at[1]}"))
                return results.BetaComputerCursorPositionResult(x=at[0], y=at[1])
            if (told := await driver.do([block], call)) is not None:
                raise refused(told)  # the model reads it and goes on
            if name == "screenshot":
                return results.BetaScreenshotResult(data=driver.screenshot())
            if name == "zoom":
                zoom = driver.computer.steps[-1].actions[-1]
                assert zoom.point is not None
                assert zoom.end is not None
                return results.BetaScreenshotResult(data=driver.zoomed((*zoom.point, *zoom.end)))
            return None

        base = results.BetaAsyncAbstractComputerToolset20260801
        kind = type("ComputerToolset", (base,), {"execute": execute})
        # the SDK asks before each use of the keyboard; the configuration has answered
        configs = None if self.keyboard else {name: {"enabled": False} for name in ("type", "key", "hold_key")}
        return kind(confirm=lambda context: True, configs=configs)


def _messages(runner: Any) -> list[Any]:
    """The conversation of a loop of the SDK's so far."""
    seen: list[Any] = []

    def read(params: Any) -> Any:
        seen.extend(params["messages"])
        return params

    runner.set_messages_params(read)
    return seen


def _undone(message: Any, calls: list[Any], told: str) -> list[Any]:
    """What the conversation goes on with after an answer of which nothing is done: itself, where it is not empty, and
    what the model is told, for each of its calls."""
    error = {"is_error": True, "content": told}
    results = [{"type": "tool_result", "tool_use_id": call.id, **error} for call in calls]
    answer = {"role": "user", "content": results or [{"type": "text", "text": told}]}
    return [message, answer] if message.content else [answer]


def _tokens(usage: Any) -> TokenUsage | None:
    """Anthropic counts what it read from its cache, and what it wrote there, beside the other tokens of the prompt."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    figures = (getattr(usage, name, None) for name in names)
    fresh, cached, written, answered = (value if isinstance(value, int) and value >= 0 else 0 for value in figures)
    if not fresh + cached + written + answered:
        return None
    return TokenUsage(input_tokens=fresh + cached + written, output_tokens=answered, cached_tokens=cached)
