"""`$SLIPWAY_NAME` in commands, configs and environment variables.

Only names that start with SLIPWAY_ are replaced, so shell text keeps its own `$HOME`, `$1` and `$$`.
`$$SLIPWAY_NAME` stands for the text `$SLIPWAY_NAME` itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.errors import BadInput

REFERENCE: Final = r"(\$?)\$(?:\{(SLIPWAY_[A-Z0-9_]+)\}|(SLIPWAY_[A-Z0-9_]+))"

# The variables that the runtime sets for a command: docs/reference/runtime.md. It also sets SLIPWAY_ENDPOINT_<ROLE> for
# `needs` and SLIPWAY_PORT_<NAME> for `ports`.
NAMES: Final = (
    "SLIPWAY_CONFIG",
    "SLIPWAY_INPUTS",
    "SLIPWAY_INPUT_DIGESTS",
    "SLIPWAY_OUTPUTS",
    "SLIPWAY_RESUME",
    "SLIPWAY_RUN",
    "SLIPWAY_ATTEMPT",
    "SLIPWAY_ROLE",
    "SLIPWAY_RANK",
    "SLIPWAY_NODES",
    "SLIPWAY_METRICS",
    "SLIPWAY_PROGRESS",
)
ENDPOINT: Final = "SLIPWAY_ENDPOINT_"
PORT: Final = "SLIPWAY_PORT_"


def endpoint(role: str) -> str:
    """The variable that holds the addresses of a role."""
    return ENDPOINT + role.upper().replace("-", "_")


def port(name: str) -> str:
    """The variable that holds the number of a rank's own port."""
    return PORT + name.upper().replace("-", "_")


def expand(value: Any, variables: Mapping[str, str]) -> Any:
    """`value` with every reference replaced in texts at any depth, but not in keys. Raises BadInput for an unknown
    name."""
    if isinstance(value, str):
        if "$" not in value:
            return value
        return re.sub(REFERENCE, lambda match: _replace(match, variables), value)
    if isinstance(value, Mapping):
        return {key: expand(item, variables) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(expand(item, variables) for item in value)
    return value


def _replace(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match[1]:
        return match[0][1:]
    name = match[2] or match[3]
    if name not in variables:
        raise BadInput(f"${name} is not set here; known: {', '.join(sorted(variables))}")
    return variables[name]


def references(text: str) -> Iterator[tuple[str, str]]:
    """(name, the text after it) of every reference that is not escaped."""
    for match in re.finditer(REFERENCE, text):
        if not match[1]:
            yield match[2] or match[3], text[match.end() :]
