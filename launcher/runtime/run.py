"""The runtime's process: reads its job, claims an attempt, and runs it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping

from launcher import exposition
from launcher.errors import BadInput, NotFound, SlipwayError, Unreachable
from launcher.exposition import MetricFamily
from launcher.protocol.steps import Leave
from launcher.reasons import EXIT_AGAIN, EXIT_NEVER, Reason
from launcher.runtime import inputs
from launcher.runtime.beating import BeatState
from launcher.runtime.context import MemberContext
from launcher.runtime.folders import Folders
from launcher.runtime.member.attempt import MemberAttempt
from launcher.runtime.member.member import Member
from launcher.runtime.process import driver, procs
from launcher.runtime.process.leash import Leash
from launcher.runtime.process.signals import Signals
from launcher.runtime.secrets import credentials
from launcher.runtime.secrets.masking import Masker
from launcher.runtime.settings import MemberAddress
from launcher.runtime.store_fault import StoreFaultFile
from launcher.runtime.uploads.log_stream import OutputStream
from launcher.runtime.uploads.spool import Spool, lost_here
from launcher.spec.hashing import decode_job, run_id
from launcher.spec.model import ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.opening import open_store
from launcher.version import __version__


def main(environ: Mapping[str, str]) -> int:
    """Runs one attempt. Returns the container's exit code (launcher.reasons)."""
    procs.become_subreaper()  # before the command: orphans of its processes come to this one, and can be ended
    try:
        leash = Leash.fork()  # while there are no threads
    except OSError as error:
        print(
            f"[slipway] the process that ends the command with the runtime cannot start: {error.strerror}", flush=True
        )
        return EXIT_AGAIN
    try:
        return on_a_leash(environ, leash)
    finally:
        leash.let_go()


def on_a_leash(environ: Mapping[str, str], leash: Leash) -> int:
    try:
        address = MemberAddress.read(environ)
        trouble = StoreFaultFile(address.workdir)
        store = open_store(address.store, there=True)
        job = load_job(address, store)
    except Unreachable as error:
        trouble(str(error))
        print(f"[slipway] {error}", flush=True)
        return EXIT_AGAIN
    except (SlipwayError, OSError) as error:
        print(f"[slipway] {Reason.CONFIG_ERROR}: {error}", flush=True)
        return EXIT_NEVER
    # from here on everything goes into the run's log, with every secret masked
    folders = Folders.at(address.workdir)
    spool = Spool(folders.runtime / "log", mark=lost_here)
    secrets = {environ[name] for name in job.secrets if environ.get(name)}
    output = OutputStream(spool, Masker(credentials.with_encoded(secrets | credentials.values(environ))))
    if line := driver.too_old(environ):
        output.say(line)
    numbers = RuntimeMetrics(environ, address.run, address.member)

    def fed(began: float) -> None:
        leash.fed(began)
        numbers.fed()

    def troubled(what: str) -> None:
        trouble(what)
        numbers.trouble(what)

    looking = MemberContext(store, job, address, folders, 0, output.say)
    member = Member(
        store,
        job,
        address.member,
        address.placement,
        log=output.say,
        version=__version__,
        image=address.image,
        stage=address.stage is not None,
        fed=fed,
        trouble=troubled,
        holds=lambda name, spec, digest: inputs.holds(looking, name, spec, digest),
    )
    numbers.state = member.beat_state
    signals = Signals(member.interrupt)
    try:
        begun = member.start()
        if isinstance(begun, Leave):
            output.say(f"{begun.reason}: {begun.message}")
            return begun.code
        context = MemberContext(store, job, address, folders, begun.attempt, output.say)
        return MemberAttempt(context, member, begun, signals, output, spool, environ, leash).go()
    except Exception:  # for example no thread or no disk space: the claim stays without exit and counts as lost
        output.say(traceback.format_exc())
        return EXIT_AGAIN
    finally:
        numbers.leave()
        spool.close()
        folders.leave()


def load_job(address: MemberAddress, store: Store) -> ResolvedJob:
    """The job of this process. Raises BadInput if it is of a newer schema, or not the job that was asked for."""
    try:
        job = decode_job(address.job or store.get(RunKeys(address.run).job))
    except NotFound:
        raise BadInput(f"run {address.run} is not in {address.store}, and the backend passed no job") from None
    if run_id(job) != address.run:
        raise BadInput(f"the job that the backend passed is {run_id(job)}, not {address.run}")
    if address.member not in job.members():
        raise BadInput(f"{address.member} is not a rank of this job; its ranks: {', '.join(job.members())}")
    return job


class RuntimeMetrics:
    """`fed` and `trouble` are those of a Member, called by the thread that sends heartbeats."""

    def __init__(self, environ: Mapping[str, str], run: str, member: str) -> None:
        self._folder = exposition.folder(environ)
        self._labels = {"run": run, "member": member}
        self._file = f"slipway-runtime-{run}-{member}"
        self._beat: float | None = None
        self._failures = 0
        self.state: BeatState | None = None

    def fed(self) -> None:
        """A heartbeat reached the store."""
        self._beat = time.time()
        self._write()

    def trouble(self, what: str) -> None:
        """The store did not answer; "" when it does again."""
        if what:
            self._failures += 1
            self._write()

    def leave(self) -> None:
        if self._folder is not None:
            exposition.remove(self._folder, self._file)

    def _write(self) -> None:
        if self._folder is None:
            return
        values = {
            "slipway_runtime_beat_timestamp_seconds": self._beat,
            "slipway_runtime_beat_failures_total": self._failures,
            "slipway_runtime_running_seconds": self.state.running if self.state is not None else None,
            "slipway_runtime_lost_bytes": self.state.stored[2] if self.state is not None else None,
        }
        exposition.write(
            self._folder, self._file, [MetricFamily(name, [(self._labels, value)]) for name, value in values.items()]
        )
