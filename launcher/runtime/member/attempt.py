"""One rank's part of one attempt, in order: fetch, restore, run the command, upload the rest, end."""

from __future__ import annotations

import errno
import os
import platform
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from launcher.errors import SlipwayError, Unreachable
from launcher.protocol.records import Exit
from launcher.protocol.steps import Stop
from launcher.reasons import EXIT_NEVER, Reason
from launcher.runtime import inputs
from launcher.runtime.context import MemberContext
from launcher.runtime.member import command, peers, restoring
from launcher.runtime.member.child import Outcome, run_command
from launcher.runtime.member.command import check_packages
from launcher.runtime.member.idle_gpus import IdleGpus
from launcher.runtime.member.member import Member, Started
from launcher.runtime.process import procs
from launcher.runtime.process.leash import Leash
from launcher.runtime.process.signals import Signals
from launcher.runtime.process.verdict import Ended, OutOfMemory, verdict
from launcher.runtime.secrets.fetch import FAULT
from launcher.runtime.settings import AttemptError
from launcher.runtime.uploads.log_stream import OutputStream
from launcher.runtime.uploads.spool import Shipper, Spool
from launcher.runtime.uploads.sync import Sync
from launcher.runtime.uploads.telemetry import Metrics, Usage, read_progress
from launcher.store.layout import blob
from launcher.version import __version__

T = TypeVar("T")


