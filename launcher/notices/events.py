"""What people are told of a run, and in which words. Pure: no clock, no network.

ended     the run has its final record, whatever its outcome; `failed` selects those that failed
budget    a run that lives has spent BUDGET_SHARE of its budget
collapse  a training ended itself because it had collapsed (results/collapse.json)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from launcher import safe_text
from launcher.spec.check.notify import BUDGET, COLLAPSE, ENDED, FAILED

BUDGET_SHARE: Final = 0.8
LONGEST: Final = 500  # characters of a message from a run


def notice_key(store: str, run: str, event: str) -> str:
    """Names one thing to tell, whoever tells it, by which channel and how often."""
    return hashlib.sha256(f"{store}\n{run}\n{event}".encode()).hexdigest()[:32]


class Notice(msgspec.Struct, frozen=True):
    """One thing to tell. `event`: ended, budget or collapse; `state`: of the run when it was found; `picture`: a PNG of
    what the run measured, for the ways that take one."""

    run: str
    event: str
    state: str
    text: str
    store: str
    labels: dict[str, str] = {}
    picture: bytes = b""

    @property
    def key(self) -> str:
        """The same for every try to tell this: receivers that keep it tell it once."""
        return notice_key(self.store, self.run, self.event)

    @property
    def kinds(self) -> frozenset[str]:
        """The names in a channel's `on` that select it."""
        return frozenset((self.event, FAILED) if self.event == ENDED and self.state == "failed" else (self.event,))

    def as_json(self) -> dict[str, object]:
        """What a command reads on its standard input."""
        return {
            "key": self.key, "event": self.event, "run": self.run, "state": self.state, "text": self.text,
            "store": self.store, "labels": dict(self.labels),
        }  # fmt: skip


def ended(
    run: str,
    state: str,
    reason: str,
    detail: str,
    store: str,
    labels: Mapping[str, str],
    headline: str = "",
    picture: bytes = b"",
) -> Notice:
    """`headline`, `picture`: the figure that the run measured, and a PNG of it, if any."""
    why = ": ".join(filter(None, (reason if reason != state else "", _short(detail))))
    text = f"{run} {state}{f' ({why})' if why else ''}{f': {_short(headline)}' if headline else ''}"
    return Notice(run, ENDED, state, text, store, dict(labels), picture)


def budget(run: str, share: float, state: str, store: str, labels: Mapping[str, str]) -> Notice:
    text = f"{run} has spent {share * 100:.0f} % of its budget and is {state}"
    return Notice(run, BUDGET, state, text, store, dict(labels))


def collapse(run: str, told: Mapping[str, object], state: str, store: str, labels: Mapping[str, str]) -> Notice:
    """`told`: the content of collapse.json, which a run wrote: any field may be anything."""
    before = told.get("checkpoint_before")
    kept = f"; the checkpoint before it: {_short(str(before))}" if before else ""
    why = f": {_short(str(told['text']))}" if told.get("text") else ""
    return Notice(run, COLLAPSE, state, f"{run} collapsed in training{why}{kept}", store, dict(labels))


def _short(text: str) -> str:
    line = safe_text.line(text).strip()
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
