"""The settings of an account, in three parts that are saved apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eval.benchmarks.linux_desktop.webapps.app import SentForm, WebApp, WebReply, check, choice, entry, form, notice

LANGUAGES: Final = ("English", "French", "German", "Italian", "Spanish")
SIZES: Final = ("10", "25", "50", "100")
SWITCHES: Final = {"news": "Send me news", "replies": "Mail me when somebody replies", "weekly": "Weekly summary"}


class AccountPages(WebApp):
    """data: name, city, language, size (rows of a page), and the switches that are on."""

    name = "Account"
    menu: Sequence[tuple[str, str]] = (("/", "Profile"), ("/display", "Display"), ("/messages", "Messages"))

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.values = {**data, "on": sorted(data["on"])}

    def state(self) -> dict[str, Any]:
        return self.values

    def get(self, path: str, query: SentForm) -> WebReply | None:
        return self._part(path, notice("Saved.", "note") if query.one("saved") else "")

    def _part(self, path: str, note: str) -> WebReply | None:
        values = self.values
        if path == "/":
            fields = (entry("Name", "name", values["name"]), entry("City", "city", values["city"]))
            return self.page("Profile", note, form("/", *fields, button="Save profile"))
        if path == "/display":
            picks = (
                choice("Language", "language", LANGUAGES, values["language"]),
                choice("Rows of a page", "size", SIZES, values["size"]),
            )
            return self.page("Display", note, form("/display", *picks, button="Save display"))
        if path == "/messages":
            boxes = [check(label, "on", name, name in values["on"]) for name, label in SWITCHES.items()]
            return self.page("Messages", note, form("/messages", *boxes, button="Save messages"))
        return None

    def post(self, path: str, form: SentForm) -> WebReply | None:
        if path == "/":
            name, city = form.one("name"), form.one("city")
            if not name or not city:
                return self._part("/", notice("Fill in both fields."))
            self.values |= {"name": name, "city": city}
        elif path == "/display":
            language, size = form.one("language"), form.one("size")
            if language in LANGUAGES and size in SIZES:
                self.values |= {"language": language, "size": size}
        elif path == "/messages":
            self.values["on"] = sorted(name for name in SWITCHES if name in form.all("on"))
        else:
            return None
        return self._part(path, notice("Saved.", "note"))
