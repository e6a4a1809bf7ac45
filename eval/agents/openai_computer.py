"""OpenAI's computer use through the SDK's own loop (`openai.lib.computer.AsyncComputerToolset`) and our driver."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final, Literal

from eval.actions.dialects.openai import OpenAi
from eval.agents.base import Decision
from eval.agents.computer import Computer, EpisodeOver
from eval.agents.driver import Driver
from eval.agents.wire import Prices, ServerFailed, failure, http_client, key, package, plain
from eval.config import ConfigError
from eval.desktop import ActionRefused, InfraError
from eval.desktops.tools import Tool
from eval.episodes import TokenUsage, ToolCall
from eval.prompts.messages import not_done

Safety = Literal["stop", "acknowledge"]
SAFETY: Final = "safety: the model asks for an acknowledgement, and the policy is to stop"


class OpenAiComputerAgent:
    """See OpenAiConfig in eval.agents.config for the options. Raises ConfigError."""

    calls_tools = True

    def __init__(
        self,
        model: str,
        *,
        name: str = "openai",
        base_url: str | None = None,
        api_key: str = "OPENAI_API_KEY",
        preview: bool = False,
        safety: Safety = "stop",
        instructions: str | None = None,
        max_tokens: int = 4096,
        timeout: float = 300.0,
        retries: int = 4,
        prices: Prices | None = None,
        lenient: bool = False,
    ) -> None:
        self.name = name
        self.model = model
        self.sdk = package("openai", name)
        self.loops = package("openai.lib.computer", name)
        self.preview = preview
        self.safety = safety
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
        driver = Driver(computer, OpenAi(batch=not self.preview), lenient=self.lenient)
        async with self.sdk.AsyncOpenAI(http_client=http_client(self.sdk), **self.settings) as client:
            loop = self.loops.AsyncComputerToolset(_Members(driver, batch=not self.preview))
            recorder = _Recorder(client, self, driver)
            params = self._params(driver)
            try:
                # one answer more than there are steps: the rollout ends the episode, not the SDK
                response = await loop.run(
                    recorder, params, max_steps=computer.max_steps + 1, approve_safety_checks=self._approved
                )
            except (EpisodeOver, InfraError, ConfigError):
                raise
            except self.loops.ComputerUseError as error:
                computer.stop(_safety(str(error)))
            except Exception as error:  # the SDK stumbles over what the model said
                if recorder.last is None:
                    raise
                computer.stop(f"the SDK cannot take the answer: {type(error).__name__}: {str(error)[:200]}")
            else:
                await driver.finish(_said(response, "text"))

    def _params(self, driver: Driver) -> dict[str, Any]:
        width, height = driver.size
        tool: dict[str, Any] = {"type": "computer"}
        if self.preview:
            size = {"display_width": width, "display_height": height}
            tool = {"type": "computer_use_preview", "environment": "linux", **size}
        picture = f"data:image/png;base64,{driver.screenshot()}"
        content = [
            {"type": "input_text", "text": driver.computer.task.instruction},
            {"type": "input_image", "image_url": picture, "detail": "auto"},
        ]
        params: dict[str, Any] = {"model": self.model, "tools": [tool], "max_output_tokens": self.max_tokens}
        if self.instructions is not None:
            params["instructions"] = self.instructions
        if self.preview:
            params["truncation"] = "auto"
        return {**params, "input": [{"role": "user", "content": content}]}

    async def _approved(self, call: Any) -> bool:
        """Whether the safety checks of a call are acknowledged: as the configuration states, and never else."""
        return self.safety == "acknowledge"


class _Recorder:
    """The client as the SDK's loop sees it: each answer becomes a step before its actions are done."""

    def __init__(self, client: Any, agent: OpenAiComputerAgent, driver: Driver) -> None:
        self._client = client
        self._agent = agent
        self._driver = driver
        self._computer = driver.computer
        self.last: Any = None
        self.responses = self
        # what the SDK's loop does not know, such as calls of the desktop's own tools and answers of which nothing was
        # done: (how many items of its input were before, items)
        self._called: list[tuple[int, list[Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def create(self, **request: Any) -> Any:
        """The next response whose calls are all of the computer and can be read: all others are answered here."""
        computer = self._computer
        given = list(request["input"])
        if computer.steps and (why := computer.undone) is not None:  # the SDK's loop tells no error of an action
            if computer.ended.is_set():
                raise EpisodeOver
            self._called.append((len(given), [_told(not_done(why))]))
        if computer.tools:
            own = [_function(computer.known[name]) for name in computer.tools]
            request["tools"] = [*(request["tools"] if computer.gui else []), *own]
            request["parallel_tool_calls"] = False
        while True:
            response, undone = await self._create(**{**request, "input": self._whole(given)})
            items = [item.to_dict(mode="json") for item in response.output]
            if undone is not None:
                self._called.append((len(given), self._unanswered(items, undone)))
                continue
            calls = [item for item in response.output if getattr(item, "type", None) == "function_call"]
            if not calls:
                return response
            items += [await self._call(call) for call in calls]
            self._called.append((len(given), items))

    def _unanswered(self, items: list[dict[str, Any]], told: str) -> list[Any]:
        """What the conversation goes on with after an answer of which nothing is done: itself, where each of its calls
        can be answered, and what the model is told. Ends the episode where a safety check is not acknowledged."""
        outputs: list[Any] = []
        for item in items:
            known = isinstance(item.get("call_id"), str)
            if item.get("type") == "computer_call" and known:
                checks = item.get("pending_safety_checks") or []
                if checks and self._agent.safety == "stop":
                    self._computer.stop(SAFETY)
                shot = {"type": "computer_screenshot", "image_url": self._picture()}
                output = {"type": "computer_call_output", "call_id": item["call_id"], "output": shot}
                outputs.append({**output, "acknowledged_safety_checks": checks})
            elif item.get("type") == "function_call" and known:
                outputs.append({"type": "function_call_output", "call_id": item["call_id"], "output": told})
            elif item.get("type") not in ("message", "reasoning"):
                return [_told(told)]
        return [*items, *outputs, _told(told)] if outputs else [_told(told)]

    def _picture(self) -> str:
        return f"data:image/png;base64,{self._driver.screenshot()}"

    def _whole(self, given: list[Any]) -> list[Any]:
        """The SDK's history with the calls that it does not know, where they were."""
        whole, start = [], 0
        for at, items in self._called:
            whole += given[start:at] + items
            start = at
        return whole + given[start:]

    async def _call(self, item: Any) -> dict[str, Any]:
        """Does a call, and gives what the model reads of it."""
        try:
            arguments = json.loads(item.arguments)
        except (ValueError, RecursionError, TypeError):
            arguments = None
        call = ToolCall(
            name=str(item.name), id=str(item.call_id), arguments=arguments if isinstance(arguments, dict) else {}
        )
        try:
            result = await self._computer.call(call)
        except ActionRefused as refused:
            result = not_done(str(refused))
        return {"type": "function_call_output", "call_id": item.call_id, "output": result}

    async def _create(self, **request: Any) -> tuple[Any, str | None]:
        """A response, which is a step then, and what the model is told where nothing of it is done."""
        agent, computer = self._agent, self._computer
        try:
            response = await self._client.responses.create(**request)
        except Exception as error:
            computer.begin(Decision("", None))
            computer.stop(failure(agent.sdk, error, agent.name))
        if not isinstance(getattr(response, "output", None), list):
            raise ServerFailed(f"an answer without output: {str(response)[:200]}")
        self.last = response
        usage = _tokens(response.usage)
        raw = plain(response)
        text = _said(response, "text")
        called = [getattr(item, "type", None) for item in response.output]
        own = [item for item in response.output if getattr(item, "type", None) == "function_call"]
        decision = Decision(
            json.dumps(raw.get("output", [])) if raw is not None else str(response.output),
            None,
            thought=text or None,
            parse_error=_no_answer(response),
            usage=usage,
            cost=None if agent.prices is None or usage is None else agent.prices.cost(usage),
            raw=raw,
        )
        if own and "computer_call" in called:
            decision = replace(decision, parse_error="calls of the computer and of other tools in one answer")
        elif any(item.name not in computer.tools for item in own):
            decision = replace(decision, parse_error=f"a call of another tool: {str(own[0].name)[:60]!r}")
        elif not own and not text and "computer_call" not in called:
            decision = replace(decision, parse_error=decision.parse_error or "neither a call of a tool nor a text")
        answer = None if own or "computer_call" not in called or raw is None else raw.get("output")
        return response, self._driver.begin(decision, answer)


class _Members:
    """The SDK's driver protocol (`openai.lib.computer.AsyncComputerDriver`) over ours."""

    def __init__(self, driver: Driver, *, batch: bool) -> None:
        self._driver = driver
        self._batch = batch

    async def _do(self, action: Any) -> None:
        value = action.model_dump(mode="json", exclude_none=True)
        call: dict[str, Any] = {"type": "computer_call", "call_id": "1", "status": "completed"}
        call |= {"actions": [value]} if self._batch else {"action": value}
        arguments = {name: item for name, item in value.items() if name != "type"}
        # the SDK's loop would end at an error; what was not done is told with the next request
        await self._driver.do([call], ToolCall(name=str(value.get("type")), arguments=arguments))

    async def click(self, action: Any) -> None:
        await self._do(action)

    async def double_click(self, action: Any) -> None:
        await self._do(action)

    async def drag(self, action: Any) -> None:
        await self._do(action)

    async def keypress(self, action: Any) -> None:
        await self._do(action)

    async def move(self, action: Any) -> None:
        await self._do(action)

    async def scroll(self, action: Any) -> None:
        await self._do(action)

    async def type(self, action: Any) -> None:
        await self._do(action)

    async def wait(self, action: Any) -> None:
        await self._do(action)

    async def screenshot(self) -> dict[str, str]:
        return {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{self._driver.screenshot()}"}


def _function(tool: Tool) -> dict[str, Any]:
    about = {"name": tool.name, "description": tool.description, "parameters": tool.schema()}
    return {"type": "function", "strict": tool.strict, **about}


def _told(text: str) -> dict[str, Any]:
    """What the model is told besides the screenshot."""
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def _no_answer(response: Any) -> str | None:
    """Why a response is no answer: it was cut off, or refused."""
    details = getattr(response, "incomplete_details", None)
    reason = getattr(details, "reason", None)
    if reason == "max_output_tokens":
        return "truncated: the answer was cut off at its limit of tokens"
    if reason == "content_filter":
        return "refusal: the server filtered the answer"
    if reason is not None or getattr(response, "status", None) == "incomplete":
        return "truncated: the answer was cut off"
    refusal = _said(response, "refusal")
    return f"refusal: {refusal}" if refusal else None


def _safety(error: str) -> str:
    """Why the SDK's loop stopped."""
    return SAFETY if "safety checks require" in error else error


def _said(response: Any, kind: str) -> str:
    """The texts of a response's messages: `text`, or `refusal`."""
    texts = []
    for item in response.output:
        for part in getattr(item, "content", None) or () if getattr(item, "type", None) == "message" else ():
            if isinstance(value := getattr(part, kind, None), str):
                texts.append(value)
    return "\n".join(texts)


def _tokens(usage: Any) -> TokenUsage | None:
    details = getattr(usage, "input_tokens_details", None)
    figures = (
        getattr(usage, "input_tokens", None),
        getattr(usage, "output_tokens", None),
        getattr(details, "cached_tokens", None),
    )
    given, answered, cached = (value if isinstance(value, int) and value >= 0 else 0 for value in figures)
    if not given and not answered:
        return None
    return TokenUsage(input_tokens=given, output_tokens=answered, cached_tokens=cached)
