"""The channels by which a profile's `notify` tells people about runs: their fields, and the rules among them."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from launcher.spec.values.source import Route
from launcher.spec.values.structures import LABEL_KEY, LABEL_VALUE, VARIABLE, Field, ListOf, MapOf, Struct
from launcher.spec.values.types import INVALID, Choice, Context, Text

ENDED: Final = "ended"
FAILED: Final = "failed"
BUDGET: Final = "budget"
COLLAPSE: Final = "collapse"
EVENTS: Final = (ENDED, FAILED, BUDGET, COLLAPSE)
WAYS: Final = ("webhook", "slack", "command", "mail")
PICTURED: Final = ("slack", "mail")  # ways that take the picture of an evaluation's result


class NoticeChannel(msgspec.Struct, frozen=True):
    """One way to tell people. Exactly one of webhook, slack, command, mail is set.

    webhook  the name of the secret that holds the address
    slack    the id of a channel, to which a bot posts; `token` names the secret that holds the bot's token
    labels   only runs with these labels
    """

    on: tuple[str, ...] = (ENDED, BUDGET, COLLAPSE)
    webhook: str = ""
    slack: str = ""
    token: str = ""
    command: tuple[str, ...] = ()
    mail: tuple[str, ...] = ()
    labels: dict[str, str] = {}

    @property
    def way(self) -> str:
        return next((way for way in WAYS if getattr(self, way)), "")


class SecretName(msgspec.Struct, frozen=True):
    """The name of a secret. A value of another form is not shown: it may be the secret itself."""

    name: str = "the name of a secret"

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) is str and re.fullmatch(VARIABLE.pattern, value):
            return value
        kept = "letters, digits and _; `launcher secrets set NAME` keeps the value"
        at.problem(route, "is not the name of a secret", kept)
        return INVALID

    def schema(self) -> dict[str, Any]:
        return VARIABLE.schema()


class ChannelType(msgspec.Struct, frozen=True):
    """A channel: declared fields, and exactly one way."""

    fields: Struct
    name: str = "a channel"

    def check(self, value: Any, route: Route, at: Context) -> Any:
        checked = self.fields.check(value, route, at)
        given = [way for way in WAYS if way in value] if type(value) is dict else [""]
        if len(given) != 1:
            what = f"has {' and '.join(given)}" if given else "has no way to tell anybody"
            at.problem(route, what, f"exactly one of {', '.join(WAYS)}")
            return INVALID
        if ("slack" in value) != ("token" in value):
            at.problem(route, "has only one of slack and token", "slack: ID_OF_A_CHANNEL with token: NAME_OF_A_SECRET")
            return INVALID
        return checked

    def schema(self) -> dict[str, Any]:
        return {**self.fields.schema(), "oneOf": [{"required": [way]} for way in WAYS],
                "dependentRequired": {"slack": ["token"], "token": ["slack"]}}  # fmt: skip


CHANNEL: Final = Text("a channel's name", r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?", "a-z, 0-9, and - or _ within", 40)
_ADDRESS: Final = Text("an address", r"[^\s@,;<>\"()-][^\s@,;<>\"()]*@[^\s@,;<>\"()]+", "name@host")
_SLACK: Final = Text("a channel's id", r"[CGD][A-Z0-9]{5,}", "C0123456789, as Slack shows it below a channel's details")
NOTIFY: Final = MapOf(
    CHANNEL,
    ChannelType(
        Struct(
            "a channel",
            Field("on", ListOf(Choice(EVENTS), least=1), "what is told", "[ended, budget, collapse]"),
            Field("webhook", SecretName(), "the secret with the address of a Slack-compatible webhook", "none"),
            Field("slack", _SLACK, "the id of a Slack channel, to which the bot of `token` posts", "none"),
            Field("token", SecretName(), "the secret with the token of a Slack bot", "none"),
            Field(
                "command",
                ListOf(Text(numbers=True), least=1),
                "a program and its arguments, which reads the event as JSON on its standard input",
                "none",
            ),
            Field("mail", ListOf(_ADDRESS, least=1), "addresses, by this machine's sendmail", "none"),
            Field("labels", MapOf(LABEL_KEY, LABEL_VALUE), "only runs with these labels", "every run"),
        )
    ),
)
