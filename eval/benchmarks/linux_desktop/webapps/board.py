"""An issue tracker: a list with filters and pages, issues with comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eval.benchmarks.linux_desktop.webapps.app import (
    SentForm,
    WebApp,
    WebReply,
    address,
    area,
    choice,
    entry,
    esc,
    form,
    go,
    hidden,
    link,
    notice,
    table,
)

PAGE: Final = 8  # issues
STATES: Final = ("open", "closed")
PRIORITIES: Final = ("low", "normal", "high")


class IssueBoard(WebApp):
    """data: people, and issues (number, title, text, state, assignee, priority)."""

    name = "Issues"
    menu: Sequence[tuple[str, str]] = (("/", "All issues"), ("/?state=open", "Open"), ("/?state=closed", "Closed"))

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.people = ["nobody", *data["people"]]
        self.issues = {str(each["number"]): {**each, "comments": []} for each in data["issues"]}

    def state(self) -> dict[str, Any]:
        return self.issues

    def get(self, path: str, query: SentForm) -> WebReply | None:
        if path == "/":
            return self._list(query)
        if path == "/issue":
            return self._issue(query.one("number"), "Saved." if query.one("saved") else "")
        return None

    def _list(self, query: SentForm) -> WebReply:
        state, word, number = query.one("state"), query.one("q"), query.number("page") or 1
        some = [
            each
            for each in self.issues.values()
            if state in ("", each["state"]) and word.lower() in each["title"].lower()
        ]
        rows = [
            (
                f"#{each['number']}",
                link(f"/issue?number={each['number']}", each["title"]),
                each["state"],
                esc(each["assignee"]),
                each["priority"],
            )
            for each in some[(number - 1) * PAGE : number * PAGE]
        ]
        search = form("/", hidden("state", state), entry("Search", "q", word), button="Find", method="get", lines=False)
        parts = [search, table(("Number", "Title", "State", "Assignee", "Priority"), rows)]
        if number > 1:
            parts.append(link(address("/", state=state, q=word, page=number - 1), "Previous page") + " ")
        if number * PAGE < len(some):
            parts.append(link(address("/", state=state, q=word, page=number + 1), "Next page"))
        return self.page("Issues", *parts)

    def _issue(self, number: str, note: str = "") -> WebReply:
        each = self.issues[number]
        comments = [f"<p>Comment: {esc(text)}</p>" for text in each["comments"]]
        return self.page(
            f"#{number} {each['title']}",
            notice(note, "note"),
            f"<p>{esc(each['text'])}</p>",
            form(
                "/change",
                hidden("number", number),
                choice("State", "state", STATES, each["state"]),
                choice("Assignee", "assignee", self.people, each["assignee"]),
                choice("Priority", "priority", PRIORITIES, each["priority"]),
                button="Save changes",
            ),
            *comments,
            form("/comment", hidden("number", number), area("New comment", "text"), button="Add comment"),
        )

    def post(self, path: str, form: SentForm) -> WebReply | None:
        number = form.one("number")
        each = self.issues[number]
        if path == "/comment":
            if text := form.one("text"):
                each["comments"].append(text)
            return go("/issue", number=number)
        if path == "/change":
            given = {name: form.one(name) for name in ("state", "assignee", "priority")}
            if given["state"] in STATES and given["assignee"] in self.people and given["priority"] in PRIORITIES:
                each.update(given)
            return go("/issue", number=number, saved=1)
        return None
