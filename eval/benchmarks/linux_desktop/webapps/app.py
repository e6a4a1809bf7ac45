"""What a web application of a task is: pages that are made of what it holds, and forms that change it.

It has one user and no scripts. It never holds what the judge looks for, only what a real application would.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

LONGEST: Final = 2000
STYLE: Final = (
    "body{font:15px sans-serif;margin:12px 20px}nav a{margin-right:14px}h1{font-size:21px;margin:10px 0}"
    "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:3px 9px;text-align:left}"
    "form.lines>label{display:block;margin:5px 0}.error{color:#a00}.note{color:#060}input,select,button{font:inherit}"
)


@dataclass(frozen=True)
class WebReply:
    """What is answered. `headers` beside the type and the length."""

    body: bytes
    kind: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SentForm:
    """The fields of a form or of an address, each with all its values."""

    fields: Mapping[str, Sequence[str]]

    def one(self, name: str) -> str:
        """The first value of a field, without spaces around it, at most LONGEST characters; "" where there is none."""
        return (self.fields.get(name) or [""])[0].strip()[:LONGEST]

    def all(self, name: str) -> list[str]:
        return list(self.fields.get(name) or [])

    def number(self, name: str) -> int | None:
        """A whole number; None for anything else."""
        text = self.one(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


class WebApp(ABC):
    """One application; `data` is its start state, of JSON."""

    name = "Web"
    menu: Sequence[tuple[str, str]] = ()  # (address, words) of the links at the top

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    @abstractmethod
    def get(self, path: str, query: SentForm) -> WebReply | None:
        """A page; None where none is."""

    @abstractmethod
    def post(self, path: str, form: SentForm) -> WebReply | None:
        """Does what a form asks."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What it holds, of JSON."""

    def page(self, title: str, *parts: str) -> WebReply:
        links = "".join(link(address, words) for address, words in self.menu)
        text = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{esc(title)} - {esc(self.name)}</title>'
            f"<style>{STYLE}</style></head><body><nav>{links}</nav><h1>{esc(title)}</h1>{''.join(parts)}</body></html>"
        )
        return WebReply(text.encode())


esc = html.escape


def missing() -> WebReply:
    return WebReply(b"<!doctype html><title>Not found</title><h1>Not found</h1>", status=404)


def go(path: str, **query: object) -> WebReply:
    """Sends the browser to another page."""
    return WebReply(b"", status=303, headers={"Location": address(path, **query)})


def address(path: str, **query: object) -> str:
    filled = {name: value for name, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(filled)}" if filled else path


def link(where: str, words: str) -> str:
    return f'<a href="{esc(where)}">{esc(words)}</a>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """`heads` and the cells of `rows` are HTML."""
    top = "".join(f"<th>{head}</th>" for head in heads)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{lines}</table>"


def form(action: str, *parts: str, button: str, method: str = "post", lines: bool = True) -> str:
    style = ' class="lines"' if lines else ""
    return (
        f'<form method="{method}" action="{esc(action)}"{style} autocomplete="off">{"".join(parts)}'
        f"<button>{esc(button)}</button></form>"
    )


def hidden(name: str, value: object) -> str:
    return f'<input type="hidden" name="{name}" value="{esc(str(value))}">'


def entry(label: str, name: str, value: object = "", kind: str = "text") -> str:
    return f'<label>{esc(label)} <input type="{kind}" name="{name}" value="{esc(str(value))}"></label>'


def area(label: str, name: str, value: str = "") -> str:
    return f'<label>{esc(label)}<br><textarea name="{name}" rows="6" cols="70">{esc(value)}</textarea></label>'


def choice(label: str, name: str, options: Sequence[str], chosen: str = "") -> str:
    items = "".join(f"<option{' selected' if each == chosen else ''}>{esc(each)}</option>" for each in options)
    return f'<label>{esc(label)} <select name="{name}">{items}</select></label>'


def radios(name: str, options: Sequence[str], chosen: str = "") -> str:
    return "".join(
        f'<label><input type="radio" name="{name}" value="{esc(each)}"{" checked" if each == chosen else ""}> '
        f"{esc(each)}</label>"
        for each in options
    )


def check(label: str, name: str, value: str = "on", on: bool = False) -> str:
    return (
        f'<label><input type="checkbox" name="{name}" value="{esc(value)}"{" checked" if on else ""}> '
        f"{esc(label)}</label>"
    )


def notice(text: str, kind: str = "error") -> str:
    """A line that tells what is wrong, or what was done."""
    return f'<p class="{kind}" role="alert">{esc(text)}</p>' if text else ""
