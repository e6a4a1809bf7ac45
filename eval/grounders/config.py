"""The `grounder` section of a configuration, and the grounder that it makes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from eval.config import Config
from eval.grounders.base import Grounder, TreeGrounder


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
        from eval.grounders.served import ServedGrounder

        return ServedGrounder(**options)
    if isinstance(config, GeminiGrounderConfig):
        from eval.grounders.gemini import GeminiGrounder

        return GeminiGrounder(**options)
    return TreeGrounder()
