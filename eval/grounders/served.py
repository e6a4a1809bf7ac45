"""A grounder that asks a vision-language model behind an OpenAI-compatible endpoint, through OpenAI's own SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from eval.actions.geometry import FAMILIES, Box, smart_resize
from eval.agents.wire import ServerFailed, failure, key, package, png
from eval.desktop import Observation
from eval.grounders.base import GRID, REQUEST, boxes

FORM = 'Each object: {{"bbox_2d": [left, top, right, bottom], "label": "..."}}, with {places}.'


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
        text = {"type": "text", "text": f"{REQUEST} {FORM.format(places=told)}"}
        return boxes(await self._asked([picture, text]), "bbox_2d", "xyxy", size)

    async def _asked(self, content: list[dict[str, Any]]) -> str:
        """The answer's text; "" where the model gave none, or refused."""
        try:
            async with asyncio.timeout(self.timeout), self.sdk.AsyncOpenAI(**self.settings) as client:
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
