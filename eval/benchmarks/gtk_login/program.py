"""The program on the desktop: a login form, as a file describes it. `python3 program.py FORM.json STATE.json`

It runs with the system's Python and Debian's GTK 3 (python3-gi, gir1.2-gtk-3.0), without this package. Once it is on
the screen, and after each change, it replaces the state's file: which screen it shows, what its fields hold, which of
them has the keyboard, and whether its text is selected.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gi

gi.require_version("Gtk", "3.0")
from gi.repository import GLib, Gtk  # noqa: E402

STYLE = """
* {{ font: 9px "DejaVu Sans"; min-height: 0; min-width: 0; padding: 0; margin: 0; box-shadow: none; text-shadow: none;
     transition: none; animation: none; -gtk-icon-shadow: none; caret-color: black; border-radius: 0; outline: none; }}
window {{ background: {background}; }}
.card {{ background: {card}; }}
label {{ color: #282828; }}
entry {{ background-image: none; background-color: white; border: 1px solid #969696; padding: 0 2px; color: #141414; }}
entry:focus {{ border-color: {accent}; background-color: #fff6be; }}
entry selection {{ background-color: #a0c8ff; color: #141414; }}
button {{ background-image: none; background-color: #e1e1e1; border: 1px solid #787878; }}
button label {{ color: #3c3c3c; }}
button.main {{ background-color: {accent}; border-color: {accent}; }}
button.main label {{ color: white; }}
label.error {{ color: #c81414; }}
.welcome label {{ color: #145a28; }}
.cancelled label {{ color: #781414; }}
"""

Described = dict[str, Any]  # the form, as the file has it


class LoginWindow:
    """The window and its state."""

    def __init__(self, form: Described, file: Path) -> None:
        self.form = form
        self.file = file
        self.screen = "form"
        self.entries: dict[str, Any] = {}
        self.shown = False  # on the screen, in its full size
        self.window = Gtk.Window(title="Login")
        self.window.set_decorated(False)
        self.window.connect("destroy", Gtk.main_quit)
        self.window.connect("size-allocate", self.sized)
        behind = Gtk.EventBox()  # a press beside everything takes the keyboard from the fields
        behind.connect("button-press-event", lambda *_: self.leave())
        self.window.add(behind)
        self.screens = Gtk.Stack(transition_type=Gtk.StackTransitionType.NONE)
        behind.add(self.screens)
        self.nothing = Gtk.DrawingArea(can_focus=True)  # has the keyboard where no field has it
        self.error = Gtk.Label()
        self.error.get_style_context().add_class("error")
        self.screens.add_named(self.fields_and_buttons(), "form")
        self.screens.add_named(self.message("welcome", "Welcome"), "welcome")
        self.screens.add_named(self.message("cancelled", "Cancelled"), "cancelled")

    def fields_and_buttons(self) -> Any:
        fixed = Gtk.Fixed()
        fixed.put(self.nothing, 0, 0)
        card = Gtk.Box()
        card.get_style_context().add_class("card")
        put(fixed, card, self.form["panel"])
        for field in self.form["fields"]:
            left, top, _, bottom = field["rect"]
            label = Gtk.Label(label=field["label"], xalign=0.0)
            put(fixed, label, (left - self.form["label_width"] + 1, top, left, bottom))
            entry = Gtk.Entry(
                text=field["text"], placeholder_text=field["hint"], width_chars=1, max_length=self.form["longest"]
            )
            entry.set_visibility(field["name"] != "pass")
            entry.get_accessible().set_name(field["label"])
            entry.connect("button-press-event", lambda widget, _: self.press(widget))
            entry.connect("activate", lambda _: self.send())
            for change in ("changed", "notify::cursor-position", "notify::selection-bound", "notify::is-focus"):
                entry.connect(change, lambda *_: self.write())
            self.entries[field["name"]] = entry
            put(fixed, entry, field["rect"])
        for described in self.form["buttons"]:
            button = Gtk.Button(label=described["label"])
            button.set_focus_on_click(False)
            if described["name"] == "login":
                button.get_style_context().add_class("main")
            does = self.send if described["name"] == "login" else self.cancel
            button.connect("clicked", lambda _, does=does: does())
            put(fixed, button, described["rect"])
        fixed.put(self.error, 4, self.form["size"][1] - 12)
        return fixed

    def message(self, kind: str, text: str) -> Any:
        fixed = Gtk.Fixed()
        fixed.get_style_context().add_class(kind)
        fixed.put(Gtk.Label(label=text), 12, 24)
        if kind == "welcome":
            fixed.put(Gtk.Label(label=self.form["user"]), 12, 36)
            button = Gtk.Button(label="Log out")
            button.set_focus_on_click(False)
            button.connect("clicked", lambda _: self.log_out())
            put(fixed, button, self.form["logout"])
        return fixed

    def press(self, entry: Any) -> bool:
        """A press into a field selects all of its text, as an address bar does: what is typed then replaces it."""
        entry.grab_focus()
        return True

    def leave(self) -> None:
        self.nothing.grab_focus()

    def text(self, name: str) -> str:
        return str(self.entries[name].get_text())

    def send(self) -> None:
        self.leave()
        given = self.text("user"), self.text("pass")
        if given == (self.form["user"], self.form["password"]):
            return self.go("welcome")
        self.error.set_text("Wrong login" if all(given) else "Fill in all")
        if all(given):
            for name in ("user", "pass"):
                self.entries[name].set_text("")
        self.write()

    def cancel(self) -> None:
        self.leave()
        self.go("cancelled")

    def log_out(self) -> None:
        self.error.set_text("")
        for entry in self.entries.values():
            entry.set_text("")
        self.go("form")
        self.leave()

    def go(self, screen: str) -> None:
        self.screen = screen
        self.screens.set_visible_child_name(screen)
        self.write()

    def sized(self, _: Any, size: Any) -> None:
        if not self.shown and [size.width, size.height] == self.form["size"]:
            self.shown = True
            GLib.idle_add(self.write)  # comes after the drawing, which has a higher priority

    def write(self) -> None:
        if not self.shown:
            return
        focused = [name for name, entry in self.entries.items() if entry.is_focus()]
        state = {
            "screen": self.screen,
            "text": {name: entry.get_text() for name, entry in self.entries.items()},
            "focus": focused[0] if focused else None,
            "selected": bool(focused) and bool(self.entries[focused[0]].get_selection_bounds()),
        }
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.rename(self.file)


def put(fixed: Any, widget: Any, rect: tuple[int, int, int, int]) -> None:
    """Lays a widget into a rectangle: left, top, right, bottom in pixels."""
    left, top, right, bottom = rect
    widget.set_size_request(right - left, bottom - top)
    fixed.put(widget, left, top)


def main() -> None:
    form = json.loads(Path(sys.argv[1]).read_text())
    style = Gtk.CssProvider()
    style.load_from_data(STYLE.format(**form["colours"]).encode())
    login = LoginWindow(form, Path(sys.argv[2]))
    Gtk.StyleContext.add_provider_for_screen(login.window.get_screen(), style, Gtk.STYLE_PROVIDER_PRIORITY_USER)
    settings = Gtk.Settings.get_default()
    settings.set_property("gtk-enable-animations", False)
    settings.set_property("gtk-cursor-blink", False)
    login.window.fullscreen()
    login.window.show_all()
    login.leave()
    Gtk.main()


if __name__ == "__main__":
    main()
