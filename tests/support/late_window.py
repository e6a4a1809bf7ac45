"""A program that answers a click later, in steps, as one that animates, or after S seconds of computing:
python -m tests.support.late_window STEPS MS [S]

It prints its window's number once it is shown. The last step alone fills the window with green.
"""

from __future__ import annotations

import select
import sys
import time

import xcffib
from xcffib.xproto import CW, GC, EventMask

SIDE = 200
GREY, GREEN = 0x808080, 0x00C000


def main(steps: int, pause_ms: int, work_s: float = 0.0) -> None:
    x = xcffib.connect()
    screen = x.get_setup().roots[0]
    window, pen = x.generate_id(), x.generate_id()
    events = EventMask.ButtonPress | EventMask.Exposure
    where = (100, 100, SIDE, SIDE, 0, 1, screen.root_visual)
    # no window manager asks it anything: it answers no ping
    values = [GREY, 1, events]
    mask = CW.BackPixel | CW.OverrideRedirect | CW.EventMask
    x.core.CreateWindow(screen.root_depth, window, screen.root, *where, mask, values)
    x.core.CreateGC(pen, window, GC.Foreground, [GREEN])
    x.core.MapWindow(window)
    x.core.GetInputFocus().reply()
    print(window, flush=True)
    waiting = select.poll()
    waiting.register(x.get_file_descriptor(), select.POLLIN)
    while True:
        event = x.poll_for_event()
        if event is None:
            waiting.poll()
            continue
        if not isinstance(event, xcffib.xproto.ButtonPressEvent):
            continue
        for step in range(steps):
            select.poll().poll(pause_ms)
            end = time.process_time() + work_s
            while time.process_time() < end:
                pass
            if step == steps - 1:
                box = xcffib.xproto.RECTANGLE.synthetic(0, 0, SIDE, SIDE)
                x.core.PolyFillRectangle(window, pen, 1, [box])
                x.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:]))
