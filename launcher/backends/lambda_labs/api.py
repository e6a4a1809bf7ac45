"""The client of Lambda's API. It says of every failure whether the request may have taken effect.

One request a second is sent from this process, whatever number of threads asks; other launchers of the account share
the limit, so a 429 is waited out. Nothing that an answer holds beside its error's code and message is ever shown: a
listing has secrets.
"""

from __future__ import annotations

import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from launcher.backends.lambda_labs.wire import (
    AuditAnswer,
    AuditEvent,
    CloudFileSystem,
    CloudInstance,
    FaultAnswer,
    FileSystemsAnswer,
    InstanceAnswer,
    InstancesAnswer,
    LaunchAnswer,
    OfferedType,
    SshKeysAnswer,
    TypesAnswer,
)
from launcher.decoding import decode
from launcher.errors import SlipwayError, Unreachable

URL: Final = "https://cloud.lambda.ai/api/v1"
KEYS: Final = ("LAMBDA_API_KEY", "LAMBDA_CLOUD_API_KEY")
TIMEOUT: Final = 30.0  # seconds of one request
PATIENCE: Final = 90.0  # seconds for which throttled and failed reads are repeated
INTERVAL: Final = 1.0  # seconds between two requests
UNCLEAR: Final = ("global/unknown", "global/internal-error", "internal-error")
CAPACITY: Final = "instance-operations/launch/insufficient-capacity"
QUOTA: Final = "global/quota-exceeded"
MISSING: Final = ("global/object-does-not-exist", "global/not-found")
_SECRET: Final = re.compile(r"(?i)(token=|jupyter_token\W+|bearer\s+|secret_)[A-Za-z0-9._-]+")
T = TypeVar("T")

_paces: dict[str, _Pace] = {}
_pacing = threading.Lock()


class LambdaRefused(SlipwayError):
    """The API refused a request, which therefore had no effect."""

    exit_code = 4

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"Lambda refuses: {message or 'no message'} ({code or status})")
        self.status, self.code = status, code


class EffectUnknown(Unreachable):
    """A request failed, and nobody knows whether it took effect."""


class NotOfTheApi(EffectUnknown):
    """Something other than Lambda's API refused a request; asked again, it would refuse again."""