class AttemptStopped(Exception):
    """Raised when the attempt has to end before its command has started."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.message)
        self.stop = stop


class MemberAttempt:
    """One rank's part of one attempt, from its claim to its exit."""

    def __init__(
        self,
        context: MemberContext,
        member: Member,
        begun: Started,
        signals: Signals,
        output: OutputStream,
        spool: Spool,
        environ: Mapping[str, str],
        leash: Leash,
    ) -> None:
        self.context, self.member, self.begun, self.signals = context, member, begun, signals
        self.output, self.environ, self.leash = output, environ, leash
        self.state = member.beat_state
        self.tuning = context.address.tuning
        self.limits = context.job.limits
        self.role = context.job.roles[context.address.role]
        keys, name = context.keys, context.member
        first_wait, longest = self.tuning.log_first, self.tuning.log_longest
        self.spool, self.metrics_spool = spool, Spool(context.folders.runtime / "metrics", lines=True)

        def shipper(spool: Spool, key: Callable[[str, int, int], str]) -> Shipper:
            return Shipper(
                context.store, spool, lambda first, end: key(name, first, end), first=first_wait, longest=longest
            )

        self.log_shipper = shipper(spool, keys.log_piece)
        self.metrics_shipper = shipper(self.metrics_spool, keys.metrics_piece)
        self.metrics = Metrics(context.folders.metrics, self.metrics_spool, output.masker)
        self.usage = Usage(self.role.resources.gpus)
        self.usage_due = 0.0
        self.idle = IdleGpus(context)
        self.sync = Sync(context, self.checkpointed, self.state)
        self.started = time.time()
        self.verified: dict[str, str] = {}  # input -> digest
        self.data: dict[str, str] = {}  # the same, where this rank has recorded it
        self.resume: Path | None = None
        self.outcome: Outcome | None = None

    def go(self) -> int:
        """Runs the whole attempt. Returns the container's exit code."""
        context = self.context
        where = f"{context.address.placement.host}, Python {platform.python_version()}, slipway {__version__}"
        context.say(f"attempt {context.attempt} of {context.address.run}, {context.member}, on {where}")
        reason, message = self.guarded(self.run)
        # the command is gone: SIGTERM now only shortens what is left
        self.signals.on_terminate = self.member.interrupt
        if self.outcome is not None and reason in (Reason.USER_ERROR, Reason.CONFIG_ERROR):
            reason, message = self.guarded(lambda: self.own_fault(reason, message))
        # outputs before the reason is final: a run succeeds only when every output has its manifest
        self.state.phase = "saving"
        flushed, trouble = self.guarded(lambda: self.flush(reason))
        if flushed is not Reason.SUCCEEDED and reason is Reason.SUCCEEDED:
            reason, message = flushed, trouble
        elif trouble:
            context.say(trouble)
        message = self.output.masker.text(message)
        context.say(f"{reason}: {message}" if message else str(reason))
        for shipper in (self.metrics_shipper, self.log_shipper):  # the log goes last: it tells of the metrics
            _, trouble = self.guarded(lambda shipper=shipper: self.ship(shipper))  # type: ignore[misc]
            if trouble:
                context.say(trouble)
        self.state.stored = self.stored()
        self.metrics_spool.close()
        # the exit comes last: whoever reads it reads everything else of this rank
        return self.member.end(self.exit(reason, message), outputs_done=reason is Reason.SUCCEEDED, data=self.data)

    def guarded(self, part: Callable[[], tuple[Reason, str]]) -> tuple[Reason, str]:
        """Runs a part of the attempt. Any error in it becomes a reason and a message for the user."""
        try:
            return part()
        except AttemptStopped as error:
            return error.stop.reason, error.stop.message
        except AttemptError as error:
            return error.reason, str(error)
        except Unreachable as error:
            return Reason.STORE_UNREACHABLE, str(error)
        except SlipwayError as error:
            return Reason.INFRASTRUCTURE, str(error)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                return Reason.INFRASTRUCTURE, f"no space left for {error.filename or self.context.folders.root}"
            return self.unexpected(error)

    def unexpected(self, error: Exception) -> tuple[Reason, str]:
        self.context.say(traceback.format_exc())
        return Reason.INFRASTRUCTURE, f"the runtime failed: {type(error).__name__}: {error}"

    # before the command

    def run(self) -> tuple[Reason, str]:
        """The start, in the order of what may still fail: nothing is computed before everything is there."""
        self.check_secrets()  # before a download of hours
        self.clear_leftovers()  # an earlier attempt's processes hold its GPUs
        self.proceed(self.member.form())  # all ranks are there, or the attempt ends
        self.fetch()
        self.unpack_code()
        self.state.phase, self.state.message = "waiting", ""
        # earlier attempts are over: no newer checkpoint appears after the one that is restored
        self.proceed(self.member.settle())
        self.restore()
        self.state.phase, self.state.message = "waiting", ""
        met = peers.meet(self.context, self.member)  # addresses of the other roles, once these are ready
        if isinstance(met, Stop):
            raise AttemptStopped(met)
        context = self.context
        own = command.variables(
            context.job, context.address, context.folders, context.attempt, self.resume, met, self.verified
        )
        argv = command.argv(self.context.job, self.context.address, own)
        env = command.environment(
            self.context.job, self.context.address, self.context.folders, own, met, self.context.attempt, self.environ
        )
        command.write_config(self.context.job, self.context.folders, own)
        identities = self.context.folders.make_outputs(self.context.job.outputs)
        if self.sync.outputs is not None:
            self.sync.outputs.made = identities
        self.sync.start()
        # the last reading before the command: everything above may have taken hours
        self.proceed(self.member.before_command())
        check_packages(self.role, self.environ)
        return self.run_to_the_end(argv, env, met)

    def proceed(self, stop: Stop | None) -> None:
        if stop is not None:
            raise AttemptStopped(stop)

    def check_secrets(self) -> None:
        missing = [name for name in self.context.job.secrets if not self.environ.get(name)]
        if missing:
            why = self.environ.get(FAULT) or "no value reached the runtime"
            raise AttemptError(Reason.CONFIG_ERROR, f"secret {', '.join(missing)}: {why}")

    def clear_leftovers(self) -> None:
        """Ends processes of this rank's earlier attempts on this machine, and deletes their files."""
        for old in self.begun.previous:
            mark = f"{command.self_mark(self.context.address)} {old.number}"
            procs.kill_tree(mark=mark, variable=command.SELF, grace=self.tuning.leftovers)
        self.context.folders.clear()

    def fetch(self) -> None:
        if not self.context.job.inputs:
            return
        self.state.phase = "fetching"
        earlier = self.insisted(lambda: inputs.recorded(self.context))
        digests = self.verified = inputs.fetch_all(self.context, earlier, self.report, self.insist, self.check)
        if self.context.leader:
            self.insist(inputs.record(self.context, digests))
            self.data, self.state.events = digests, 1

    def unpack_code(self) -> None:
        code = self.context.job.code
        if code is None:
            return
        archive = self.context.folders.runtime / "code.tar"
        digest = self.insisted(lambda: self.context.store.download(blob(code.digest), archive))
        if digest != code.digest.removeprefix("sha256:"):
            raise AttemptError(Reason.INFRASTRUCTURE, f"code: the store's copy has digest {digest}, not {code.digest}")
        command.unpack(archive, self.context.folders.code)
        archive.unlink()

    def restore(self) -> None:
        """The newest checkpoint of this run's earlier attempts, else of the run to resume; and live outputs."""
        kinds = [output.kind for output in self.context.job.outputs.values()]
        self.state.phase = "restoring"
        if "checkpoints" in kinds:
            self.insist(self.restore_checkpoint)
        if self.member.previous:
            self.insist(self.restore_outputs)

    def restore_outputs(self) -> None:
        """Restores each live output from the newest earlier attempt that has it."""
        leader = self.context.leading[0]
        earlier = sorted(self.member.previous, key=lambda attempt: attempt.number, reverse=True)
        if self.sync.outputs is not None:
            self.sync.outputs.restore([(old.number, old.live(leader), leader in old.exits) for old in earlier])

    def restore_checkpoint(self) -> None:
        self.resume = restoring.checkpoint(self.context, self.member, self.report)

    # the command

    def run_to_the_end(self, argv: list[str], env: dict[str, str], met: command.Peers) -> tuple[Reason, str]:
        """Runs the command. If the role is not the leading one and the command fails, runs it again up to `restarts`
        times."""
        left = self.role.restarts if self.context.address.role != self.context.job.leading else 0
        before = 0.0
        while True:
            memory = OutOfMemory()
            over = False
            peers.announce_when_ready(self.context, self.member, met.ports, lambda: over)  # noqa: B023
            self.state.phase = "running"
            if not before:  # a restart in place is not reported again
                self.member.beat_soon()
            self.signals.on_terminate = lambda: None  # the command is told
            self.context.say(f"command: {' '.join(argv)}")
            self.state.since = self.member.clock.boottime() - before
            self.leash.hold(env[command.SELF], command.SELF, self.context.job.timing.fence, self.limits.grace)
            outcome = run_command(
                argv,
                env,
                self.cwd,
                output=self.output,
                signals=self.signals,
                stopped=self.member.stopped,
                grace=self.limits.grace,
                leftovers=self.tuning.leftovers,
                poll=self.tuning.poll,
                tick=lambda seconds: self.tick(before + seconds),  # noqa: B023
                leash=self.leash,
            )
            over = True
            self.state.since = None
            before += outcome.seconds
            self.outcome = outcome
            reason, message = verdict(self.ended(outcome, memory))
            if reason is not Reason.USER_ERROR or not left:
                return reason, message
            left -= 1
            self.context.say(f"{message}; started again in place, {left} more times at most")
            self.member.stopped.wait(1.0)

    @property
    def cwd(self) -> Path:
        return self.context.folders.code if self.context.job.code else self.context.folders.work

    def tick(self, seconds: float) -> None:
        """Updates the content of the next heartbeat."""
        self.state.running = seconds
        self.state.stored = self.stored()
        self.metrics.poll()
        progress = read_progress(self.context.folders.progress, self.output.masker)
        step, total, message = self.state.step, self.state.total, self.state.message
        if progress is None:
            self.state.step = self.metrics.step
        else:
            self.state.step = self.metrics.step if progress.step is None else progress.step
            self.state.total = progress.total
            self.state.message = ": ".join(filter(None, (progress.phase, progress.message)))
        if self.state.step is not None and (step is None or self.state.step < step or self.state.total != total):
            self.state.first = (self.state.step, seconds)
        if (step, message) == (None, "") != (self.state.step, self.state.message):
            self.member.beat_soon()  # the first thing that the command says of itself
        if self.member.stopped.is_set() or self.signals.terminated is not None:
            self.state.phase = "stopping"
        if seconds >= self.usage_due:
            self.usage_due = seconds + self.tuning.usage
            used = self.usage.sample()
            self.idle.look(seconds, used.get("gpu"))
            self.state.usage = used | self.idle.told()
            self.member.halt_if_idle(self.idle.seconds)

    def stored(self) -> tuple[int, int, int]:
        return self.log_shipper.sent, self.metrics_shipper.sent, self.spool.lost + self.metrics_spool.lost

    def ended(self, outcome: Outcome, memory: OutOfMemory) -> Ended:
        stop = self.member.should_stop()
        if not outcome.stopped and (stop is None or stop.reason is not Reason.STORE_UNREACHABLE):
            # it ended by itself; only after the fence may others have ended it, while this process was suspended
            stop = None
        return Ended(
            code=outcome.code,
            stop=stop.reason if stop else None,
            why=stop.message if stop else "",
            terminated=outcome.terminated,
            done=self.context.folders.done.exists(),
            oom_kills=memory.kills(),
            oom_shared=memory.shared,
            last_line=self.output.last_line(),
            inner=self.output.inner_code() if outcome.code > 0 else None,
            forgiven=str(EXIT_NEVER) in self.limits.retry_on,
            disk_full=self.context.folders.full,
        )

    def own_fault(self, reason: Reason, message: str) -> tuple[Reason, str]:
        """The reason of a command that failed. Waits until it is known whether another rank's end was the cause."""
        if len(self.context.job.members()) == 1:
            return reason, message
        self.state.phase, self.state.message = peers.ASKING, message
        self.context.say(f"{message}; the next heartbeats of the other ranks tell whether one of them is the cause")
        stop = peers.cause(self.context, self.member)
        if self.signals.terminated is not None:
            return Reason.PREEMPTED, f"asked to stop; {message}"
        return (stop.reason, f"{stop.message}; {message}") if stop is not None else (reason, message)

    def checkpointed(self, step: int) -> None:
        self.state.checkpoint = max(step, self.state.checkpoint or 0)

    # the end

    def flush(self, reason: Reason) -> tuple[Reason, str]:
        if self.outcome is None:
            return Reason.SUCCEEDED, ""
        self.metrics.finish()
        if self.metrics.bad:
            self.context.say(f"metrics: {self.metrics.bad} lines were not metrics and were skipped")
        if self.metrics_spool.lost:
            self.context.say(f"metrics: {self.metrics_spool.lost} bytes are lost: there was no space to keep them")
        began = time.monotonic()

        def waiting() -> bool:
            if reason is Reason.SUCCEEDED:
                return not self.stopping()
            return time.monotonic() - began < self.limits.grace

        self.sync.finish(
            clean=self.outcome.code >= 0 and not self.outcome.killed,
            succeeded=reason is Reason.SUCCEEDED,
            resumed=self.resume is not None,
            insist=self.insist,
            waiting=waiting,
        )
        return Reason.SUCCEEDED, ""

    def ship(self, shipper: Shipper) -> tuple[Reason, str]:
        shipper.finish(self.insist)
        return Reason.SUCCEEDED, ""

    def exit(self, reason: Reason, message: str) -> Exit:
        used = {"memory": self.usage.peak} if self.usage.peak else {}
        left = self.sync.left()
        times = os.times()
        return Exit(
            member=self.context.member,
            reason=reason,
            code=self.outcome.code if self.outcome else None,
            message=message,
            started=self.started,
            ended=time.time(),
            running=self.state.running,
            usage={**used, "cpu_seconds": times.children_user + times.children_system},
            checkpoint=self.state.checkpoint,
            log=self.state.stored[0],
            metrics=self.state.stored[1],
            lost=self.state.stored[2],
            outputs=self.state.outputs,
            left_out=left.listed,
            left_out_count=left.count,
        )

    # a store that is away

    def stopping(self) -> bool:
        return self.signals.terminated is not None or self.member.should_stop() is not None

    def report(self, message: str) -> None:
        """Shows a message in `launcher status`. Raises AttemptStopped when the attempt has to end."""
        self.state.message = message
        self.check()

    def check(self) -> None:
        self.proceed(self.member.should_stop())

    def insist(self, step: Callable[[], None]) -> None:
        """Repeats a step while the store cannot be reached: as long as the attempt may live without a heartbeat, or for
        the grace period once the attempt has to end. Raises Unreachable."""
        began = time.monotonic()
        while True:
            try:
                return step()
            except Unreachable as error:
                patience = self.limits.grace if self.stopping() else self.context.job.timing.fence
                if time.monotonic() - began > patience:
                    raise
                self.context.say(f"store: {error}")
                time.sleep(min(5.0, self.context.job.timing.beat))

    def insisted(self, ask: Callable[[], T]) -> T:
        answers: list[T] = []
        self.insist(lambda: answers.append(ask()))
        return answers[0]
