"""What a request carries so that the server knows who asks. Each kind renews itself."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from launcher.clock import boottime
from launcher.errors import Unreachable

READ_AGAIN: Final = 10.0  # seconds before a token's file is read again


class NoCredentials(Unreachable):
    """The login of the kubeconfig gives none now; `said` is its reason, in one line."""

    def __init__(self, said: str) -> None:
        self.said = " ".join(said.split())
        super().__init__(self.said)


class ClientCertificate(NamedTuple):
    """Files in PEM."""

    certificate: Path
    key: Path


class Credentials:
    """Nobody's: the request carries no login, or the connection has a certificate."""

    def header(self) -> str:
        """The value of the header `Authorization`; empty without one. Raises NoCredentials."""
        return ""

    def certificate(self) -> ClientCertificate | None:
        """The certificate of connections, where the login renews it. Raises NoCredentials."""
        return None

    def refuse(self, header: str) -> None:
        """The server answered 401 to a request with this header: the next call obtains another, if it can."""


class Fixed(Credentials):
    """A token or a password that the kubeconfig contains."""

    def __init__(self, value: str) -> None:
        self._value = value

    def header(self) -> str:
        return self._value


class TokenFile(Credentials):
    """A token that another program writes into a file, and writes again before it expires."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._token = ""
        self._at = 0.0

    def header(self) -> str:
        with self._lock:
            if not self._token or boottime() - self._at >= READ_AGAIN:
                self._read()
            return f"Bearer {self._token}"

    def refuse(self, header: str) -> None:
        with self._lock:
            if header == f"Bearer {self._token}":
                self._at = boottime() - READ_AGAIN

    def _read(self) -> None:
        try:
            token = self.path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            token, trouble = "", getattr(error, "strerror", None) or str(error)
        else:
            trouble = "the file is empty"
        if token:
            self._token, self._at = token, boottime()
        elif not self._token:  # else the writer is about to replace it: the last one may still be good
            raise NoCredentials(f"tokenFile {self.path}: {trouble}")


def of_user(user: Mapping[str, Any], name: str) -> Credentials | None:
    """The token, the file or the password of a kubeconfig's user; None without one. Raises ValueError."""
    methods = {
        "token": user.get("token") or user.get("tokenFile"),
        "basicAuth": user.get("username") or user.get("password"),
    }
    named = [method for method, value in methods.items() if value]
    if len(named) > 1:
        raise ValueError(f"user `{name}` has two logins, {' and '.join(named)}; allowed: one")
    if user.get("tokenFile"):  # it counts before `token`, which is a copy of it
        return TokenFile(Path(str(user["tokenFile"])))
    if user.get("token"):
        return Fixed(f"Bearer {str(user['token']).strip()}")
    if named:
        pair = f"{user.get('username') or ''}:{user.get('password') or ''}"
        return Fixed(f"Basic {b64encode(pair.encode()).decode()}")
    return None
