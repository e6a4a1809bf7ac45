"""Where the other roles of a run are, as the runtime tells a role that needs them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from eval.config import ConfigError

PREFIX: Final = "role:"


def addresses(role: str, field: str) -> list[str]:
    """host:port of each rank of a role. Raises ConfigError where this process has none; `field` names who asks."""
    variable = f"SLIPWAY_ENDPOINT_{role.upper().replace('-', '_')}"
    found = [each for each in os.environ.get(variable, "").split(",") if each]
    if not found:
        raise ConfigError(f"{field}: {role}: no ${variable}; the job's role needs `needs: [{role}]`")
    return found


def part_of_this_rank(found: Sequence[str], field: str) -> list[str]:
    """Those that this process may use where several ranks share an evaluation: no two ranks use the same one, because
    each resets it as if it were alone there. Raises ConfigError where a rank would have none."""
    size = int(os.environ.get("WORLD_SIZE") or 1) if int(os.environ.get("SLIPWAY_NODES") or 1) > 1 else 1
    if len(found) < size:
        raise ConfigError(f"{field}: {len(found)} for {size} ranks of one evaluation; each needs one of its own")
    return list(found[int(os.environ.get("RANK") or 0) :: size]) if size > 1 else list(found)


def base_url(text: str, field: str) -> str:
    """`text`; of `role:NAME` the endpoint /v1 of the first rank of that role. Raises ConfigError."""
    if not text.startswith(PREFIX):
        return text
    return f"http://{addresses(text.removeprefix(PREFIX), field)[0]}/v1"
