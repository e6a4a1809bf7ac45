"""A program of GTK 3 in two windows, each with a sheet that is drawn on and a field: it writes down what they get.

    /usr/bin/python3 gtk_sheets.py FILE WIDTH HEIGHT      the windows lie side by side, each of this size

Lines of FILE: `ready`; SHEET press|move|release X Y, in pixels of the window; `text` and what a field holds. On F2 it
works for BUSY_S and reads nothing meanwhile.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

BUSY_S = 2.0


def main() -> None:
    import gi  # type: ignore[import-not-found,unused-ignore]  # of Debian's Python, which runs this

    gi.require_version("Gtk", "3.0")
    from gi.repository import Gdk, GLib, Gtk  # type: ignore[import-not-found,unused-ignore]

    file = Path(sys.argv[1]).open("a", buffering=1)  # noqa: SIM115 as long as the program runs
    width, height = map(int, sys.argv[2:])

    def button(sheet: int, what: str, event: Any) -> bool:
        if event.type in (Gdk.EventType.BUTTON_PRESS, Gdk.EventType.BUTTON_RELEASE, Gdk.EventType.MOTION_NOTIFY):
            print(sheet, what, round(event.x), round(event.y), file=file)
        return True

    def key(event: Any) -> bool:
        if event.keyval == Gdk.KEY_F2:
            time.sleep(BUSY_S)
        return False

    for sheet in range(2):
        top, box, area, field = Gtk.Window(decorated=False), Gtk.VBox(), Gtk.DrawingArea(), Gtk.Entry()
        masks = Gdk.EventMask
        area.add_events(masks.BUTTON_PRESS_MASK | masks.BUTTON_RELEASE_MASK | masks.BUTTON_MOTION_MASK)
        for signal, what in (
            ("button-press-event", "press"),
            ("motion-notify-event", "move"),
            ("button-release-event", "release"),
        ):
            area.connect(signal, lambda _, event, sheet=sheet, what=what: button(sheet, what, event))
        field.connect("key-press-event", lambda _, event: key(event))
        field.connect("changed", lambda field: print("text", field.get_text(), file=file))
        box.pack_start(area, True, True, 0)
        box.pack_start(field, False, False, 0)
        top.add(box)
        top.set_default_size(width, height)
        top.move(sheet * width, 0)
        top.show_all()
    GLib.idle_add(lambda: print("ready", file=file))
    Gtk.main()


if __name__ == "__main__":
    main()
