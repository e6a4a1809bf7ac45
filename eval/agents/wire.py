"""What agents share that ask a model behind an API through its own SDK: failures told apart, and what answers cost.

The SDKs of OpenAI and Anthropic come from one generator: their exceptions have the same names and fields.
"""

from __future__ import annotations

import base64
import importlib
import io
import os
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from eval.config import Config, ConfigError
from eval.desktop import InfraError
from eval.episodes import TokenUsage
from eval.episodes.pictures import as_shown

if TYPE_CHECKING:
    import ssl

    from PIL import Image

Price = Annotated[float, msgspec.Meta(ge=0)]
MILLION: Final = 1_000_000
# what is wrong with the request is the configuration's matter: no answer of the model can change it
CONFIGURED: Final = {
    401: "the server does not accept the key",
    403: "the server forbids it",
    404: "the server knows no such model or path",
}
TOO_LONG: Final = ("context_length", "context length", "context window", "prompt is too long", "max_model_len")
REFUSED: Final = ("content_filter", "content_policy", "content policy", "safety")


class ServerFailed(InfraError):
    """The server of a model failed, could not be reached, or gave an answer that is none."""


class Prices(Config, frozen=True):
    """What a model costs, USD for a million tokens.

    input   tokens of the prompt
    output  tokens of the answer, its reasoning among them
    cached  tokens of the prompt that came from the server's cache; none: as input
    """

    input: Price
    output: Price
    cached: Price | None = None

    def cost(self, usage: TokenUsage) -> float:
        """USD for one answer."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        per_cached = self.input if self.cached is None else self.cached
        fresh = (usage.input_tokens - cached) * self.input
        return (fresh + cached * per_cached + usage.output_tokens * self.output) / MILLION


def package(name: str, agent: str) -> Any:
    """The SDK. Raises ConfigError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(f"agent {agent}: the package {name} is not installed: pip install {name}") from None


def http_client(sdk: Any) -> Any:
    """The SDK's own HTTP client, for one client of the SDK, which closes it. The certificates of authorities are read
    once in a process: that takes 30 ms of CPU, and there are agents that open a client for each answer."""
    kinds = sdk.DefaultAsyncHttpxClient.__mro__
    library = next(kind.__module__.partition(".")[0] for kind in kinds if kind.__name__ == "AsyncClient")
    named = (os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
    return sdk.DefaultAsyncHttpxClient(verify=_authorities(library, *named))


@cache
def _authorities(library: str, file: str | None, folder: str | None) -> ssl.SSLContext:
    """What an SDK's HTTP library trusts while these two variables of the environment have these values."""
    context: ssl.SSLContext = importlib.import_module(library).create_ssl_context()
    return context


def key(variable: str | None, agent: str) -> str:
    """The key in an environment variable; "none" without one. Raises ConfigError for a variable that is not set."""
    if variable is None:
        return "none"
    if not (value := os.environ.get(variable)):
        raise ConfigError(f"agent {agent}: api_key: the environment variable {variable} is not set")
    return value


def failure(sdk: Any, error: Exception, agent: str) -> str:
    """Why there is no answer, where that is the agent's own failure: `limit: ...` or `refusal: ...`.

    Raises ConfigError for what the configuration must mend, ServerFailed for any other failure. Errors that are not of
    the SDK or of its HTTP client are raised as they are.
    """
    if isinstance(error, sdk.APIStatusError):
        said = " ".join(str(error.message).split())[:300]
        marks = f"{error.message} {error.body}".lower()
        if error.status_code in CONFIGURED:
            raise ConfigError(f"agent {agent}: {CONFIGURED[error.status_code]}: {said}") from None
        if error.status_code in (400, 413, 422):
            if any(mark in marks for mark in TOO_LONG):
                return f"limit: the prompt is too long for the model: {said}"
            if any(mark in marks for mark in REFUSED):
                return f"refusal: {said}"
        raise ServerFailed(f"status {error.status_code}: {said}") from None
    if isinstance(error, sdk.APIError | ValueError) or type(error).__module__.startswith(("httpx", "httpcore")):
        # no connection, no answer in time, a connection that was cut, a body that is no JSON
        raise ServerFailed(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from None
    raise error


def png(image: Image.Image) -> str:
    """The picture as PNG, base64."""
    buffer = io.BytesIO()
    as_shown(image).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def plain(answer: Any) -> dict[str, Any] | None:
    """An SDK's model of an answer as JSON; None where it is no object, or holds what no file can hold."""
    try:
        value = answer.model_dump(mode="json", exclude_none=True, warnings=False)
        msgspec.json.encode(value)
    except (AttributeError, TypeError, ValueError):
        return None
    return value if isinstance(value, dict) else None
