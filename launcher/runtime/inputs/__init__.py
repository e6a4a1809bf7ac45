"""Fetches and verifies inputs before the command: files and folders by path, from stores, the web and the Hugging Face
hub, and outputs of other runs. Each module's `fetch` returns the digest of what the command will read: the sha256 of a
file, or of a folder's manifest (`launcher.store.manifest.Manifest.digest`).

If nobody has pinned an input, the digest that the first attempt read is recorded in a `data` event, and later attempts
must read the same.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from launcher.decoding import decode
from launcher.errors import BadInput, NotFound, Unreachable
from launcher.protocol.records import Event
from launcher.reasons import Reason
from launcher.runtime.context import MemberContext
from launcher.runtime.folders import remove
from launcher.runtime.settings import AttemptError
from launcher.spec.model import Input
from launcher.store.transfer import Damaged, Progress


class Fetch(msgspec.Struct, frozen=True):
    """One input to fetch. `dest` becomes a file, a folder or a link. `expected`: the digest that an earlier attempt
    read, or that the user pinned."""

    context: MemberContext
    name: str
    spec: Input
    dest: Path
    expected: str | None
    progress: Progress
    check: Callable[[], None]  # raises if the attempt has to end

    def fault(self, reason: Reason, message: str) -> AttemptError:
        return AttemptError(reason, f"input {self.name}: {message}")

    def missing(self, message: str) -> AttemptError:
        return self.fault(Reason.INPUT_MISSING, message)


# scheme -> module with fetch(Fetch) -> digest
_SCHEMES: Final[dict[str, str]] = {
    "file": "local",
    "s3": "remote",
    "gs": "remote",
    "az": "remote",
    "http": "web",
    "https": "web",
    "hf": "hub",
}


def fetch(request: Fetch) -> str:
    """Fetches one input and returns its digest. Raises AttemptError, Unreachable."""
    spec = request.spec
    scheme = spec.url.partition("://")[0] if spec.url else ""
    if spec.url and scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise request.fault(Reason.CONFIG_ERROR, f"`{spec.url}` is of an unknown kind; allowed: {known}")
    module = _SCHEMES[scheme] if spec.url else "upstream"
    if request.dest.is_symlink():
        remove(request.dest)  # a link of an earlier attempt; what it points to stays
    try:
        digest: str = import_module(f"{__name__}.{module}").fetch(request)
    except Unreachable:
        raise
    except (NotFound, Damaged, BadInput) as error:
        raise request.missing(str(error)) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        reason = Reason.INPUT_MISSING if isinstance(error, PermissionError | FileNotFoundError) else None
        raise request.fault(reason or Reason.INFRASTRUCTURE, f"{where}{error.strerror or error}") from None
    if request.expected is not None and digest != request.expected:
        who = "the job pins it to" if spec.digest else "the first attempt of this run read"
        raise request.missing(f"its content has digest {digest}, but {who} {request.expected}")
    return digest


def fetch_all(
    context: MemberContext,
    earlier: Mapping[str, str],
    report: Callable[[str], None],
    insist: Callable[[Callable[[], None]], None],
    check: Callable[[], None],
) -> dict[str, str]:
    """Fetches every input of the job; input -> digest.

    earlier  the digests that an earlier attempt read
    report   called with a line of progress
    insist   runs a step, and repeats it while the store cannot be reached
    check    raises if the attempt has to end

    Raises AttemptError, Unreachable.
    """
    digests: dict[str, str] = {}
    for name, spec in context.job.inputs.items():
        began = time.monotonic()
        report(name)

        def progress(done: int, total: int, name: str = name) -> None:
            report(f"{name}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

        request = Fetch(
            context,
            name,
            spec,
            context.folders.inputs / name,
            spec.digest or earlier.get(name),
            progress,
            check,
        )

        def step(request: Fetch = request) -> None:
            digests[request.name] = fetch(request)

        insist(step)
        took = time.monotonic() - began
        context.say(f"input {name}: {digests[name][:19]} in {took:.1f} s")
    return digests


def holds(context: MemberContext, name: str, spec: Input, digest: str) -> bool:
    """Whether an input has this content now. It is fetched into a temporary folder to find out. Raises Unreachable."""
    scratch = context.folders.runtime / "looked-up"
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        request = Fetch(context, name, spec, scratch / name, digest, lambda done, total: None, lambda: None)
        return fetch(request) == digest
    except AttemptError as fault:
        context.say(f"not adopted from a run that did this work: {fault}")
        return False
    finally:
        remove(scratch)


def recorded(context: MemberContext) -> dict[str, str]:
    """The digests that the first attempt which recorded them has read; input -> digest."""
    leader = context.leading[0]
    for number in range(1, context.attempt):
        body = context.store.read(context.run_keys.event(number, leader, 0))
        if body is not None:
            event = decode(body[0], Event)
            if event.kind == "data":
                return dict(event.fields)
    return {}


def record(context: MemberContext, digests: Mapping[str, str]) -> Callable[[], None]:
    """Makes the leader's first event, which says what this attempt reads. The function that is returned writes it, and
    may be called again after an error."""
    event = Event(context.attempt, context.member, 0, "data", "what the inputs held", dict(digests), time.time())
    key, body = context.run_keys.event(context.attempt, context.member, 0), msgspec.json.encode(event)

    def write() -> None:
        context.store.create(key, body)

    return write


def sha256_file(path: Path) -> str:
    with path.open("rb", buffering=0) as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
