"""A model behind an OpenAI-compatible endpoint (chat completions), such as vLLM, through the `openai` SDK.

Each episode asks for itself: an answer waits for no other episode. The same prompt builder and dialects as everywhere
make the prompt and read the answer, so Qwen2.5-VL, Qwen3-VL, UI-TARS and OpenCUA are a matter of `prompt` and `frame`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from eval.actions.geometry import FAMILIES, Cells, Family, FrameName, smart_resize
from eval.agents.base import Decision, History, decide
from eval.agents.computer import Computer
from eval.agents.wire import Prices, ServerFailed, failure, http_client, key, package, plain, png
from eval.desktop import ActionRefused, Observation
from eval.desktops.tools import Tool
from eval.episodes import TokenUsage, ToolCall
from eval.prompts import PromptBuilder


@dataclass(frozen=True)
class _Answer:
    """One completion. `stop` is the server's finish_reason."""

    text: str
    stop: str | None
    refusal: str | None = None
    reasoning: str | None = None
    usage: TokenUsage | None = None
    calls: tuple[ToolCall, ...] = ()
    raw: dict[str, Any] | None = None


class ServedAgent:
    """See ServedConfig in eval.agents.config for the options. Raises ConfigError."""

    parallel = 64
    calls_tools = True

    def __init__(
        self,
        model: str,
        builder: PromptBuilder,
        *,
        base_url: str,
        name: str = "model",
        api_key: str | None = None,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        frame: FrameName = "normalised",
        family: str = "qwen2.5-vl",
        max_pixels: int | None = None,
        timeout: float = 120.0,
        retries: int = 4,
        stream: bool = False,
        extra: dict[str, Any] | None = None,
        prices: Prices | None = None,
    ) -> None:
        if frame != "normalised":
            builder.in_frame(Cells(1, 1))
        self.name = name
        self.model = model
        self.builder = builder
        self.sdk = package("openai", name)
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.frame = frame
        known = FAMILIES[family]
        self.family = Family(known.factor, known.min_pixels, max_pixels or known.max_pixels)
        self.timeout = timeout
        self.retries = retries
        self.stream = stream
        self.extra = extra or {}
        self.prices = prices
        self.settings = {"base_url": base_url, "api_key": key(api_key, name), "timeout": timeout}

    async def run(self, computer: Computer) -> None:
        async with self._client() as client:
            while not computer.ended.is_set():
                tools = [computer.known[name] for name in computer.tools]
                decision = await self._decide(client, computer.observation, computer.history(), tools)
                said = (decision.action, decision.parse_error, decision.refused)
                if said == (None, None, None):
                    await self._call(computer, decision)
                else:
                    await computer.answer(decision)

    async def _call(self, computer: Computer, decision: Decision) -> None:
        """Does the calls of an answer, up to the first that fails. The next prompt tells how each ended."""
        computer.begin(decision)
        for call in decision.calls:
            with contextlib.suppress(ActionRefused):
                await computer.call(call)

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        """One decision per observation, asked for all at once."""
        async with self._client() as client:
            asked = (self._decide(client, *pair) for pair in zip(observations, histories, strict=True))
            return list(await asyncio.gather(*asked))

    def _client(self) -> Any:
        # the SDK waits as the server's Retry-After says
        return self.sdk.AsyncOpenAI(max_retries=self.retries, http_client=http_client(self.sdk), **self.settings)

    def _builder(self, observation: Observation) -> PromptBuilder:
        width, height = observation.image.size
        if self.frame == "normalised":
            return self.builder
        if self.frame == "smart-resized":
            height, width = smart_resize(height, width, self.family)
        return self.builder.in_frame(Cells(width, height))

    async def _decide(
        self, client: Any, observation: Observation, history: History, tools: Sequence[Tool] = ()
    ) -> Decision:
        """A decision without an action, a parse_error and a refused has calls of `tools` instead.

        Raises InfraError, and ConfigError for what the configuration must mend.
        """
        builder = self._builder(observation)
        messages, images = builder.ask(history.task, history.past, observation, history.demonstration)
        wire = wire_messages(messages, [png(image) for image in images])
        try:
            answer = await self._asked(client, wire, tools)
        except Exception as error:
            return Decision("", None, parse_error=failure(self.sdk, error, self.name))
        names = {tool.name for tool in tools}
        if called := tuple(call for call in answer.calls if call.name in names):
            decision = Decision(answer.text, None)
            answer = replace(answer, calls=called)
        else:
            decision = decide(partial(builder.read_turn, marks=observation.marks), answer.text)
        if answer.refusal is not None or answer.stop == "content_filter":
            why = f"refusal: {answer.refusal or 'the server filtered the answer'}"
            decision = Decision(answer.text or answer.refusal or "", None, parse_error=why)
        elif decision.parse_error is not None and answer.stop == "length":
            why = f"truncated: the answer was cut off at its limit of tokens: {decision.parse_error}"
            decision = replace(decision, parse_error=why)
        return replace(
            decision,
            thought=decision.thought or answer.reasoning,
            frame=builder.frame,
            calls=answer.calls,
            usage=answer.usage,
            cost=None if self.prices is None or answer.usage is None else self.prices.cost(answer.usage),
            raw=answer.raw,
        )

    async def _asked(self, client: Any, messages: list[dict[str, Any]], tools: Sequence[Tool]) -> _Answer:
        """One answer. A request changes nothing, so one whose answer was cut off is sent again."""
        for attempt in range(self.retries + 1):
            try:
                async with asyncio.timeout(self.timeout * (self.retries + 1)):
                    return await self._request(client, messages, tools)
            except TimeoutError:
                raise ServerFailed(f"no whole answer within {self.timeout * (self.retries + 1):g} s") from None
            except (self.sdk.APIStatusError, self.sdk.APITimeoutError):
                raise  # the SDK has sent it again already
            except Exception as error:
                cut = isinstance(error, ServerFailed) or type(error).__module__.startswith(("httpx", "httpcore"))
                if not cut or attempt == self.retries:
                    raise
                await asyncio.sleep(min(0.1 * 2**attempt, 5.0))
        raise AssertionError("unreachable")

    async def _request(self, client: Any, messages: list[dict[str, Any]], tools: Sequence[Tool]) -> _Answer:
        told: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "extra_body": self.extra or None,
        }
        if tools:
            told["tools"] = [function(tool) for tool in tools]
        if self.stream:
            return await self._streamed(client, told)
        completion = await client.chat.completions.create(**told)
        choices: Any = getattr(completion, "choices", None)
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = getattr(choice, "message", None)
        if choice is None or message is None:
            raise ServerFailed(f"an answer without a message: {str(completion)[:200]}")
        calls = [
            (call.id, call.function.name, call.function.arguments)
            for call in message.tool_calls or ()
            if getattr(call, "function", None) is not None
        ]
        return _Answer(
            text=said(message.content, calls),
            stop=choice.finish_reason,
            refusal=text(message.refusal),
            reasoning=text(getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)),
            usage=tokens(completion.usage),
            calls=tool_calls(calls),
            raw=plain(completion),
        )

    async def _streamed(self, client: Any, told: dict[str, Any]) -> _Answer:
        """The pieces of a stream put together. Raises ServerFailed for one that ends before its last piece."""
        content, reasoning, refusal = "", "", ""
        calls: dict[int, list[str]] = {}
        stop, used, last = None, None, None
        stream = await client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **told)
        async with stream:
            async for chunk in stream:
                used, last = chunk.usage or used, chunk
                for choice in chunk.choices or ():
                    delta = choice.delta
                    content += text(delta.content) or ""
                    refusal += text(delta.refusal) or ""
                    more = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
                    reasoning += text(more) or ""
                    for call in delta.tool_calls or ():
                        parts = calls.setdefault(call.index, ["", "", ""])
                        parts[0] += call.id or ""
                        if call.function is not None:
                            parts[1] += call.function.name or ""
                            parts[2] += call.function.arguments or ""
                    stop = choice.finish_reason or stop
        if stop is None:
            raise ServerFailed("the stream ended in the middle of an answer")
        whole = [(parts[0], parts[1], parts[2]) for _, parts in sorted(calls.items())]
        raw = {"id": text(getattr(last, "id", None)), "content": content, "finish_reason": stop}
        return _Answer(
            said(content, whole), stop, refusal or None, reasoning or None, tokens(used), tool_calls(whole), raw
        )


