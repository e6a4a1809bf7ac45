"""The `grounder` section of a configuration, and the grounders that ask a model."""

from __future__ import annotations

import asyncio
import base64
import importlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from eval.actions.geometry import FAMILIES, Box, smart_resize
from eval.agents.wire import CONFIGURED, ServerFailed, failure, http_client, key, package, png
from eval.config import Config, ConfigError
from eval.desktop import Observation
from eval.grounders.base import GRID, REQUEST, Grounder, TreeGrounder, boxes


class TreeGrounderConfig(Config, frozen=True, tag_field="kind", tag="tree"):
    """The accessibility tree: what can be clicked or written into. As without a grounder in the environment desktop."""


class ServedGrounderConfig(Config, frozen=True, tag_field="kind", tag="openai-compatible"):
    """A model behind an OpenAI-compatible endpoint that is asked for boxes on each screenshot.

    model       its name there
    base_url    address of the endpoint, such as http://localhost:8000/v1
    api_key     the environment variable that holds the key; none: the server wants no key
    places      how the model says places: grid (0 to 1000, as Qwen3-VL) or pixels (of the picture as Qwen2.5-VL resizes
                it)
    max_tokens  longest answer, in tokens
    timeout     seconds that the server may be silent; a step's time limit holds for the answer too
    retries     how often a request is sent again when the server is busy or fails; as Retry-After says, where it does
    """

    model: str
    base_url: str
    api_key: str | None = None
    places: Literal["grid", "pixels"] = "grid"
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 4096
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    retries: Annotated[int, msgspec.Meta(ge=0)] = 2


class GeminiGrounderConfig(Config, frozen=True, tag_field="kind", tag="gemini"):
    """Gemini, through Google's SDK, asked for boxes on each screenshot. It needs slipway-cua[gemini].

    model       its name
    base_url    address of the API; none: Google's
    api_key     the environment variable that holds the key
    max_tokens  longest answer, in tokens
    timeout     seconds that a request may take; a step's time limit holds for the answer too
    retries     how often a request is sent again when the server is busy or fails
    """

    model: str
    base_url: str | None = None
    api_key: str = "GEMINI_API_KEY"
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 8192
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    retries: Annotated[int, msgspec.Meta(ge=0)] = 2


GrounderConfig = TreeGrounderConfig | ServedGrounderConfig | GeminiGrounderConfig


def make_grounder(config: GrounderConfig) -> Grounder:
    """Raises ConfigError for an SDK or a key that is not there."""
    options = {name: getattr(config, name) for name in config.__struct_fields__}
    if isinstance(config, ServedGrounderConfig):
        return ServedGrounder(**options)
    if isinstance(config, GeminiGrounderConfig):
        return GeminiGrounder(**options)
    return TreeGrounder()


GEMINI_FORM: Final = (
    'Each object: {"box_2d": [top, left, bottom, right], "label": "..."}, with whole numbers from 0 to 1000 across the '
    "picture."
)
MALFORMED: Final = ("httpx", "httpcore", "aiohttp", "pydantic", "google.genai")


