"""How the ranks of one attempt find each other: ports, readiness, the address for torchrun; and which of them
caused a failure."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from launcher.decoding import decode
from launcher.errors import Unreachable
from launcher.protocol import decide
from launcher.protocol.decide import BeatFacts
from launcher.protocol.records import Beat, Endpoint, Exit
from launcher.protocol.steps import Stop
from launcher.reasons import RULES, Reason
from launcher.runtime.context import MemberContext
from launcher.runtime.member.command import Peers
from launcher.runtime.member.member import Member
from launcher.runtime.process.threads import ResilientThread
from launcher.spec.model import Ready

_PROBE = 5.0  # seconds for one check whether a role is ready


def meet(context: MemberContext, member: Member) -> Peers | Stop:
    """The addresses that a rank needs before its command starts. Waits for the roles that it needs."""
    role = context.job.roles[context.address.role]
    ports = {name: port or free_port() for name, port in role.ports.items()}
    master: tuple[str, int] | None = None
    if context.address.role == context.job.leading and role.replicas > 1:
        met = _master(context, member)
        if isinstance(met, Stop):
            return met
        master = met
    if not role.needs:
        return Peers(master, {}, ports)
    by_role = wait_endpoints(member, role.needs)
    if isinstance(by_role, Stop):
        return by_role
    return Peers(master, {name: main_port(endpoints) for name, endpoints in by_role.items()}, ports)


def wait_endpoints(member: Member, roles: Sequence[str]) -> dict[str, tuple[Endpoint, ...]] | Stop:
    """Waits until every rank of `roles` has published its endpoint; role -> the endpoints of its ranks."""
    wanted = {role: [f"{role}-{rank}" for rank in range(member.job.roles[role].replicas)] for role in roles}
    published: dict[str, Endpoint] = {}
    while True:
        stop = member.should_stop()
        if stop is not None:
            return stop
        try:
            for name in (name for ranks in wanted.values() for name in ranks if name not in published):
                body = member.store.read(member.attempt_keys.endpoint(name))
                if body is not None:
                    published[name] = decode(body[0], Endpoint)
        except Unreachable as error:
            member.log(f"store: {error}")
        if all(name in published for ranks in wanted.values() for name in ranks):
            return {role: tuple(published[name] for name in ranks) for role, ranks in wanted.items()}
        member.clock.wait(member.stopped, member.poll)


def main_port(endpoints: tuple[Endpoint, ...]) -> tuple[str, ...]:
    """The address of each rank: that of its port `http`, or else of its first port."""
    return tuple(each.ports.get("http") or next(iter(each.ports.values()), "") for each in endpoints)


def own_host(context: MemberContext) -> str:
    """The host under which other ranks reach this rank."""
    return "127.0.0.1" if context.address.placement.is_process else context.address.placement.host


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def _master(context: MemberContext, member: Member) -> tuple[str, int] | Stop:
    """The host and port for torchrun. The leader picks the port and stores it beside the endpoints; others read it."""
    key = context.keys.endpoint(f"{context.leading[0]}.master")
    if context.leader:
        port = free_port()
        endpoint = Endpoint(context.member, {"master": f"{own_host(context)}:{port}"}, member.clock.time())
        context.store.create(key, msgspec.json.encode(endpoint))
        return own_host(context), port
    while True:
        stop = member.should_stop()
        if stop is not None:
            return stop
        try:
            record = context.store.read(key)
        except Unreachable:
            record = None
        if record is not None:
            host, _, port_text = decode(record[0], Endpoint).ports["master"].rpartition(":")
            return host, int(port_text)
        member.stopped.wait(min(1.0, context.job.timing.beat))


def announce_when_ready(
    context: MemberContext, member: Member, ports: Mapping[str, int], over: Callable[[], bool]
) -> threading.Thread | None:
    """Publishes this rank's ports once they answer, in a thread; None for a rank without ports."""
    if not ports:
        return None
    ready = context.job.roles[context.address.role].ready

    def probe() -> bool:
        if over():
            return False
        if is_ready(ready, ports):
            member.publish_endpoint({name: f"{own_host(context)}:{port}" for name, port in ports.items()})
            context.say("ready: " + ", ".join(f"{name} {port}" for name, port in ports.items()))
            return False
        member.stopped.wait(context.address.tuning.ready)
        return True

    thread = ResilientThread("ready", probe, context.say, pause=context.address.tuning.ready)
    thread.start()
    return thread


def is_ready(ready: Ready | None, ports: Mapping[str, int]) -> bool:
    """Every port takes connections and, where the role says so, a path answers 2xx."""
    import http.client  # a tenth of the runtime's start, and most ranks have no ports

    try:
        for port in ports.values():
            socket.create_connection(("127.0.0.1", port), timeout=_PROBE).close()
        if ready is None:
            return True
        connection = http.client.HTTPConnection("127.0.0.1", ports[ready.port], timeout=_PROBE)
        try:
            connection.request("GET", ready.http)
            return 200 <= connection.getresponse().status < 300
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False


# Which rank caused a failure in a run of several ranks.
# When one rank disappears, the commands of the others fail too: their connections break, and they end with an error
# of their own before anybody knows that a node was lost or that a pod was asked to stop. Such an attempt must not
# count against `limits.retries`. So a command's failure counts as its own only after the other ranks were seen to
# work, or to fail in the same way, since then. The leader checks all other ranks; they check the leader, which
# decides for all.

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
