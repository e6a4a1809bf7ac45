"""One long form: a report of damage with a date, lists, a choice and a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eval.benchmarks.linux_desktop.webapps.app import (
    SentForm,
    WebApp,
    WebReply,
    area,
    check,
    choice,
    entry,
    form,
    go,
    notice,
    radios,
)

KINDS: Final = ("choose", "water", "fire", "glass", "theft")
URGENCIES: Final = ("can wait", "this week", "at once")


class DamageForm(WebApp):
    """data: buildings."""

    name = "Damage"
    menu: Sequence[tuple[str, str]] = (("/", "New report"),)

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.reports: list[dict[str, Any]] = []

    def state(self) -> dict[str, Any]:
        return {"reports": self.reports}

    def get(self, path: str, query: SentForm) -> WebReply | None:
        if path == "/":
            return self._form({})
        if path == "/thanks":
            return self.page("Report sent", notice(f"This was report number {len(self.reports)}.", "note"))
        return None

    def _form(self, given: Mapping[str, str], error: str = "") -> WebReply:
        return self.page(
            "New report",
            notice(error),
            form(
                "/",
                choice("Building", "building", ["choose", *self.data["buildings"]], given.get("building", "")),
                choice("Kind", "kind", KINDS, given.get("kind", "")),
                entry("Day", "day", given.get("day", ""), kind="date"),
                radios("urgency", URGENCIES, given.get("urgency", "")),
                area("What happened", "text", given.get("text", "")),
                check("Somebody may call me", "call"),
                button="Send report",
            ),
        )

    def post(self, path: str, form: SentForm) -> WebReply | None:
        if path != "/":
            return None
        given = {name: form.one(name) for name in ("building", "kind", "day", "urgency", "text", "call")}
        if given["building"] not in self.data["buildings"] or given["kind"] not in KINDS[1:]:
            return self._form(given, "Choose the building and the kind.")
        if given["urgency"] not in URGENCIES or not given["day"] or not given["text"]:
            return self._form(given, "The day, the urgency and the text are needed.")
        self.reports.append(given)
        return go("/thanks")
