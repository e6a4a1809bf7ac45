"""Which rank caused a failure in a run of several ranks.

When one rank disappears, the commands of the others fail too: their connections break, and they end with an error of
their own before anybody knows that a node was lost or that a pod was asked to stop. Such an attempt must not count
against `limits.retries`. So a command's failure counts as its own only after the other ranks were seen to work, or to
fail in the same way, since then. The leader checks all other ranks; they check the leader, which decides for all.
"""

from __future__ import annotations

from typing import Final

from launcher.decoding import decode
from launcher.errors import Unreachable
from launcher.protocol import decide
from launcher.protocol.decide import BeatFacts
from launcher.protocol.records import Beat, Exit
from launcher.protocol.steps import Stop
from launcher.reasons import RULES, Reason
from launcher.runtime.context import MemberContext
from launcher.runtime.member.member import Member

ASKING: Final = "asking"  # the phase of a rank while it checks the others
BEATS: Final = 2  # heartbeats to wait for after the failure; the first may have been sent before it
# phases after which an exit comes soon that tells why. Nobody waits for one who waits for him: the leader for no rank
# that asks, another rank for no leader that saves: it has its reason, and may be waiting for this very rank's exit
_OF_A_RANK: Final = ("stopping", "saving")
_OF_THE_LEADER: Final = ("stopping", ASKING)


def cause(context: MemberContext, member: Member) -> Stop | None:
    """A Stop if another rank's end made this rank's command fail; None if the failure is its own. Call it while this
    member still sends heartbeats: they detect a rank that stays silent."""
    first: dict[str, int] = {}  # member -> number of its heartbeat when it was first read
    leader = context.leading[0]
    left = [other for other in context.job.members() if other != context.member] if context.leader else [leader]
    patient = _OF_A_RANK if context.leader else _OF_THE_LEADER
    while True:
        try:
            for other in list(left):
                ended = context.store.read(context.keys.exit(other))
                if ended is not None:
                    if (stop := _of_exit(decode(ended[0], Exit).reason)) is not None:
                        return stop
                    left.remove(other)
                    continue
                record = context.store.read(context.keys.beat(other))
                seq, phase = _told(record[0]) if record is not None else (0, "")
                if seq >= first.setdefault(other, seq) + BEATS and phase not in patient:
                    left.remove(other)
            if not left:
                # whoever stops for another reason says so here before its exit or its last phase is to be seen
                broken = context.store.head(context.keys.broken) is not None
                return member.should_stop() or decide.beat(BeatFacts(broken=broken))
        except Unreachable as error:
            context.say(f"store: {error}")
        if member.stopped.wait(min(1.0, context.job.timing.beat)):
            return member.should_stop()


def _of_exit(reason: Reason) -> Stop | None:
    """A Stop if a rank that ended for `reason` made the others fail; None if its failure explains no more than this
    rank's own."""
    if reason is Reason.SUCCEEDED or RULES[reason].severity >= RULES[Reason.USER_ERROR].severity:
        return None
    return decide.beat(BeatFacts(watched=0, exit=reason))


def _told(body: bytes) -> tuple[int, str]:
    beat = decode(body, Beat)
    return beat.seq, beat.phase
