"""Pages and files that only are read, and a form for an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval.benchmarks.linux_desktop.webapps.app import (
    SentForm,
    WebApp,
    WebReply,
    entry,
    esc,
    form,
    go,
    link,
    notice,
    table,
)


class Pages(WebApp):
    """data: name; pages (address -> title, lines, links (address, words), table (rows of texts)); files (address ->
    text), which the browser saves; asks: whether there is a form for an answer."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.name = str(data["name"])
        asks: Sequence[tuple[str, str]] = (("/answer", "Answer"),) if data.get("asks") else ()
        self.menu = (("/", "Start"), *asks)
        self.answers: list[str] = []

    def state(self) -> dict[str, Any]:
        return {"answers": self.answers}

    def get(self, path: str, query: SentForm) -> WebReply | None:
        if path in self.data.get("files", {}):
            name = path.rpartition("/")[2]
            headers = {"Content-Disposition": f'attachment; filename="{name}"'}
            return WebReply(self.data["files"][path].encode(), "text/plain; charset=utf-8", headers=headers)
        if path == "/answer" and self.data.get("asks"):
            return self.page("Answer", form("/answer", entry("Your answer", "answer"), button="Send answer"))
        if path == "/thanks":
            return self.page("Answer sent", notice("Your answer was sent.", "note"))
        page = self.data["pages"].get(path)
        if page is None:
            return None
        parts = [f"<p>{esc(line)}</p>" for line in page.get("lines", ())]
        if page.get("table"):
            heads, *rows = page["table"]
            parts.append(table([esc(head) for head in heads], [[esc(cell) for cell in row] for row in rows]))
        parts += [f"<p>{link(where, words)}</p>" for where, words in page.get("links", ())]
        return self.page(page["title"], *parts)

    def post(self, path: str, form: SentForm) -> WebReply | None:
        if path != "/answer" or not self.data.get("asks"):
            return None
        if text := form.one("answer"):
            self.answers.append(text)
        return go("/thanks")
