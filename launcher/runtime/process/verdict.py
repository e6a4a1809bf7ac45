"""Why a command ended, decided from its exit and what happened meanwhile. Pure; docs/reference/runtime.md has the same
as a table."""

from __future__ import annotations

import signal

import msgspec

from launcher.reasons import EXIT_NEVER, Reason


class Ended(msgspec.Struct, frozen=True):
    """How a command ended.

    code        its exit code; negative: the signal that ended it
    stop        the reason for which the runtime ended it (cancelled, deadline, fenced, ...), if it did
    why         a message that explains `stop`
    terminated  SIGTERM came from outside before it ended, and was forwarded
    done        $SLIPWAY_OUTPUTS/.done exists
    oom_kills   the kernel's out-of-memory kills while it ran
    oom_shared  `oom_kills` includes other processes of the machine
    last_line   the line it printed that tells best why it failed
    inner       the exit code of the process that failed first, where it was torchrun, which exits with 1 itself
    forgiven    exit code 78 is tried again, as `limits.retry_on` says
    disk_full   the disk of its outputs has no space left
    """

    code: int
    stop: Reason | None = None
    why: str = ""
    terminated: bool = False
    done: bool = False
    oom_kills: int = 0
    oom_shared: bool = False
    last_line: str = ""
    inner: int | None = None
    forgiven: bool = False
    disk_full: bool = False


def verdict(ended: Ended) -> tuple[Reason, str]:
    """The reason that this command gives the attempt, and a message. Missing outputs are checked later."""
    if ended.done and ended.code == 0 and ended.stop in (None, Reason.DEADLINE):
        return Reason.SUCCEEDED, ""
    if ended.stop is not None:
        return ended.stop, ended.why
    if ended.terminated:
        told = "exited with 0, without .done," if ended.code == 0 else how(ended.code)
        return Reason.PREEMPTED, f"the command {told} after SIGTERM"
    if ended.code == 0:
        return Reason.SUCCEEDED, ""
    # The count may include other processes of the machine; then only a SIGKILL of this command proves it.
    killed = ended.code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    if ended.oom_kills and (killed or not ended.oom_shared):
        return Reason.OUT_OF_MEMORY, f"the kernel killed {ended.oom_kills} of its processes because memory ran out"
    message = f"the command {how(ended.code)}"
    if killed:
        message += " from outside; the kernel counted no kill because memory ran out"
    if ended.disk_full:
        message += "; the disk of its outputs is full"
    never = EXIT_NEVER in (ended.code, ended.inner) and not ended.forgiven
    reason = Reason.CONFIG_ERROR if never else Reason.USER_ERROR
    return reason, f"{message}: {ended.last_line}" if ended.last_line else message


def how(code: int) -> str:
    """An exit code in words; a negative one is a signal's."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
