"""A mail box: folders, messages, moving, replying and writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


class Mail(WebApp):
    """data: folders, and messages (id, from, subject, text, folder)."""

    name = "Mail"
    menu: Sequence[tuple[str, str]] = (("/", "Inbox"), ("/write", "New message"))

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.folders = [str(each) for each in data["folders"]]
        self.messages = {str(each["id"]): dict(each) for each in data["messages"]}
        self.sent: list[dict[str, str]] = []

    def state(self) -> dict[str, Any]:
        return {"folders": {key: each["folder"] for key, each in self.messages.items()}, "sent": self.sent}

    def get(self, path: str, query: SentForm) -> WebReply | None:
        if path == "/":
            return self._folder(query.one("folder") or self.folders[0])
        if path == "/read":
            return self._read(query.one("id"))
        if path == "/sent":
            return self.page("Message sent", notice("The message was sent.", "note"))
        if path == "/write":
            answered = self.messages.get(query.one("reply"))
            if answered is None:
                return self._write({})
            return self._write(
                {"to": answered["from"], "subject": f"Re: {answered['subject']}", "reply": query.one("reply")}
            )
        return None

    def _folder(self, name: str) -> WebReply:
        rows = [
            (
                f'<input type="checkbox" name="id" value="{key}" aria-label="Select {esc(each["subject"])}">',
                esc(each["from"]),
                link(f"/read?id={key}", each["subject"]),
            )
            for key, each in self.messages.items()
            if each["folder"] == name
        ]
        links = " ".join(link(address("/", folder=each), each) for each in self.folders)
        move = choice("Move selected to", "folder", [each for each in self.folders if each != name])
        shown = form("/move", table(("", "From", "Subject"), rows), move, button="Move")
        return self.page(name, f"<p>Folders: {links}</p>", shown)

    def _read(self, key: str) -> WebReply:
        each = self.messages[key]
        parts = [f"<p>{esc(line)}</p>" for line in each["text"].splitlines()]
        return self.page(
            each["subject"], f"<p>From: {esc(each['from'])}</p>", *parts, link(f"/write?reply={key}", "Reply")
        )

    def _write(self, given: Mapping[str, str], error: str = "") -> WebReply:
        return self.page(
            "New message",
            notice(error),
            form(
                "/send",
                hidden("reply", given.get("reply", "")),
                entry("To", "to", given.get("to", "")),
                entry("Subject", "subject", given.get("subject", "")),
                area("Text", "text", given.get("text", "")),
                button="Send",
            ),
        )

    def post(self, path: str, form: SentForm) -> WebReply | None:
        if path == "/move":
            folder = form.one("folder")
            if folder not in self.folders:
                return None
            for key in form.all("id"):
                self.messages[key]["folder"] = folder
            return go("/", folder=folder)
        if path == "/send":
            given = {name: form.one(name) for name in ("to", "subject", "text", "reply")}
            if "@" not in given["to"] or not given["text"]:
                return self._write(given, "A message needs an address and a text.")
            self.sent.append(given)
            return go("/sent")
        return None
