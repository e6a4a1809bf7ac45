"""Classifies errors of object stores, and repeats requests with backoff until a deadline."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from launcher import wait_hint
from launcher.errors import BadRecord, Conflict, SlipwayError, Unreachable

T = TypeVar("T")

FIRST_WAIT: Final = 0.1  # seconds, doubled each time, with full jitter
LONGEST_WAIT: Final = 3.0
SHORT: Final = 3.0  # seconds for which a fault that hardly passes is tried again: no list, expired credentials
SLOWER: Final = 1.0  # seconds; the shortest wait if a server is overloaded: obstore's errors do not hold Retry-After
# client errors that may not occur again when the request is repeated
_PASSING: Final = {
    "BadDigest", "ConditionalRequestConflict", "IncompleteBody", "InvalidDigest", "NoSuchUpload",
    "OperationAborted", "RequestTimeout", "SlowDown", "XAmzContentSHA256Mismatch",
}  # fmt: skip
_EXPIRED: Final = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
_NO_CREDENTIALS: Final = {"InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"}
_DENIED: Final = ("PermissionDeniedError", "UnauthenticatedError")
_NO_BUCKET: Final = ("ContainerNotFound", "NoSuchBucket")
# of one object: archived, or encrypted with a key that is gone
_OF_ONE: Final = {"InvalidObjectState", "BlobArchived", "KMS.DisabledException", "KMS.KMSInvalidStateException"}
_STRUCTURE: Final = {"ObjectParentIsFile", "ExistingObjectIsDirectory"}


class Missing(Exception):
    """The object does not exist."""


class Exists(Exception):
    """A create-only put was refused: an object exists, or existed during the put."""


class StoreFault:
    """An error of obstore, parsed from its text: it has no attributes."""

    def __init__(self, error: BaseException) -> None:
        head, _, inner = str(error).partition("\n\nDebug source")
        self.kind = type(error).__name__
        self.outside = "StartTooLarge {" in inner  # obstore's own, of an answer without the wanted range
        self.garbled = "invalid list response" in head  # status 200, and its body is no list
        self.redirected = "redirect without LOCATION" in head
        status = re.search(r"status code: (\d{3})", head)
        self.status = int(status[1]) if status else 0
        code = re.search(r"<Code>([^<]*)</Code>", head)
        self.code = code[1] if code else ""
        message = re.search(r"<Message>([^<]*)</Message>", head)
        if code:
            self.text = f"{self.code}: {message[1].strip()}" if message else self.code
        else:
            # a URL's query may hold a signature
            self.text = re.sub(r"\?\S*", "", head.rpartition(" - ")[2].strip().replace("\n", " "))[:200]
            if self.status:
                self.text = f"HTTP {self.status}"
            elif self.garbled:
                self.text = "the answer to a list is none: another server or a proxy's login page, or it was cut off"
            elif cause := re.search(r'(?:message|error): "([^"]{1,120})"', inner):
                self.text = f"no connection: {cause[1]}"

    @property
    def missing(self) -> bool:
        return self.kind in ("FileNotFoundError", "NotFoundError") and self.code not in (*_NO_BUCKET, "NoSuchUpload")

    @property
    def exists(self) -> bool:
        return self.kind in ("AlreadyExistsError", "PreconditionError") and self.code not in _STRUCTURE | _PASSING

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        if self.code in _PASSING or self.expired:
            return True
        if self.redirected or self.status in (501, 505):
            return False
        if self.code in _NO_BUCKET or self.kind in _DENIED:
            return False
        return not 300 <= self.status < 500 or self.status in (408, 425, 429)

    @property
    def expired(self) -> bool:
        """Whether the credentials were good once. Where somebody renews them, the same request may succeed later."""
        return self.code in _EXPIRED

    @property
    def busy(self) -> bool:
        """Whether the server asks for fewer requests."""
        return self.status in (429, 503) or self.code == "SlowDown"

    @property
    def unsatisfiable(self) -> bool:
        """Whether the requested range begins at or after the object's end."""
        return self.status == 416 or self.outside

    def refuse(self, url: str, key: str, tried: float) -> NoReturn:
        """Raises this fault as an error for the user. `tried`: seconds spent on retries."""
        where = f"store {url}: {key}: " if key else f"store {url}: "
        if self.code in _STRUCTURE:
            raise Conflict(f"{where}an object or a folder of that name is in the way ({self.text})")
        if self.code in _NO_BUCKET:
            raise Unreachable(f"store {url}: the bucket does not exist ({self.text})")
        if key and self.code in _OF_ONE:
            raise BadRecord(f"{where}{self.text}")
        if self.code == "RequestTimeTooSkewed":
            raise Unreachable(f"store {url}: this machine's clock is wrong ({self.text})")
        if self.expired:
            raise Unreachable(f"{where}the credentials have expired; get new ones ({self.text})")
        if self.status == 403 or self.code in _NO_CREDENTIALS or self.kind in _DENIED:
            raise Unreachable(f"{where}refused; check the credentials and what they may do ({self.text})")
        if self.status in (501, 505):
            raise Unreachable(
                f"{where}the server does not know this request; `launcher doctor` says what a store needs ({self.text})"
            )
        if 300 <= self.status < 400 or self.redirected or self.code == "AuthorizationHeaderMalformed":
            raise Unreachable(f"{where}the bucket is in another region; add ?region=... to the URL ({self.text})")
        again = f" after {tried:.0f} s of retries" if self.passing and tried >= 1 else ""
        raise Unreachable(f"{where}{self.text or self.kind}{again}")


def retrying(act: Callable[[], T], *, url: str, key: str, deadline: float, bulk: bool = False) -> T:
    """Calls `act`, and repeats it for up to `deadline` seconds while its error may pass. Every wait is jittered.

    `bulk`: the call moves many bytes, so a long call does not mean that the store is slow. Raises Missing, Exists, or
    an error for the user. SlipwayError and errors of local files are not changed.
    """
    call = None if bulk else wait_hint.begin(url, deadline)
    try:
        return _retrying(act, url, key, deadline, call)
    finally:
        wait_hint.end(call)


def _retrying(act: Callable[[], T], url: str, key: str, deadline: float, call: wait_hint.Call | None) -> T:
    import obstore.exceptions

    began = time.monotonic()
    wait = FIRST_WAIT
    while True:
        try:
            return act()
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            if isinstance(error, (SlipwayError, Missing, Exists)) or getattr(error, "errno", None) is not None:
                raise
            fault = StoreFault(error)
            if fault.missing:
                raise Missing from None
            if fault.exists:
                raise Exists from None
            if call is not None:
                call.fault = fault.text or fault.kind
            tried = time.monotonic() - began
            # a runtime's credentials are renewed while it runs (launcher/runtime/renewing.py); a person's are not
            short = fault.garbled or (fault.expired and wait_hint.say is not None)
            if not fault.passing or tried + wait > (min(SHORT, deadline) if short else deadline):
                fault.refuse(url, key, tried)
            time.sleep(max(SLOWER, wait) * random.uniform(1, 2) if fault.busy else random.uniform(0, wait))
            wait = min(2 * wait, LONGEST_WAIT)
        except BaseException as error:
            # Rust's own, no Exception: `except Exception` of a caller would not meet it
            if type(error).__name__ == "PanicException":
                raise SlipwayError(f"store {url}: {key}: obstore failed: {error}") from None
            raise