class GeminiGrounder:
    """See `eval.grounders.config.GeminiGrounderConfig`. Raises ConfigError."""

    def __init__(
        self, model: str, base_url: str | None, api_key: str, max_tokens: int, timeout: float, retries: int
    ) -> None:
        try:
            self.sdk = importlib.import_module("google.genai")
        except ImportError:
            raise ConfigError("grounder: the package google-genai is not installed: pip install google-genai") from None
        types = self.sdk.types
        self.model = model
        self.timeout = (timeout + 60.0) * (retries + 1)  # the SDK waits at most a minute before it asks again
        self.key = key(api_key, "grounder")
        self.options = types.HttpOptions(
            base_url=base_url,
            timeout=round(timeout * 1000),  # milliseconds
            retry_options=types.HttpRetryOptions(attempts=retries + 1),
        )
        self.asked = types.GenerateContentConfig(
            temperature=0.0, max_output_tokens=max_tokens, response_mime_type="application/json"
        )

    async def ground(self, observation: Observation) -> Mapping[int, Box]:
        types = self.sdk.types
        picture = types.Part.from_bytes(data=base64.b64decode(png(observation.image)), mime_type="image/png")
        return boxes(await self._answer([picture, f"{REQUEST} {GEMINI_FORM}"]), "box_2d", "yxyx", (GRID, GRID))

    async def _answer(self, contents: list[Any]) -> str:
        """The answer's text; "" where Gemini gave none, as when it refused."""
        client = self.sdk.Client(api_key=self.key, http_options=self.options)
        try:
            async with asyncio.timeout(self.timeout), client.aio as asking:
                answer = await asking.models.generate_content(model=self.model, contents=contents, config=self.asked)
        except TimeoutError:
            raise ServerFailed(f"grounder: no whole answer within {self.timeout:g} s") from None
        except Exception as error:
            raise self._failure(error) from None
        finally:
            client.close()
        parts = [
            part.text
            for candidate in (answer.candidates or [])[:1]
            for part in (candidate.content.parts if candidate.content else None) or []
            if isinstance(part.text, str) and not part.thought
        ]
        return "".join(parts)

    def _failure(self, error: Exception) -> Exception:
        """What a failed request is: the configuration's matter, the server's, or a bug, which comes back as it is."""
        said = " ".join(str(error).split())[:300]
        if isinstance(error, self.sdk.errors.APIError):
            if error.code in CONFIGURED or "API key" in said:
                why = CONFIGURED.get(error.code, CONFIGURED[401])
                return ConfigError(f"grounder: {why}: {said}")
            return ServerFailed(f"grounder: status {error.code}: {said}")
        if isinstance(error, OSError | ValueError) or type(error).__module__.startswith(MALFORMED):
            return ServerFailed(f"grounder: {type(error).__name__}: {said}")
        return error


SERVED_FORM = 'Each object: {{"bbox_2d": [left, top, right, bottom], "label": "..."}}, with {places}.'


class ServedGrounder:
    """See `eval.grounders.config.ServedGrounderConfig`. Raises ConfigError."""

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None,
        places: str,
        max_tokens: int,
        timeout: float,
        retries: int,
    ) -> None:
        self.sdk = package("openai", "grounder")
        self.model = model
        self.places = places
        self.max_tokens = max_tokens
        self.timeout = timeout * (retries + 1)
        self.settings = {
            "base_url": base_url,
            "api_key": key(api_key, "grounder"),
            "timeout": timeout,
            "max_retries": retries,
        }

    async def ground(self, observation: Observation) -> Mapping[int, Box]:
        width, height = observation.image.size
        size: tuple[float, float] = (GRID, GRID)
        told = f"numbers from 0 to {GRID} across the picture"
        if self.places == "pixels":
            resized_height, resized_width = smart_resize(height, width, FAMILIES["qwen2.5-vl"])
            size, told = (resized_width, resized_height), "numbers in pixels"
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png(observation.image)}"}}
        text = {"type": "text", "text": f"{REQUEST} {SERVED_FORM.format(places=told)}"}
        return boxes(await self._asked([picture, text]), "bbox_2d", "xyxy", size)

    async def _asked(self, content: list[dict[str, Any]]) -> str:
        """The answer's text; "" where the model gave none, or refused."""
        try:
            async with (
                asyncio.timeout(self.timeout),
                self.sdk.AsyncOpenAI(http_client=http_client(self.sdk), **self.settings) as client,
            ):
                completion = await client.chat.completions.create(
                    model=self.model,
                    messages=[{"role": "user", "content": content}],
                    max_tokens=self.max_tokens,
                    temperature=0.0,
                )
        except TimeoutError:
            raise ServerFailed(f"grounder: no whole answer within {self.timeout:g} s") from None
        except Exception as error:
            failure(self.sdk, error, "grounder")
            return ""
        choices: Any = getattr(completion, "choices", None)
        if not isinstance(choices, list) or not choices:
            raise ServerFailed(f"grounder: an answer without a message: {str(completion)[:200]}")
        said = getattr(choices[0].message, "content", None)
        return said if isinstance(said, str) else ""
