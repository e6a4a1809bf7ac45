"""A registration for a course in four steps, with a way back, and a summary that must be confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eval.benchmarks.linux_desktop.webapps.app import (
    SentForm,
    WebApp,
    WebReply,
    check,
    choice,
    entry,
    esc,
    form,
    go,
    link,
    notice,
    radios,
    table,
)

MEALS: Final = ("no meal", "vegetarian", "with fish")
EXTRAS: Final = {"book": "Course book", "parking": "Parking space", "certificate": "Certificate"}


class Wizard(WebApp):
    """data: courses and days."""

    name = "Courses"
    menu: Sequence[tuple[str, str]] = (("/", "Register"),)

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.given: dict[str, Any] = {}
        self.done: list[dict[str, Any]] = []

    def state(self) -> dict[str, Any]:
        return {"done": self.done}

    def get(self, path: str, query: SentForm) -> WebReply | None:
        return self._step(path)

    def _step(self, path: str, error: str = "") -> WebReply | None:
        given = self.given
        if path == "/":
            fields = (entry("Name", "name", given.get("name", "")), entry("City", "city", given.get("city", "")))
            return self.page("Step 1: person", notice(error), form("/", *fields, button="Next"))
        if path == "/course":
            fields = (
                choice("Course", "course", ["choose", *self.data["courses"]], given.get("course", "")),
                choice("Day", "day", ["choose", *self.data["days"]], given.get("day", "")),
            )
            back = f"<p>{link('/', 'Back')}</p>"
            return self.page("Step 2: course", notice(error), form("/course", *fields, button="Next"), back)
        if path == "/extras":
            boxes = [check(label, "extras", name, name in given.get("extras", ())) for name, label in EXTRAS.items()]
            back = f"<p>{link('/course', 'Back')}</p>"
            chosen = radios("meal", MEALS, given.get("meal", ""))
            return self.page(
                "Step 3: meal and extras", notice(error), form("/extras", chosen, *boxes, button="Next"), back
            )
        if path == "/confirm":
            rows = [(esc(name), esc(", ".join(value) if isinstance(value, list) else value))
                    for name, value in given.items()]  # fmt: skip
            sure = check("All of this is right", "sure")
            return self.page(
                "Step 4: summary", notice(error), table((), rows), form("/confirm", sure, button="Register")
            )
        if path == "/registered":
            return self.page("Registered", notice("You are registered.", "note"))
        return None

    def post(self, path: str, form: SentForm) -> WebReply | None:
        if path == "/":
            self.given |= {"name": form.one("name"), "city": form.one("city")}
            return go("/course") if all(self.given.values()) else self._step("/", "Fill in both fields.")
        if path == "/course":
            picked = {"course": form.one("course"), "day": form.one("day")}
            if picked["course"] not in self.data["courses"] or picked["day"] not in self.data["days"]:
                return self._step("/course", "Choose a course and a day.")
            self.given |= picked
            return go("/extras")
        if path == "/extras":
            if form.one("meal") not in MEALS:
                return self._step("/extras", "Choose a meal.")
            self.given |= {"meal": form.one("meal"), "extras": [name for name in EXTRAS if name in form.all("extras")]}
            return go("/confirm")
        if path == "/confirm":
            if not form.one("sure"):
                return self._step("/confirm", "Confirm that all of this is right.")
            if set(self.given) != {"name", "city", "course", "day", "meal", "extras"}:
                return self._step("/confirm", "A step is missing.")
            self.done.append(self.given)
            self.given = {}
            return go("/registered")
        return None
