"""What a backend tells the runtime that it starts: the run's address, and a few intervals that tests shorten."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from launcher.decoding import decode
from launcher.errors import BadInput, SlipwayError
from launcher.protocol.fold import IDLE
from launcher.protocol.records import Placement, authorities
from launcher.reasons import Reason
from launcher.runtime.process import procs
from launcher.spec.hashing import decode_job, run_id

IMAGE: Final = "SLIPWAY_IMAGE"  # the variable with the id of the image that a container was made of


class AttemptError(SlipwayError):
    """An error that ends the attempt with a known reason and a message for the user."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Tuning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Intervals in seconds. `SLIPWAY_TUNING` (JSON) changes them."""

    poll: float = 1.0  # between two checks of progress, metrics and checkpoints
    quiet: float = 10.0  # a checkpoint that did not change for so long is complete
    live: float = 5.0  # between two uploads of a live output; longer if an upload takes long
    linger: float = 30.0  # how long a replaced version of a live output stays for its readers
    log_first: float = 0.5  # until the first piece of a log is sent; doubles up to log_longest
    log_longest: float = 15.0
    upstream: float = 30.0  # how long to wait for the record of an upstream run that has ended
    ready: float = 1.0  # between two checks whether a role is ready
    leftovers: float = 5.0  # from SIGTERM to SIGKILL for processes that outlive their command
    connect: float = 30.0  # timeout of one HTTP request
    usage: float = 15.0  # between two looks at what the command uses
    idle: float = IDLE  # GPUs that do nothing for so long are warned about
    silent: float = 60.0  # a rank without a checkpoint of a step so long after the leader's will have none


class MemberAddress(msgspec.Struct, frozen=True):
    """Which rank of which run this process is."""

    store: str
    run: str
    role: str
    rank: int
    placement: Placement
    job: bytes | None  # job.json, if the backend passed it
    workdir: Path | None  # a working folder that the caller keeps; None: a temporary one
    tuning: Tuning
    image: str = ""  # the id of the container's image, where the backend knows it
    stage: tuple[str, ...] | None = None  # of several runs in one object, which any failure ends: those it reads from

    @property
    def member(self) -> str:
        return f"{self.role}-{self.rank}"

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> MemberAddress:
        """Reads the address from environment variables. Raises BadInput. If SLIPWAY_RUN is not set, the job file names
        the run: all pods of an array have the same environment except for the number in that file's name."""
        job = _job(environ)
        run = environ.get("SLIPWAY_RUN") or (run_id(decode_job(job)) if job and "SLIPWAY_JOB_FILE" in environ else "")
        required = {"SLIPWAY_STORE": environ.get("SLIPWAY_STORE", ""), "SLIPWAY_RUN": run}
        missing = [name for name, value in required.items() if not value]
        if missing:
            raise BadInput(f"the runtime is started by a backend, which sets {' and '.join(missing)}")
        rank = environ.get("SLIPWAY_RANK", "0")
        if not rank.isdecimal():
            raise BadInput(f"SLIPWAY_RANK `{rank}` is not a rank: 0, 1, ...")
        try:
            placement = decode(environ.get("SLIPWAY_PLACEMENT") or "{}", _Placement)
            tuning = decode(environ.get("SLIPWAY_TUNING") or "{}", Tuning)
        except msgspec.DecodeError as error:
            raise BadInput(f"SLIPWAY_PLACEMENT, SLIPWAY_TUNING: {error}") from None
        workdir, stage = environ.get("SLIPWAY_WORKDIR"), environ.get("SLIPWAY_STAGE")
        return cls(
            required["SLIPWAY_STORE"],
            run,
            environ.get("SLIPWAY_ROLE", "main"),
            int(rank),
            placement.here(authorities(environ.get("SLIPWAY_CLUSTER", ""))),
            job,
            Path(workdir).absolute() if workdir else None,
            tuning,
            environ.get(IMAGE, ""),
            tuple(name for name in stage.split(",") if name != "first") if stage else None,
        )


def _job(environ: Mapping[str, str]) -> bytes | None:
    """job.json, from the variable itself or, if it is too big for one, from a file."""
    if path := environ.get("SLIPWAY_JOB_FILE"):
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise BadInput(f"SLIPWAY_JOB_FILE {path}: {error.strerror}") from None
    inline = environ.get("SLIPWAY_JOB")
    return inline.encode() if inline else None


class _Placement(Placement, frozen=True):
    """The part of a placement that the backend tells; the rest describes this process."""

    kind: str = "process"
    where: str = ""

    def here(self, cluster: tuple[str, ...]) -> Placement:
        host = self.host or os.uname().nodename
        return Placement(
            kind=self.kind,
            where=self.where or host,
            generation=self.generation,
            host=host,
            boot=procs.boot_id(),
            pid=os.getpid(),
            start=procs.start_time(os.getpid()) or 0,
            container=self.container,
            cluster=cluster,
        )
