"""OIDC logins that a kubeconfig keeps itself (`auth-provider: {name: oidc}`): an id-token, and a refresh-token for the
next one.

Many issuers accept a refresh-token once. So the new pair is written back into the kubeconfig, as kubectl does; else the
user's next kubectl would find a token that is used up.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

from launcher.backends.kubernetes.access.credentials import Credentials, NoCredentials
from launcher.backends.kubernetes.access.proxies import login_of, proxy_of
from launcher.errors import BadInput

EARLY: Final = 10.0  # seconds before its end from which a token counts as expired
TIMEOUT: Final = 30.0  # seconds for each request to the issuer
PLAIN: Final = re.compile(r"[A-Za-z][\w.+/~-]{5,}")  # tokens that need no quotes in YAML
LOCKED: Final = 5.0  # seconds to wait for another program that writes the kubeconfig
# logins that kubectl had once -> what it says to use
REMOVED: Final = {"gcp": "gke-gcloud-auth-plugin", "azure": "kubelogin (github.com/Azure/kubelogin)"}


class Oidc(Credentials):
    """`config`: the block of the auth-provider; `path`, `user`: where it stands."""

    def __init__(self, config: Mapping[str, Any], path: Path, user: str) -> None:
        for key in ("idp-issuer-url", "client-id"):
            if not config.get(key):
                raise BadInput(f"kubeconfig {path}: user `{user}`: auth-provider.config.{key} is missing")
        self.path, self.user = path, user
        self._config = dict(config)
        self._lock = threading.Lock()
        self._refused = ""

    def header(self) -> str:
        with self._lock:
            token = str(self._config.get("id-token") or "")
            if not token or token == self._refused or self._expires(token) - EARLY <= time.time():
                token = self._refresh()
            return f"Bearer {token}"

    def refuse(self, header: str) -> None:
        with self._lock:
            if header == f"Bearer {self._config.get('id-token')}":
                self._refused = str(self._config["id-token"])

    def _expires(self, token: str) -> float:
        """The time of a token's claim `exp`, in seconds since 1970 (RFC 7519, 4.1.4)."""
        try:
            payload = token.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            return float(claims["exp"])
        except (IndexError, ValueError, KeyError, TypeError, binascii.Error):
            raise NoCredentials(f"user `{self.user}` of {self.path}: its id-token is not a JSON Web Token") from None

    def _refresh(self) -> str:
        """A new token from the issuer (OpenID Connect Core 1.0, 12)."""
        held = self._config.get("refresh-token")
        if not held:
            raise NoCredentials(
                f"user `{self.user}` of {self.path}: the id-token has expired; without a refresh-token: log in again"
            )
        issuer = str(self._config["idp-issuer-url"]).rstrip("/")
        found = self._ask("GET", f"{issuer}/.well-known/openid-configuration")
        endpoint = found.get("token_endpoint")
        if not endpoint:
            raise NoCredentials(f"the issuer {issuer} names no token_endpoint")
        answer = self._ask("POST", str(endpoint), {"grant_type": "refresh_token", "refresh_token": str(held)})
        token = answer.get("id_token")
        if not isinstance(token, str) or not token:
            raise NoCredentials(f"the issuer {issuer} gave no id_token: log in again with the scope openid")
        changed = {"id-token": token, "refresh-token": str(answer.get("refresh_token") or held)}
        before = {key: str(self._config.get(key) or "") for key in changed}
        self._config |= changed
        self._keep(before, changed)
        return token

    def _ask(self, method: str, url: str, form: Mapping[str, str] | None = None) -> dict[str, Any]:
        import urllib3

        client, secret = str(self._config["client-id"]), str(self._config.get("client-secret") or "")
        headers, body = {"accept": "application/json"}, None
        if form is not None:
            # RFC 6749, 2.3.1: a client with a secret logs in by HTTP Basic, each part form-encoded
            pair = f"{quote_plus(client)}:{quote_plus(secret)}"
            headers["content-type"] = "application/x-www-form-urlencoded"
            if secret:
                headers |= urllib3.make_headers(basic_auth=pair)
            body = urlencode({**form, **({} if secret else {"client_id": client})})
        try:
            with self._pool(url) as pool:
                response = pool.request(
                    method, url, headers=headers, body=body, timeout=TIMEOUT, retries=False, redirect=False
                )
            answer = json.loads(response.data)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise NoCredentials(f"the issuer {url} cannot be asked: {error}") from None
        except ValueError:
            answer = None
        if response.status >= 400 or not isinstance(answer, dict):
            named = answer if isinstance(answer, dict) else {}
            why = named.get("error_description") or named.get("error") or "no JSON"
            raise NoCredentials(f"the issuer {url} answers {response.status}: {why}; log in again")
        return answer

    def _pool(self, url: str) -> Any:
        import ssl

        import urllib3

        context = ssl.create_default_context()
        data, file = self._config.get("idp-certificate-authority-data"), self._config.get("idp-certificate-authority")
        try:
            if data:
                context = ssl.create_default_context(cadata=base64.b64decode(data).decode())
            elif file:
                context = ssl.create_default_context(cafile=str(file))
        except (OSError, ValueError) as error:
            raise NoCredentials(f"user `{self.user}` of {self.path}: idp-certificate-authority: {error}") from None
        proxy = proxy_of(url, "", os.environ, str(self.path))
        if not proxy:
            return urllib3.PoolManager(ssl_context=context)
        login = login_of(proxy)
        headers = urllib3.make_headers(proxy_basic_auth=login) if login else None
        return urllib3.ProxyManager(proxy, ssl_context=context, proxy_headers=headers)

    def _keep(self, before: Mapping[str, str], changed: Mapping[str, str]) -> None:
        """Writes the new tokens into the kubeconfig. A file that cannot be written is said; this process goes on."""
        lock = self.path.with_name(f"{self.path.name}.lock")  # kubectl's own, so that no change of either is lost
        try:
            _take(lock)
            try:
                text = self.path.read_text(encoding="utf-8")
                text = _replaced(text, before, changed) or _rewritten(text, self.user, changed)
                part = self.path.with_name(f".{self.path.name}.part")
                part.unlink(missing_ok=True)
                mode = self.path.stat().st_mode & 0o777
                with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
                    file.write(text)
                part.replace(self.path.resolve())
            finally:
                lock.unlink(missing_ok=True)
        except (OSError, LookupError, TypeError, ValueError) as error:
            print(f"{self.path}: the renewed login cannot be written into it: {error}", file=sys.stderr, flush=True)


