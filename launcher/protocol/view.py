"""The records of a run that a process has read and decoded. Conclusions are drawn elsewhere (`facts`, `fold`).

`add` puts one more object into a view. Objects may be added in any order and more than once; the resulting view is the
same. Of two heartbeats of a member the later one is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from launcher.decoding import decode_record
from launcher.errors import BadInput, BadRecord
from launcher.protocol.records import Beat, Broken, Claim, Endpoint, Event, Exit, Formed, Result
from launcher.spec.hashing import decode_job
from launcher.spec.model import ResolvedJob, at_turn
from launcher.store.layout import MANIFEST, RunKeys


class AttemptView(msgspec.Struct, frozen=True):
    """One attempt. Members are `<role>-<rank>`; times are the store's, seconds since the epoch."""

    number: int
    claims: Mapping[str, Claim] = {}
    claimed: Mapping[str, float] = {}  # member -> when its claim was written
    formed: Formed | None = None
    endpoints: Mapping[str, Endpoint] = {}
    beats: Mapping[str, tuple[Beat, float]] = {}  # with the time of the last write
    broken: Broken | None = None
    exits: Mapping[str, Exit] = {}
    outputs: frozenset[str] = frozenset()  # those whose manifest is there
    checkpoints: tuple[int, ...] = ()  # complete ones, ascending

    def seen(self, member: str) -> float | None:
        """When the member last showed that it is alive; its claim counts as the first heartbeat."""
        times = [self.claimed[member]] if member in self.claimed else []
        if member in self.beats:
            times.append(self.beats[member][1])
        return max(times, default=None)

    def running(self, leader: str) -> float:
        """Seconds the leader's command has run: from its exit, or from its last heartbeat if it was killed."""
        if leader in self.exits:
            return self.exits[leader].running
        return self.beats[leader][0].running if leader in self.beats else 0.0

    def held(self, leader: str) -> float:
        """Seconds for which the attempt has held its machines: from its claim to the leader's exit, or to the last
        heartbeat if it was killed. Older runtimes told only how long the command ran."""
        record = self.exits.get(leader) or (self.beats[leader][0] if leader in self.beats else None)
        return max(record.held, record.running) if record is not None else 0.0

    def brief(self, leader: str, beat: float) -> bool:
        """Whether the leader left no exit, and its command ran for less than a heartbeat as far as it told."""
        return leader in self.claims and leader not in self.exits and self.running(leader) < beat

    def live(self, leader: str) -> Mapping[str, int]:
        """Live output -> its newest version, as the leader's exit or last heartbeat says."""
        if leader in self.exits:
            return self.exits[leader].outputs
        return self.beats[leader][0].outputs if leader in self.beats else {}

    @property
    def moved_to(self) -> str:
        """The backend to which this attempt's claim moved the run; "" of an attempt in which something computes."""
        return next((claim.moved_to for claim in self.claims.values() if claim.moved_to), "")

    @property
    def lost(self) -> int:
        """Bytes of logs and metrics that were lost because disks were full."""
        by_member = {member: beat.lost for member, (beat, _) in self.beats.items()}
        by_member |= {member: end.lost for member, end in self.exits.items()}
        return sum(by_member.values())

    @property
    def left_out(self) -> int:
        """How many files of the outputs could not be stored."""
        return sum(end.left_out_count for end in self.exits.values())