class _Pace:
    """Lets one request pass each `interval` seconds."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._lock = threading.Lock()
        self._next = 0.0

    def turn(self) -> None:
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next)
            self._next = at + self.interval
        time.sleep(at - now)


class LambdaApi:
    """`url`: of the API; `interval`: seconds between two requests. Raises Unreachable without an API key."""

    def __init__(self, url: str = "", interval: float = INTERVAL) -> None:
        self.url = (url or os.environ.get("LAMBDA_API_URL") or URL).rstrip("/")
        self.key = next((value for name in KEYS if (value := os.environ.get(name, "").strip())), "")
        if not self.key:
            raise Unreachable(f"Lambda wants an API key: set {KEYS[0]}; one is made at cloud.lambda.ai/api-keys")
        with _pacing:
            self._pace = _paces.setdefault(self.url, _Pace(interval))
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._ssh_keys: Mapping[str, str] | None = None
        self._said = ""  # the `Date` of the last answer
        self._heard = 0.0  # when it came, by time.monotonic()

    # reading

    def now(self) -> float | None:
        """Seconds since the epoch by Lambda's own clock: the `Date` of its last answer and the time since then. None
        while no answer had one."""
        try:
            return parsedate_to_datetime(self._said).timestamp() + time.monotonic() - self._heard
        except ValueError:
            return None

    def instances(self) -> list[CloudInstance]:
        """The account's machines. A machine that was launched a moment ago may be missing."""
        return self._read("/instances", InstancesAnswer).data

    def instance(self, instance_id: str) -> CloudInstance | None:
        """A machine by its id; None if there is none."""
        try:
            return self._read(f"/instances/{instance_id}", InstanceAnswer).data
        except LambdaRefused as error:
            if error.status == 404 and error.code in MISSING:
                return None
            raise

    def types(self) -> Mapping[str, OfferedType]:
        return self._read("/instance-types", TypesAnswer).data

    @property
    def ssh_keys(self) -> Mapping[str, str]:
        """Name -> id of the account's SSH keys, asked for once; {} where this API key may not read them."""
        if self._ssh_keys is None:
            try:
                self._ssh_keys = {each.name: each.id for each in self._read("/ssh-keys", SshKeysAnswer).data}
            except LambdaRefused:
                self._ssh_keys = {}
        return self._ssh_keys

    def file_systems(self) -> list[CloudFileSystem]:
        return self._read("/file-systems", FileSystemsAnswer).data

    def audit_events(self, since: float) -> Iterator[AuditEvent]:
        """What was done to instances of the account, page by page. `since`: seconds since the epoch. Raises
        LambdaRefused where the key may not read it."""
        start = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        token = ""
        while True:
            query = {"start": start, "resource_type": "instance", **({"page_token": token} if token else {})}
            page = self._read(f"/audit-events?{urlencode(query)}", AuditAnswer).data
            yield from page.events
            if not page.page_token or page.page_token == token:
                return
            token = page.page_token

    # changing

    def launch(self, body: Mapping[str, Any]) -> str:
        """Launches one machine; its id. Raises LambdaRefused, EffectUnknown. Sent once: only a 429, which has no
        effect, is repeated."""
        ids = self._decode(self._send("POST", "/instance-operations/launch", body), LaunchAnswer).data.instance_ids
        if len(ids) != 1:
            raise EffectUnknown(f"Lambda answers a launch with {len(ids)} machines")
        return ids[0]

    def terminate(self, ids: Collection[str]) -> None:
        """Asks for the end of machines. Raises LambdaRefused, EffectUnknown."""
        self._send("POST", "/instance-operations/terminate", {"instance_ids": sorted(ids)})

    # requests

    def _read(self, path: str, kind: type[T]) -> T:
        end, pause = time.monotonic() + PATIENCE, self._pace.interval
        while True:
            try:
                return self._decode(self._send("GET", path), kind)
            except NotOfTheApi:
                raise
            except EffectUnknown:
                if time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 30 * self._pace.interval)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        end, pause = time.monotonic() + PATIENCE, 2 * self._pace.interval
        while True:
            self._pace.turn()
            try:
                return self._once(method, path, body)
            except LambdaRefused as error:
                if error.status != 429 or time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(1.5 * pause, 15 * self._pace.interval)

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
        request = urllib.request.Request(
            self.url + path,
            msgspec.json.encode(body) if body is not None else None,
            {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", "Accept": "application/json"},
            method=method,
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                content: bytes = answer.read()
                self._said, self._heard = answer.headers.get("Date") or "", time.monotonic()
                return content
        except urllib.error.HTTPError as error:
            try:
                raise self._fault(error.code, error.read(), error.headers.get_content_type()) from None
            finally:
                error.close()
        except (OSError, HTTPException) as error:
            raise EffectUnknown(self._clean(f"Lambda at {self.url}{self._way()} does not answer: {error}")) from None

    def _fault(self, status: int, body: bytes, kind: str) -> SlipwayError:
        try:
            fault = decode(body, FaultAnswer).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            fault = FaultAnswer().error
        if status < 500 and status not in (408, 425, 429) and not fault.code:
            return NotOfTheApi(self._in_between(f"{status} with {kind}"))
        if status >= 500 or fault.code in UNCLEAR or not fault.code:
            return EffectUnknown(self._clean(f"Lambda fails: {fault.message or status} ({fault.code or status})"))
        return LambdaRefused(status, self._clean(fault.code), self._clean(fault.message))

    def _decode(self, body: bytes, kind: type[T]) -> T:
        try:
            return decode(body, kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # it names a field and a type, never a value
            if body.lstrip()[:1] == b"<":
                raise NotOfTheApi(self._in_between("with a page")) from None
            raise EffectUnknown(f"Lambda answers in another form than expected: {error}") from None

    def _in_between(self, what: str) -> str:
        return (
            f"Lambda at {self.url}{self._way()} answers {what}, not as its API does: a proxy or a firewall in between?"
        )

    def _way(self) -> str:
        """The proxy through which requests go, without its password."""
        parts = urlsplit(self.url)
        proxy = urllib.request.getproxies().get(parts.scheme, "")
        if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
            return ""
        return f" through the proxy {proxy.rpartition('@')[2].rpartition('//')[2]}"

    def _clean(self, text: str) -> str:
        """The text without secrets."""
        return _SECRET.sub(r"\1***", text.replace(self.key, "***"))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the API key to another address."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None