def wire_messages(messages: Sequence[dict[str, Any]], images: Sequence[str]) -> list[dict[str, Any]]:
    """Messages of the prompt builder in OpenAI's form; `images` are base64 PNGs in the order of their places."""
    left = iter(images)
    wire = []
    for message in messages:
        parts: list[dict[str, Any]] = []
        for part in message["content"]:
            if part["type"] == "image":
                parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{next(left)}"}})
            else:
                parts.append({"type": "text", "text": part["text"]})
        if message["role"] == "user":
            wire.append({"role": "user", "content": parts})
        else:  # some servers take a text only here
            wire.append({"role": message["role"], "content": "".join(part["text"] for part in parts)})
    return wire


def function(tool: Tool) -> dict[str, Any]:
    """A tool as chat completions have it."""
    told = {"name": tool.name, "description": tool.description, "parameters": tool.schema()}
    return {"type": "function", "function": told}


def said(content: Any, calls: Sequence[tuple[str, str, str]]) -> str:
    """The answer as the model wrote it: a server that parses tool calls takes them out of the text."""
    parts = [content] if isinstance(content, str) and content else []
    for _, name, arguments in calls:
        parts.append(f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>')
    return "\n".join(parts)


def tool_calls(calls: Sequence[tuple[str, str, str]]) -> tuple[ToolCall, ...]:
    """Calls (id, name, arguments as text) as they are recorded."""
    recorded = []
    for identity, name, arguments in calls:
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError, TypeError):
            value = None
        recorded.append(ToolCall(id=identity or "", name=name, arguments=value if isinstance(value, dict) else {}))
    return tuple(recorded)


def tokens(usage: Any) -> TokenUsage | None:
    """What the server counted; None where it did not."""
    details = getattr(usage, "prompt_tokens_details", None)
    figures = (
        getattr(usage, "prompt_tokens", None),
        getattr(usage, "completion_tokens", None),
        getattr(details, "cached_tokens", None),
    )
    given, answered, cached = (value if isinstance(value, int) and value >= 0 else 0 for value in figures)
    if not given and not answered:
        return None
    return TokenUsage(input_tokens=given, output_tokens=answered, cached_tokens=cached)


def text(value: Any) -> str | None:
    """The text, or None for anything else: a server may send what its SDK's types do not promise."""
    return value if isinstance(value, str) and value else None
