"""Notify: reads what became of runs and tells people who want to know, each thing once.

Everything that is told follows from the store's records, so whoever reads the store may tell it: the supervisor of this
machine's queue when a run of it has ended, `launcher reap`, and `launcher notify` on a machine that stays on. None of
them has to be there when a run ends, and several may be there at once (`launcher.notices.ledger`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from launcher.errors import NotFound, SlipwayError, Unreachable
from launcher.notices import channels, events, ledger
from launcher.notices.channels import SecretOf
from launcher.notices.events import Notice
from launcher.results.read import StoredOutput, open_output, read_metrics
from launcher.results.text import headline
from launcher.spec.check.notify import COLLAPSE, PICTURED, NoticeChannel
from launcher.spec.profile import Profile
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.userdata import secrets
from launcher.userdata.cache import Cache
from launcher.verbs.status import Line, list_runs, read_lines

WITHIN: Final = 86400.0  # seconds: what ended longer ago is not told any more
COLLAPSED: Final = "collapse.json"
PICTURE: Final = "summary.png"
MOST: Final = 1_000_000  # bytes of a picture: a run wrote it, and it may be anything
PNG: Final = b"\x89PNG\r\n\x1a\n"
SHOWN: Final = (ledger.SENT, ledger.UNSENT, ledger.GIVEN_UP)


class Notified(msgspec.Struct, frozen=True):
    """What was done about one event and one channel. `did`: sent | unsent (it is tried again) | given up | would be
    sent."""

    run: str
    event: str
    channel: str
    did: str
    detail: str = ""


class Notifier:
    """Tells people about the runs of a store; keeps in mind what it need not ask again."""

    def __init__(
        self,
        store: Store,
        by: Mapping[str, NoticeChannel],
        secret_of: SecretOf,
        *,
        within: float = WITHIN,
        send: Callable[[NoticeChannel, Notice, SecretOf], str] = channels.send,
    ) -> None:
        self.store, self.by, self.secret_of, self.within, self._send = store, by, secret_of, within, send
        self._over: set[tuple[str, str]] = set()  # (run, what ended it) about which nothing is left to tell

    def once(self, cache: Cache, runs: Sequence[str] | None = None, *, plan: bool = False) -> list[Notified]:
        """One pass over `runs`, or over all. With `plan` nothing is sent or written. Raises Unreachable."""
        if not self.by:
            return []
        lines, _ = read_lines(self.store, list_runs(self.store) if runs is None else runs, cache=cache)
        now = self.store.now()
        rows: list[Notified] = []
        for line in lines:
            if line.final and ((line.run, line.nonce) in self._over or now - (line.ended or 0.0) > self.within):
                continue
            try:
                rows += self._about(line, now, plan)
            except Unreachable:
                raise
            except (NotFound, SlipwayError) as error:  # deleted meanwhile, or a damaged record: the others go on
                rows.append(Notified(line.run, "", "", ledger.UNSENT, str(error)))
        return rows

    def _about(self, line: Line, now: float, plan: bool) -> list[Notified]:
        found = list(notices(self.store, line, now, pictures=any(one.way in PICTURED for one in self.by.values())))
        told = ledger.tries(self.store, line.run) if found else {}
        # asked after the tries were read: who deletes a run writes this record first, then deletes what was told
        if line.final and self.store.head(RunKeys(line.run).deleted) is not None:
            found = []
        rows = []
        left = False
        for notice in found:
            for name, channel in self.by.items():
                if not channels.wants(channel, notice):
                    continue
                if plan:
                    number = ledger.due(told.get((notice.event, name)), now)
                    if isinstance(number, int):
                        rows.append(Notified(line.run, notice.event, name, "would be sent", notice.text))
                    continue
                did, why = ledger.send_notice(
                    self.store, notice, name, partial(self.attempt, channel), told, way=channel.way
                )
                left = left or did in (ledger.BUSY, ledger.UNSENT)
                if did in SHOWN and (did != ledger.GIVEN_UP or why):
                    rows.append(Notified(line.run, notice.event, name, did, why or notice.text))
        if line.final and not left and not plan:
            self._over.add((line.run, line.nonce))
        return rows

    def attempt(self, channel: NoticeChannel, notice: Notice) -> str:
        """Sends without a record; returns what went wrong, or an empty text."""
        try:
            return self._send(channel, notice, self.secret_of)
        except SlipwayError as error:  # no value of the secret here
            return str(error)


def notices(store: Store, line: Line, now: float, *, pictures: bool = False) -> Iterator[Notice]:
    """What there is to tell of a run at `now`, the store's time; with `pictures` also what a run has drawn."""
    if line.final:
        output = _results(store, line)
        figure, picture = _headline(output), _picture(output) if pictures else b""
        yield events.ended(line.run, line.state, line.reason, line.detail, store.url, line.labels, figure, picture)
        if (told := _collapse(output)) is not None:
            yield events.collapse(line.run, told, line.state, store.url, line.labels)
        return
    paid = line.limits.paid_seconds
    if paid is not None and paid > 0:
        share = sum(held.until(now) for held in line.held) / paid
        if share >= events.BUDGET_SHARE:
            yield events.budget(line.run, share, line.state, store.url, line.labels)


def _results(store: Store, line: Line) -> StoredOutput | None:
    """The results of an ended run, if it has any. Damaged results must not keep the end of the run from being told.
    Raises Unreachable."""
    try:
        return open_output(store, line.run, line.attempt) if line.attempt else None
    except Unreachable:
        raise
    except SlipwayError:
        return None


def _headline(output: StoredOutput | None) -> str:
    """The figure that the run measured; "" if it measured none or its file is damaged. Raises Unreachable."""
    try:
        return "" if output is None else headline(read_metrics(output))
    except Unreachable:
        raise
    except SlipwayError:
        return ""


def _picture(output: StoredOutput | None) -> bytes:
    """The picture of what the run measured; b"" without one, or where the file is damaged, no PNG or too large. Raises
    Unreachable."""
    entry = None if output is None else output.manifest.files.get(PICTURE)
    if output is None or entry is None or entry.size > MOST:
        return b""
    try:
        body = output.read(PICTURE)
    except Unreachable:
        raise
    except SlipwayError:
        return b""
    return body if body.startswith(PNG) else b""


def _collapse(output: StoredOutput | None) -> dict[str, Any] | None:
    """What collapse.json of the results says; None if there is none. Of a damaged file only that it exists is told.
    Raises Unreachable."""
    if output is None or COLLAPSED not in output.files:
        return None
    try:
        told = json.loads(output.read(COLLAPSED))
    except Unreachable:
        raise
    except (SlipwayError, ValueError, RecursionError):
        told = {}
    return told if isinstance(told, dict) else {}


def trial_notice(store: Store) -> Notice:
    """What `--test` sends."""
    return Notice("test", COLLAPSE, "succeeded", "a test of Slipway's notifications: no run ended", store.url)


def secret_reader(profile: Profile, environ: Mapping[str, str]) -> SecretOf:
    """A secret's value: from the variable of that name (in a cluster, where a Secret sets it), else where the profile
    keeps it. Raises NotFound, BadInput."""

    def value(name: str) -> str:
        from launcher.backends.local.state import StateDir

        kept = StateDir(profile.local_state).secrets
        return environ.get(name) or secrets.values(kept, {name: profile.secrets.get(name, "")})[name]

    return value
