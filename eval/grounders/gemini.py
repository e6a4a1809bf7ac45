"""A grounder that asks Gemini, through Google's own SDK. Gemini is trained to give boxes as `box_2d`."""

from __future__ import annotations

import asyncio
import base64
import importlib
from collections.abc import Mapping
from typing import Any, Final

from eval.actions.geometry import Box
from eval.agents.wire import CONFIGURED, ServerFailed, key, png
from eval.config import ConfigError
from eval.desktop import Observation
from eval.grounders.base import GRID, REQUEST, boxes

FORM: Final = (
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
        return boxes(await self._answer([picture, f"{REQUEST} {FORM}"]), "box_2d", "yxyx", (GRID, GRID))

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
