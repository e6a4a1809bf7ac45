"""Where a running desktop is: what a program needs to open its display and its buses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class RunningDesktop:
    """One running desktop.

    display     the X display, as ":3"
    xauthority  the file that holds the display's cookie; it exists, and is empty where the display asks for none
    environ     the whole environment of a program that starts on the desktop: DISPLAY, XAUTHORITY, HOME,
                DBUS_SESSION_BUS_ADDRESS, XDG_RUNTIME_DIR, PATH and what else the session gives its programs
    home        the folder that belongs to the desktop's user, as seen from here
    root        the root folder of what the desktop's programs see, as seen from here
    """

    display: str
    xauthority: Path
    environ: Mapping[str, str]
    home: Path
    root: Path = Path("/")

    @property
    def home_inside(self) -> PurePosixPath:
        """The home as the desktop's programs see it."""
        return PurePosixPath("/") / self.home.relative_to(self.root)
