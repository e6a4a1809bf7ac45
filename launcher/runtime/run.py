"""The runtime's process: reads its job, claims an attempt, and runs it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping

from launcher.errors import BadInput, NotFound, SlipwayError, Unreachable
from launcher.protocol.steps import Leave
from launcher.reasons import EXIT_AGAIN, EXIT_NEVER, Reason
from launcher.runtime import credentials, driver, inputs, procs
from launcher.runtime.attempt import MemberAttempt
from launcher.runtime.context import MemberContext
from launcher.runtime.folders import Folders
from launcher.runtime.leash import Leash
from launcher.runtime.masking import Masker
from launcher.runtime.member import Member
from launcher.runtime.numbers import RuntimeNumbers
from launcher.runtime.output import OutputStream
from launcher.runtime.settings import MemberAddress
from launcher.runtime.signals import Signals
from launcher.runtime.spool import Spool, lost_here
from launcher.runtime.trouble import Trouble
from launcher.spec.hashing import decode_job, run_id
from launcher.spec.model import ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.opening import open_store
from launcher.version import __version__


def main(environ: Mapping[str, str]) -> int:
    """Runs one attempt. Returns the container's exit code (launcher.reasons)."""
    procs.become_subreaper()
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
        trouble = Trouble(address.workdir)
        store = open_store(address.store, there=True)
        job = load_job(address, store)
    except Unreachable as error:
        trouble(str(error))
        print(f"[slipway] {error}", flush=True)
        return EXIT_AGAIN
    except (SlipwayError, OSError) as error:
        print(f"[slipway] {Reason.CONFIG_ERROR}: {error}", flush=True)
        return EXIT_NEVER
    folders = Folders.at(address.workdir)
    spool = Spool(folders.runtime / "log", mark=lost_here)
    secrets = {environ[name] for name in job.secrets if environ.get(name)}
    output = OutputStream(spool, Masker(credentials.with_encoded(secrets | credentials.values(environ))))
    if line := driver.too_old(environ):
        output.say(line)
    numbers = RuntimeNumbers(environ, address.run, address.member)

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
