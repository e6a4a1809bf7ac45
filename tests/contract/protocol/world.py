"""The store, the backend and the processes of the exhaustive check, and how each of them changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from launcher.protocol import decide, reaping, steps
from launcher.protocol.facts import AttemptFacts, Rules, RunFacts, Verdict, exhausted, gone, same_placement, silent
from launcher.protocol.records import Placement
from launcher.protocol.rules import ALL, Rule
from launcher.reasons import EXIT_DONE, EXIT_NEVER, Reason
from tests.contract.protocol.states import (
    BEATS,
    NO_BEAT,
    QUIET,
    QUIET_CLAIM,
    RUNS,
    Att,
    Config,
    Obj,
    Proc,
    State,
    Sub,
)

MOST_INC = 9
ADOPTED = Verdict("succeeded", 0, Reason.SUCCEEDED)
AGES = {NO_BEAT: (0.0, None), BEATS: (0.0, 0.0), QUIET: (2.0, 2.0), QUIET_CLAIM: (2.0, None)}


def put(items: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*items[:at], value, *items[at + 1 :])


def order(q: Proc) -> tuple[int, int, int, bool]:
    return q.place, q.rank, q.inc, q.orphan


def find(s: State, q: Proc) -> Proc:
    return next(x for x in s.procs if x is q)


class World:
    def __init__(self, config: Config, rules: Rules = ALL) -> None:
        self.c, self.rules = config, rules
        self.names = [name for name, _ in config.faults]
        self.run_of = lru_cache(None)(self._run_of)
        self.placement = lru_cache(None)(self._placement)
        self.start = lru_cache(None)(decide.start)
        self.settle = lru_cache(None)(decide.settle)
        self.before = lru_cache(None)(decide.before_command)
        self.beat = lru_cache(None)(decide.beat)
        self.ending = lru_cache(None)(decide.end)
        self.glances = lru_cache(None)(self._glances)
        self.finish = lru_cache(None)(decide.finish)
        self.reap = lru_cache(None)(reaping.reap)
        # two reductions that lose nothing: a process that has read nothing yet is as good as one not yet started (but
        # for what its backend may believe of it), and a claim is as good as a beat
        self.eager = config.starts and not config.late and not {"force", "served", "waited"} & set(self.names)
        self.first_beat = BEATS if Rule.CLAIM_IS_BEAT in rules else NO_BEAT
        self.fences = decide.fence(1.0, 0.0, rules) is not None
        self.yields = decide.beat(decide.BeatFacts(successor=True), rules) is not None

    def initial(self) -> State:
        c = self.c
        obj = Obj("active" if c.submitted else "none", tuple((0, "P") for _ in range(c.ranks)))
        objs = (obj, *(obj._replace(state="none") if c.ordered else obj for _ in range(c.places - 1)))
        faults = tuple(left for _, left in c.faults)
        return self.started(State((), (), objs, (Sub("read"),) * c.submitters, faults, c.job))

    def started(self, s: State) -> State:
        """Every process that a backend is about to start."""
        if not self.eager:
            return s
        for place, obj in enumerate(s.objs):
            if obj.state == "active":
                for rank, (inc, state) in enumerate(obj.slots):
                    if state == "P":
                        s = self.with_proc(s, place, rank, inc)
        return s

    def with_proc(self, s: State, place: int, rank: int, inc: int) -> State:
        born = len(s.atts) if "force" in self.names else 99
        served = None if "served" in self.names else False
        q = Proc(place, rank, inc, "start", born=born, served=served, late=s.served)
        obj = s.objs[place]
        return s._replace(
            procs=tuple(sorted((*s.procs, q), key=order)),
            objs=put(s.objs, place, obj._replace(slots=put(obj.slots, rank, (inc, "R")))),
        )

    # what is read

    def _placement(self, place: int, inc: int) -> Placement:
        mode = self.c.mode
        if mode == "job":
            return Placement("job", f"job{place}")
        if mode == "set":
            return Placement("set", f"set{place}", generation=inc)
        if mode == "process":
            return Placement("process", f"queue{place}", host="host", boot="boot")
        return Placement("machine", f"machine{place}-{inc}")

    def _run_of(
        self,
        atts: tuple[Att, ...],
        result: str | None,
        cancelled: bool,
        who: tuple[int, int, int, int] | None,
        moved: bool = False,
        living: frozenset[tuple[int, int, int]] = frozenset(),
        adopted: bool = False,
    ) -> RunFacts:
        """What a process (place, inc, rank, born) concludes, or an onlooker. `living`: (place, inc, rank) of all
        processes, where pids can be looked up."""
        mine = self.placement(who[0], who[1]) if who else None
        claims = [
            tuple(self.placement(*att.claims[r]) if att.claims[r] else None for att in atts)  # type: ignore[misc]
            for r in range(self.c.ranks)
        ]
        made = []
        for k, att in enumerate(atts):
            if att.move:
                nothing = (False,) * self.c.ranks
                made.append(AttemptFacts(nothing, att.exits, (True,) * self.c.ranks, move=True))
                continue
            leader = claims[0][k]
            dead = []
            for r in range(self.c.ranks):
                claim = att.claims[r]
                quiet = silent(*AGES[att.beats[r]], 1.0, self.rules)
                alive = (*claim, r) in living if claim and mine and self.c.mode == "process" else None
                same = who is not None and who[2] == r
                before = who is not None and k < who[3]
                dead.append(
                    gone(claims[r], k, quiet, mine, same_member=same, before=before, alive=alive, rules=self.rules)
                )
            made.append(
                AttemptFacts(
                    claimed=tuple(claim is not None for claim in att.claims),
                    exits=att.exits,
                    gone=tuple(dead),
                    own=mine is not None and leader is not None and same_placement(leader, mine, self.rules),
                    moved=moved and k == len(atts) - 1,
                    settled=att.settled,
                    broken=att.broken,
                    outputs=att.outputs,
                    checkpoint=att.checkpoint,
                    held=float(att.held),
                )
            )
        backends = self.c.places if self.c.ordered else 1
        return RunFacts(tuple(made), result, cancelled, self.c.leading, self.c.policy, adopted, backends)

    def turn(self, s: State) -> int:
        """Which backend may start the run now; where they have no order, the first is asked."""
        return sum(att.move for att in s.atts)

    def seen(self, s: State, q: Proc | None, moved: bool = False) -> RunFacts:
        living = frozenset((x.place, x.inc, x.rank) for x in s.procs) if self.c.mode == "process" else frozenset()
        who = (q.place, q.inc, q.rank, q.born) if q else None
        adopted = s.result == ADOPTED
        return self.run_of(s.atts, s.result.outcome if s.result else None, s.cancel, who, moved, living, adopted)

    def _glances(
        self, result: str | None, cancel: bool, successor: bool, att: Att, rank: int
    ) -> tuple[steps.Stop, ...]:
        """Everything that one beat may say, depending on which other member it looks at."""
        base = decide.BeatFacts(result, cancel, successor, att.broken, rank >= self.c.leading)
        others = [] if self.c.ranks == 1 else [0] if rank else list(range(1, self.c.ranks))
        found = []
        for who in [None, *others]:
            glance = base
            if who is not None and att.claims[who] is not None:
                quiet = silent(*AGES[att.beats[who]], 1.0, self.rules)
                glance = base._replace(watched=who, exit=att.exits[who], gone=quiet)
            stop = self.beat(glance, self.rules)
            if stop is not None and stop not in found:
                found.append(stop)
        return tuple(found)

    def stops(self, s: State, q: Proc) -> tuple[steps.Stop, ...]:
        result = s.result.outcome if s.result else None
        return self.glances(result, s.cancel, len(s.atts) > q.n, s.atts[q.n - 1], q.rank)

    def spent(self, atts: tuple[Att, ...]) -> bool:
        """Whether these attempts have spent the budget."""
        return decide.budget(float(sum(att.held for att in atts)), self.c.policy.budget) is not None

    # small changes

    def left(self, s: State, fault: str) -> bool:
        return fault in self.names and s.faults[self.names.index(fault)] > 0

    def spend(self, s: State, fault: str) -> State:
        at = self.names.index(fault)
        return s._replace(faults=put(s.faults, at, s.faults[at] - 1))

    def proc(self, s: State, q: Proc, **changes: Any) -> State:
        new = q._replace(**changes)
        return s._replace(procs=tuple(sorted((new if x is q else x for x in s.procs), key=order)))

    def att(self, s: State, n: int, **changes: Any) -> State:
        return s._replace(atts=put(s.atts, n - 1, s.atts[n - 1]._replace(**changes)))

    def owner(self, s: State, n: int, rank: int) -> Proc | None:
        claim = s.atts[n - 1].claims[rank]
        return next((q for q in s.procs if q.rank == rank and (q.place, q.inc) == claim), None)

    def put_result(self, s: State, verdict: Verdict) -> tuple[State, tuple[str, ...]]:
        if s.result is not None:
            return s, ()
        broken: tuple[str, ...] = ()
        if verdict == ADOPTED:
            broken = () if s.once_served else ("SUCCEEDED WITHOUT A COMPLETE ATTEMPT",)
        elif verdict.outcome == "succeeded":
            att = s.atts[verdict.attempt - 1]
            if not att.outputs or any(reason is not Reason.SUCCEEDED for reason in att.exits[: self.c.leading]):
                broken = ("SUCCEEDED WITHOUT A COMPLETE ATTEMPT",)
        return s._replace(result=verdict), broken

    def contradicts(self, s: State, step: object) -> tuple[str, ...]:
        """Asked when the end is decided; it may be put much later."""
        other = isinstance(step, steps.Finish) and step.verdict.outcome != "succeeded" and s.result is None
        return ("RESULT CONTRADICTS A COMPLETE ATTEMPT",) if other and any(self.whole(att) for att in s.atts) else ()

    def too_early(self, s: State, step: steps.Finish) -> tuple[str, ...]:
        """Asked when somebody who only looks on decides the end: by the records another attempt may follow."""
        more = step.verdict.outcome == "failed" and exhausted(self.seen(s, None)) is None
        if self.c.applied and s.file and not s.cancel:
            more = step.verdict.outcome != "succeeded" and exhausted(self.seen(s, None)) is None
            there = any(obj.state in ("active", "away") for obj in s.objs)
            return ("ENDED THOUGH WHAT APPLIED IT MAKES IT AGAIN",) if more and there else ()
        if self.c.ordered:
            turn = self.turn(s)
            if more and turn + 1 < self.c.places and s.objs[turn].state == "failed":
                return ("GAVE UP BEFORE THE LAST BACKEND",)
            there = s.objs[turn].state == "active"
        else:
            there = any(obj.state == "active" for obj in s.objs)
        return ("ENDED THOUGH ITS BACKEND STILL HAS IT",) if more and there else ()

    def whole(self, att: Att) -> bool:
        return att.outputs and all(reason is Reason.SUCCEEDED for reason in att.exits[: self.c.leading])

    # the backend

    def end_all(self, s: State, place: int) -> Iterator[State]:
        """The object's other processes end: killed, or the leader still writes that it was preempted."""
        ours = [q for q in s.procs if q.place == place and not q.orphan]
        base = s._replace(procs=tuple(q for q in s.procs if q.place != place or q.orphan))
        yield base
        for q in ours:
            if q.rank == 0 and q.child == RUNS and not q.cut and s.atts[q.n - 1].exits[0] is None:
                yield self.att(base, q.n, exits=put(s.atts[q.n - 1].exits, 0, Reason.PREEMPTED))

    def leave(self, s: State, q: Proc, code: int) -> Iterator[State]:
        """What the backend makes of a process that ended with a code (-9: killed)."""
        if not q.orphan:
            yield from self.slot_ends(s._replace(procs=tuple(x for x in s.procs if x is not q)), q.place, q.rank, code)
        else:
            yield s._replace(procs=tuple(x for x in s.procs if x is not q))

    def slot_ends(self, s: State, place: int, rank: int, code: int) -> Iterator[State]:
        c, obj = self.c, s.objs[place]
        if obj.state != "active":
            yield s
        elif code == EXIT_DONE:
            slots = put(obj.slots, rank, (obj.slots[rank][0], "D"))
            done = [slot[1] == "D" for slot in slots]
            if all(done) or (c.mode == "set" and all(done[: c.leading])):
                for t in self.end_all(s, place):
                    yield t._replace(objs=put(t.objs, place, Obj("complete", slots)))
            else:
                yield s._replace(objs=put(s.objs, place, obj._replace(slots=slots)))
        elif code == EXIT_NEVER:
            for t in self.end_all(s, place):
                yield t._replace(objs=put(t.objs, place, obj._replace(state="failed")))
        elif c.mode == "set":
            inc = min(obj.slots[0][0] + 1, MOST_INC)
            for t in self.end_all(s, place):
                yield t._replace(objs=put(t.objs, place, Obj("active", ((inc, "P"),) * c.ranks)))
        else:
            slot = (min(obj.slots[rank][0] + 1, MOST_INC), "P")
            yield s._replace(objs=put(s.objs, place, Obj("active", put(obj.slots, rank, slot))))
