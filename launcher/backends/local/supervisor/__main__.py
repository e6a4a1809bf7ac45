"""`python -m launcher.backends.local.supervisor`: verbs and installed systemd units start it by this name."""

from __future__ import annotations

import sys

from launcher.msgspec_import import load_msgspec

if __name__ == "__main__":
    load_msgspec()
    from launcher.backends.local.supervisor.process import main

    sys.exit(main())