class RunView(msgspec.Struct, frozen=True):
    run: str
    job: ResolvedJob | None = None
    made: float | None = None  # when job.json was written
    result: Result | None = None
    cancelled: bool = False
    attempts: tuple[AttemptView, ...] = ()  # ascending by number
    events: tuple[Event, ...] = ()
    now: float = 0.0  # the store's clock, read before everything else
    # the store's times come from a wall clock, which users can set; then silence is measured by `watched` instead
    settable: bool = False
    # (attempt, member) -> seconds for which this process has seen the same last sign of life, by a clock that nobody
    # can set; (attempt, "") -> seconds since it first saw the attempt. No entry: this is the first reading
    watched: Mapping[tuple[int, str], float] = {}

    @property
    def known(self) -> bool:
        """Whether the store holds anything of this run."""
        return bool(self.job or self.result or self.cancelled or self.attempts)

    @property
    def turn(self) -> int:
        """How often the run was moved to the next of its backends."""
        return sum(bool(attempt.moved_to) for attempt in self.attempts)

    @property
    def placed(self) -> ResolvedJob | None:
        """The job as the backend runs it whose turn it is."""
        return at_turn(self.job, self.turn) if self.job is not None else None

    @property
    def computing(self) -> tuple[AttemptView, ...]:
        """The attempts without those whose claim only moved the run."""
        return tuple(attempt for attempt in self.attempts if not attempt.moved_to)

    @property
    def since_move(self) -> tuple[AttemptView, ...]:
        """The attempts of the backend that may start the run now."""
        moves = [index for index, attempt in enumerate(self.attempts, 1) if attempt.moved_to]
        return self.attempts[moves[-1] :] if moves else self.attempts

    def attempt(self, number: int) -> AttemptView | None:
        return next((attempt for attempt in self.attempts if attempt.number == number), None)


def add(view: RunView, key: str, body: bytes, modified: float) -> RunView:
    """The view with one more object of the run's prefix. Keys that are no records are ignored.

    Raises BadRecord for a record that cannot be read, or a job of a newer schema.
    """
    keys = RunKeys(view.run)
    if key == keys.job:
        try:
            return replace(view, job=decode_job(body), made=modified)
        except BadInput as error:
            raise BadRecord(f"{key}: {str(error).removeprefix('job.json: ')}") from None
    if key == keys.result:
        return replace(view, result=decode_record(key, body, Result))
    if key == keys.cancel:
        return replace(view, cancelled=True)
    if key.startswith(keys.events):
        event = decode_record(key, body, Event)
        events = {(old.attempt, old.writer, old.seq): old for old in (*view.events, event)}
        return replace(view, events=tuple(events[order] for order in sorted(events)))
    if not key.startswith(keys.attempts):
        return view
    number, _, rest = key.removeprefix(keys.attempts).partition("/")
    if not number.isdigit() or not rest:
        return view
    old = view.attempt(int(number)) or AttemptView(int(number))
    new = _add(old, key, rest.split("/"), body, modified)
    if new is None:
        return view
    attempts = {attempt.number: attempt for attempt in (*view.attempts, new)}
    return replace(view, attempts=tuple(attempts[number] for number in sorted(attempts)))


def _add(attempt: AttemptView, key: str, parts: list[str], body: bytes, modified: float) -> AttemptView | None:
    match parts:
        case ["claim", name]:
            member = _member(name)
            claims = {**attempt.claims, member: decode_record(key, body, Claim)}
            return replace(attempt, claims=claims, claimed={**attempt.claimed, member: modified})
        case ["beat", name]:
            member, beat = _member(name), (decode_record(key, body, Beat), modified)
            if member in attempt.beats and _order(attempt.beats[member]) > _order(beat):
                return attempt
            return replace(attempt, beats={**attempt.beats, member: beat})
        case ["exit", name]:
            return replace(attempt, exits={**attempt.exits, _member(name): decode_record(key, body, Exit)})
        case ["endpoints", name]:
            return replace(attempt, endpoints={**attempt.endpoints, _member(name): decode_record(key, body, Endpoint)})
        case ["formed.json"]:
            return replace(attempt, formed=decode_record(key, body, Formed))
        case ["broken.json"]:
            return replace(attempt, broken=decode_record(key, body, Broken))
        case ["outputs", name] if name.endswith(MANIFEST):
            return replace(attempt, outputs=attempt.outputs | {name.removesuffix(MANIFEST)})
        case ["checkpoints", step, "complete.json"] if step.isdigit():
            return replace(attempt, checkpoints=tuple(sorted({*attempt.checkpoints, int(step)})))
    return None


def _order(beat: tuple[Beat, float]) -> tuple[int, float]:
    return beat[0].seq, beat[1]


def _member(name: str) -> str:
    return name.removesuffix(".json")
