"""Forms of text that the job's own fields and the blocks of backends share."""

from __future__ import annotations

from typing import Final

from launcher.spec.values.structures import MapOf
from launcher.spec.values.types import Text

LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
LABEL_KEY: Final = Text("a label", LABEL, "letters, digits, -, _ and . within", 63)
LABEL_VALUE: Final = Text("a label's value", rf"(?:{LABEL})?", "letters, digits, -, _ and . within", 63, numbers=True)
VARIABLE: Final = Text(
    "a variable's name", r"(?!SLIPWAY_)[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _; not SLIPWAY_*", 100
)
ROLE: Final = Text("a role's name", r"[a-z](?:[a-z0-9-]*[a-z0-9])?", "a-z first, then a-z, 0-9 and -", 20)
GPU: Final = Text("a GPU's name", r"[A-Za-z0-9][A-Za-z0-9._-]*")
LOCAL_PLACE: Final = "local"  # the place of a secret that `launcher secrets set` keeps on this machine
PLACES: Final = MapOf(VARIABLE, Text("a place"))
