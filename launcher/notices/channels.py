"""Sends notices: to a webhook (Slack's incoming webhooks, Mattermost, Teams' Slack-compatible ones), by a Slack bot, to
a command, by the system's sendmail. What goes wrong is said in a line without the webhook's address or the bot's token:
both are secrets.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from launcher import safe_text
from launcher.notices.events import Notice
from launcher.spec.check.notify import NoticeChannel

PATIENCE: Final = 30.0  # seconds for one message; over HTTP, for each part of an answer
WHOLE: Final = 60.0  # seconds for all answers of a webhook or of Slack: a receiver may send them byte by byte
SENDMAIL: Final = ("/usr/sbin/sendmail", "/usr/lib/sendmail")
LONGEST: Final = 100_000  # bytes of an answer that are read
SLACK: Final = "https://slack.com/api/"
_SLACK_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


SecretOf = Callable[[str], str]


def wants(channel: NoticeChannel, notice: Notice) -> bool:
    """Whether a channel is to tell this."""
    return notice.labels.items() >= channel.labels.items() and not notice.kinds.isdisjoint(channel.on)


def send(channel: NoticeChannel, notice: Notice, secret_of: SecretOf) -> str:
    """Sends one notice; returns "" or what went wrong. Never raises for what a receiver does. `secret_of` may raise
    SlipwayError, which says no value."""
    if channel.webhook:
        url = secret_of(channel.webhook)
        return _within_limit(lambda: _webhook(url, notice))
    if channel.slack:
        token = secret_of(channel.token)
        return _within_limit(lambda: _slack(token, channel.slack, notice))
    if channel.command:
        body = msgspec.json.encode(notice.as_json()) + b"\n"
        return _run(channel.command, body, {"SLIPWAY_NOTICE_KEY": notice.key}, channel.command[0])
    return _mail(channel.mail, notice)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without its body, perhaps at another host."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


class _NotSentError(Exception):
    """Why a receiver has not taken a message, in words without its address."""


def _webhook(url: str, notice: Notice) -> None:
    if not url.startswith(("https://", "http://")):
        raise _NotSentError("the secret holds no https:// address")
    headers = {"Content-Type": "application/json; charset=utf-8", "Idempotency-Key": notice.key}
    _post(url, msgspec.json.encode({"text": _slack_text(notice)}), headers)


def _slack(token: str, channel: str, notice: Notice) -> None:
    """Posts by a bot (scopes chat:write and, for pictures, files:write). The call that ends an upload posts the message
    with the picture, so both come or neither."""
    if not notice.picture:
        _ask_slack("chat.postMessage", token, {"channel": channel, "text": _slack_text(notice)})
        return
    file = {"filename": "result.png", "length": str(len(notice.picture)), "alt_txt": notice.text[:1000]}
    place = _ask_slack("files.getUploadURLExternal", token, file)
    _post(str(place.get("upload_url")), notice.picture, {"Content-Type": "application/octet-stream"})
    files = msgspec.json.encode([{"id": place.get("file_id"), "title": notice.run}]).decode()
    sent = {"files": files, "channel_id": channel, "initial_comment": _slack_text(notice)}
    _ask_slack("files.completeUploadExternal", token, sent)


def _slack_text(notice: Notice) -> str:
    return "".join(_SLACK_ESCAPES.get(letter, letter) for letter in notice.text)


def _ask_slack(method: str, token: str, fields: dict[str, str]) -> dict[str, Any]:
    """Calls a method of Slack's Web API, which answers 200 also to what it refuses."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": f"Bearer {token}"}
    try:
        body = _post(f"{SLACK}{method}", urlencode(fields).encode(), headers, most=LONGEST)
        answer = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        raise _NotSentError(f"{method}: the answer is no JSON object") from None
    if answer.get("ok") is not True:
        raise _NotSentError(f"{method}: {safe_text.line(str(answer.get('error')))[:100]}")
    return answer


def _within_limit(send: Callable[[], None]) -> str:
    """Why nothing was sent, "" if it was. What takes longer than WHOLE is left to itself."""
    ended: list[str] = []

    def attempt() -> None:
        try:
            send()
        except _NotSentError as fault:
            ended.append(str(fault))
        else:
            ended.append("")

    asking = threading.Thread(target=attempt, daemon=True)
    asking.start()
    asking.join(WHOLE)
    return ended[0] if ended else f"no whole answer within {WHOLE:g} s"


def _post(url: str, body: bytes, headers: dict[str, str], most: int = 0) -> bytes:
    """At most the first `most` bytes of the answer. Raises _NotSentError."""
    try:
        request = urllib.request.Request(url, body, headers, method="POST")
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=PATIENCE) as answer:
            return bytes(answer.read(most))
    except urllib.error.HTTPError as error:
        error.close()
        raise _NotSentError(f"the receiver answered {error.code}") from None
    except urllib.error.URLError as error:
        reason = error.reason
        raise _NotSentError(f"no connection: {getattr(reason, 'strerror', None) or type(reason).__name__}") from None
    except TimeoutError:
        raise _NotSentError(f"no answer within {PATIENCE:g} s") from None
    except (OSError, HTTPException, ValueError) as error:  # their texts may quote the address
        raise _NotSentError(f"no connection: {type(error).__name__}") from None


def _mail(to: tuple[str, ...], notice: Notice) -> str:
    program = shutil.which("sendmail") or next((path for path in SENDMAIL if os.access(path, os.X_OK)), None)
    if program is None:
        return "this machine has no sendmail"
    message = EmailMessage()
    message["Subject"] = notice.text[:150]
    message["To"] = ", ".join(to)
    message["Message-ID"] = f"<{notice.key}@slipway>"  # the same for every try: mailboxes keep one
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(f"{notice.text}\n\nstore: {notice.store}\nlauncher status {notice.run}\n")
    if notice.picture:
        message.add_attachment(notice.picture, maintype="image", subtype="png", filename="result.png")
    return _run((program, "-i", "-t"), bytes(message), {}, "sendmail")


def _run(argv: tuple[str, ...], body: bytes, extra: Mapping[str, str], name: str) -> str:
    """Runs a program with `body` on its standard input. Its output may hold secrets, so nothing of it is kept."""
    shown = safe_text.line(name)
    try:
        child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, **extra}, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"{shown} cannot be started: {error.strerror}"
    try:
        child.communicate(body, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return f"{shown} did not end within {PATIENCE:g} s"
    return "" if child.returncode == 0 else f"{shown} ended with exit code {child.returncode}"
