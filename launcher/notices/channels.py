"""Sends notices: to a webhook (Slack's incoming webhooks, Mattermost, Teams' Slack-compatible ones), to a command, by
the system's sendmail. What goes wrong is said in a line without the webhook's address, which is a secret.
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

import msgspec

from launcher import safe_text
from launcher.notices.events import Notice
from launcher.spec.check.notify import NoticeChannel

PATIENCE: Final = 30.0  # seconds for one message; of a webhook, for each part of its answer
WHOLE: Final = 60.0  # seconds for a webhook's whole answer: a receiver may send it byte by byte
SENDMAIL: Final = ("/usr/sbin/sendmail", "/usr/lib/sendmail")
_SLACK: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


SecretOf = Callable[[str], str]


def wants(channel: NoticeChannel, notice: Notice) -> bool:
    """Whether a channel is to tell this."""
    return notice.labels.items() >= channel.labels.items() and not notice.kinds.isdisjoint(channel.on)


def send(channel: NoticeChannel, notice: Notice, secret_of: SecretOf) -> str:
    """Sends one notice; returns "" or what went wrong. Never raises for what a receiver does. `secret_of` may raise
    SlipwayError, which says no value."""
    if channel.webhook:
        return _webhook(secret_of(channel.webhook), notice)
    if channel.command:
        body = msgspec.json.encode(notice.as_json()) + b"\n"
        return _run(channel.command, body, {"SLIPWAY_NOTICE_KEY": notice.key}, channel.command[0])
    return _mail(channel.mail, notice)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without its body, perhaps at another host."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


def _webhook(url: str, notice: Notice) -> str:
    text = "".join(_SLACK.get(letter, letter) for letter in notice.text)
    if not url.startswith(("https://", "http://")):
        return "the secret holds no https:// address"
    headers = {"Content-Type": "application/json; charset=utf-8", "Idempotency-Key": notice.key}
    said: list[str] = []
    body = msgspec.json.encode({"text": text})
    asking = threading.Thread(target=lambda: said.append(_post(url, body, headers)), daemon=True)
    asking.start()
    asking.join(WHOLE)
    return said[0] if said else f"no whole answer within {WHOLE:g} s"


def _post(url: str, body: bytes, headers: dict[str, str]) -> str:
    try:
        request = urllib.request.Request(url, body, headers, method="POST")
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=PATIENCE):
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        return f"the receiver answered {error.code}"
    except urllib.error.URLError as error:
        reason = error.reason
        return f"no connection: {getattr(reason, 'strerror', None) or type(reason).__name__}"
    except TimeoutError:
        return f"no answer within {PATIENCE:g} s"
    except (OSError, HTTPException, ValueError) as error:  # their texts may quote the address
        return f"no connection: {type(error).__name__}"


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