def _replaced(text: str, before: Mapping[str, str], changed: Mapping[str, str]) -> str:
    """The file with the new tokens in place of the old ones, its comments and order as they are; empty where the old
    ones do not each stand there once."""
    for key, new in changed.items():
        old = before.get(key, "")
        if not PLAIN.fullmatch(old) or not PLAIN.fullmatch(new) or text.count(old) != 1:
            return ""
        text = text.replace(old, new)
    return text


def _rewritten(text: str, user: str, changed: Mapping[str, str]) -> str:
    """The file with the new tokens, written anew."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Leaves times as they are written."""

    class Dumper(yaml.SafeDumper):
        """Quotes all texts."""

    resolvers = yaml.SafeLoader.yaml_implicit_resolvers.items()
    timestamp = "tag:yaml.org,2002:timestamp"
    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] != timestamp] for first, pairs in resolvers
    }
    config = yaml.load(text, Loader)
    entry = next(each for each in config["users"] if each["name"] == user)
    entry["user"]["auth-provider"]["config"].update(changed)
    # Go's package reads more words as true and false than Python's does, `n` among them
    Dumper.add_representer(
        str, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"')
    )
    return str(yaml.dump(config, Dumper=Dumper, sort_keys=False))


def _take(lock: Path) -> None:
    end = time.monotonic() + LOCKED
    while True:
        with suppress(FileExistsError):
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
            return
        if time.monotonic() > end:
            raise OSError(f"{lock.name} is there: another program writes it, or left it behind")
        time.sleep(0.05)


def provider(block: Mapping[str, Any], path: Path, user: str) -> Credentials:
    """The login of an auth-provider. Raises BadInput for those that kubectl does not have."""
    name = block.get("name")
    if name == "oidc":
        return Oidc(block.get("config") or {}, path, user)
    used = f"; use the login program {REMOVED[name]}, as kubectl does" if name in REMOVED else ""
    raise BadInput(
        f"kubeconfig {path}: user `{user}`: auth-provider {name!r} is not there any more{used}; allowed: oidc"
    )
