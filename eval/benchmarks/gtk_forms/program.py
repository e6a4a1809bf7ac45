"""The program on the desktop: one form, as a file describes it. `python3 program.py FORM.json STATE.json`

It runs with the system's Python and Debian's GTK 3 (python3-gi, gir1.2-gtk-3.0), without this package. After each
change it replaces the state's file: a name for each element, with what was done to it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gi

gi.require_version("Gtk", "3.0")
from gi.repository import Gtk  # noqa: E402

# A light theme with small letters: the whole form fits on 128 x 96 pixels
STYLE = """
* {{ font: 9px "DejaVu Sans"; min-height: 0; min-width: 0; box-shadow: none; text-shadow: none; transition: none;
     animation: none; -gtk-icon-shadow: none; caret-color: black; }}
window, scrolledwindow, viewport, notebook stack {{ background: {background}; }}
button, entry, list, row {{ padding: 1px 3px; margin: 0; border-radius: 0; }}
button, entry {{ background-image: none; border: 1px solid #777777; }}
button {{ background-color: #e4e4e4; color: #202020; }}
entry {{ background-color: white; color: #101010; }}
entry:focus {{ border-color: {accent}; background-color: #fff6be; }}
row {{ background-color: white; color: #202020; }}
row:selected {{ background-color: {accent}; color: white; }}
check, radio {{ min-height: 9px; min-width: 9px; margin: 0 3px 0 0; background-image: none; background-color: white;
     border: 1px solid #555555; }}
check:checked, radio:checked {{ background-color: {accent}; color: white; }}
switch {{ min-height: 10px; min-width: 22px; font-size: 1px; padding: 0; border: 1px solid #777777; }}
switch slider {{ min-height: 10px; min-width: 10px; padding: 0; }}
switch:checked {{ background-color: {accent}; background-image: none; }}
menubar {{ padding: 0; background-color: #e4e4e4; }}
menubar > menuitem, menu menuitem {{ padding: 1px 4px; }}
menu {{ padding: 0; border: 1px solid #777777; background-color: white; }}
menuitem:hover {{ background-color: {accent}; color: white; }}
notebook header tab {{ padding: 1px 4px; margin: 0; }}
label.title {{ color: #404040; }}
"""


Described = dict[str, Any]  # the form, or one element of it, as the file has it


class FormWindow:
    """The window, and the state of its elements."""

    def __init__(self, form: Described, file: Path) -> None:
        self.file = file
        self.state: dict[str, Any] = {}
        self.group: Any = None
        self.window = Gtk.Window(title=form["title"])
        self.window.connect("destroy", Gtk.main_quit)
        self.window.set_decorated(False)
        outer = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
        self.window.add(outer)
        self.nothing = Gtk.DrawingArea(
            can_focus=True
        )  # has the keyboard first: no field and no row is chosen at the start
        outer.pack_start(self.nothing, False, False, 0)
        if form.get("menus"):
            outer.pack_start(self.menus(form["menus"]), False, False, 0)
        if form.get("pages"):
            outer.pack_start(self.pages(form), True, True, 0)
        else:
            outer.pack_start(self.grid(form, form["elements"]), False, False, 0)
        self.told = Gtk.Label(xalign=0.0, margin_start=4, margin_bottom=2)  # what was pressed or chosen last
        outer.pack_end(self.told, False, False, 0)
        self.write()

    def grid(self, form: Described, elements: list[Described]) -> Any:
        grid = Gtk.Grid(column_spacing=form["gap"], row_spacing=form["gap"], halign=Gtk.Align.START)
        grid.set_margin_start(form["left"])
        grid.set_margin_top(form["top"])
        for number, element in enumerate(elements):
            across, down = number % form["columns"], number // form["columns"]
            widget = getattr(self, element["kind"])(element)
            if element["kind"] in ("entry", "switch", "count"):
                label = Gtk.Label(label=element["name"], xalign=0.0)
                label.get_style_context().add_class("title")
                grid.attach(label, 2 * across, down, 1, 1)
                grid.attach(widget, 2 * across + 1, down, 1, 1)
            else:
                grid.attach(widget, 2 * across, down, 2, 1)
        return grid

    def pages(self, form: Described) -> Any:
        book = Gtk.Notebook()
        for page in form["pages"]:
            book.append_page(self.grid(form, page["elements"]), Gtk.Label(label=page["name"]))
        return book

    def menus(self, menus: list[Described]) -> Any:
        bar = Gtk.MenuBar()
        for menu in menus:
            top = Gtk.MenuItem(label=menu["name"])
            inside = Gtk.Menu()
            for name in menu["items"]:
                item = Gtk.MenuItem(label=name)
                item.connect("activate", lambda _, key=f"{menu['name']}/{name}": self.count_up(key))
                self.state[f"{menu['name']}/{name}"] = 0
                inside.append(item)
            top.set_submenu(inside)
            bar.append(top)
        return bar

    def button(self, element: Described) -> Any:
        button = Gtk.Button(label=element["name"])
        self.state[element["name"]] = 0
        button.connect("clicked", lambda _: self.count_up(element["name"]))
        return button

    def check(self, element: Described) -> Any:
        check = Gtk.CheckButton(label=element["name"], active=element["value"])
        self.state[element["name"]] = element["value"]
        check.connect("toggled", lambda widget: self.put(element["name"], widget.get_active()))
        return check

    def radio(self, element: Described) -> Any:
        radio = Gtk.RadioButton.new_with_label_from_widget(self.group, element["name"])
        self.group = self.group or radio
        radio.set_active(element["value"])
        self.state[element["name"]] = element["value"]
        radio.connect("toggled", lambda widget: self.put(element["name"], widget.get_active()))
        return radio

    def switch(self, element: Described) -> Any:
        switch = Gtk.Switch(active=element["value"], halign=Gtk.Align.START, valign=Gtk.Align.CENTER)
        switch.get_accessible().set_name(element["name"])
        self.state[element["name"]] = element["value"]
        switch.connect("notify::active", lambda widget, _: self.put(element["name"], widget.get_active()))
        return switch

    def entry(self, element: Described) -> Any:
        entry = Gtk.Entry(text=element["value"], width_chars=9)
        entry.get_accessible().set_name(element["name"])
        self.state[element["name"]] = element["value"]
        entry.connect("changed", lambda widget: self.put(element["name"], widget.get_text()))
        return entry

    def rows(self, element: Described) -> Any:
        rows = Gtk.ListBox(selection_mode=Gtk.SelectionMode.SINGLE)
        for name in element["rows"]:
            row = Gtk.ListBoxRow()
            row.add(Gtk.Label(label=name, xalign=0.0, width_chars=8))
            row.get_accessible().set_name(name)
            rows.add(row)
        self.state[element["name"]] = None
        rows.connect(
            "row-selected",
            lambda _, row: self.put(element["name"], element["rows"][row.get_index()] if row else None),
        )
        return rows

    def count(self, element: Described) -> Any:
        box = Gtk.Box(spacing=2)
        number = Gtk.Label(label=str(element["value"]), width_chars=2)
        self.state[element["name"]] = element["value"]

        def change(step: int) -> None:
            value = min(9, max(0, self.state[element["name"]] + step))
            number.set_text(str(value))
            self.put(element["name"], value)

        for text, step in (("-", -1), ("+", 1)):
            button = Gtk.Button(label=f" {text} ")
            button.get_accessible().set_name(f"{element['name']} {text}")
            button.connect("clicked", lambda _, step=step: change(step))
            box.pack_start(button, False, False, 0)
        box.pack_start(number, False, False, 0)
        return box

    def count_up(self, name: str) -> None:
        self.told.set_text(f"{name} done")
        self.put(name, self.state[name] + 1)

    def put(self, name: str, value: object) -> None:
        self.state[name] = value
        self.write()

    def write(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.state))
        new.rename(self.file)


def main() -> None:
    form = json.loads(Path(sys.argv[1]).read_text())
    style = Gtk.CssProvider()
    style.load_from_data(STYLE.format(**form).encode())
    shown = FormWindow(form, Path(sys.argv[2]))
    Gtk.StyleContext.add_provider_for_screen(shown.window.get_screen(), style, Gtk.STYLE_PROVIDER_PRIORITY_USER)
    settings = Gtk.Settings.get_default()
    settings.set_property("gtk-enable-animations", False)
    settings.set_property("gtk-cursor-blink", False)
    shown.window.fullscreen()
    shown.window.show_all()
    shown.nothing.grab_focus()
    Gtk.main()


if __name__ == "__main__":
    main()
