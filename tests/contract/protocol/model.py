"""Every step that can happen next. What processes do is asked of `launcher.protocol.decide`; `world` holds the store,
the backend and the processes; here are time, faults and people."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.protocol import decide, reaping, steps
from launcher.protocol.facts import newest_checkpoint, same_placement, silent
from launcher.reasons import EXIT_PREEMPTED, RULES, Reason
from tests.contract.protocol.states import (
    BEATS,
    ENDED,
    EXITED_0,
    IDLE,
    QUIET,
    QUIET_CLAIM,
    RUNS,
    Att,
    Obj,
    Proc,
    State,
    Sub,
)
from tests.contract.protocol.world import ADOPTED, AGES, World, find, order, put

Step = tuple[str, State, bool, tuple[str, ...]]  # label, next state, whether it is no fault, properties broken


class Model(World):
    # everything that can happen

    def next(self, s: State) -> Iterator[Step]:
        for label, after, good, broken in self._next(s):
            t = self.started(after)
            yield label, t, good, (*broken, *self.check(s, t))

    def check(self, s: State, t: State) -> tuple[str, ...]:
        broken = []
        live = [q for q in t.procs if q.child == RUNS]
        for at, q in enumerate(live):
            for other in live[:at]:
                excused = any(x.orphan and (x.cut or x.excused) for x in (q, other))
                if (q.n != other.n or q.rank == other.rank) and not excused:
                    broken.append("TWO LIVE COMMANDS")
        if len(t.atts) > len(s.atts):
            if (
                sum(not att.move for att in s.atts)
                >= self.c.policy.retries + self.c.policy.infrastructure * (self.c.steps + 1) + 1
            ):
                broken.append("UNBOUNDED ATTEMPTS")
            asked = t.atts[-1].move and s.faults != t.faults  # by a person
            if s.atts and not asked and not {"cut", "force", "freeze"} & set(self.names):
                leader = self.owner(s, len(s.atts), 0)
                exited = s.atts[-1].exits[0] not in (None, Reason.SUCCEEDED)
                if leader and leader.child and not exited and s.result is None:
                    broken.append("A HEALTHY ATTEMPT WAS SUPERSEDED")
        if self.c.ordered and any(obj.state == "active" for obj in t.objs[self.turn(t) + 1 :]):
            broken.append("A BACKEND GOT THE RUN BEFORE ITS TURN")
        return tuple(broken)

    def one_too_many(self, s: State, number: int) -> tuple[str, ...]:
        """Attempt `number` has just found the earlier ones over: may there be another?"""
        earlier = tuple(att for att in s.atts[: number - 1] if not att.move)
        reasons = [
            max((r for r in a.exits if r), key=lambda r: RULES[r].severity, default=Reason.LOST) for a in earlier
        ]
        broken = []
        may = (*self.c.policy.again, *(reason for reason, rule in RULES.items() if rule.again), Reason.SUCCEEDED)
        if any(reason not in may for reason in reasons):
            broken.append("ATTEMPT AFTER A REASON THAT IS NEVER TRIED AGAIN")
        if sum(RULES[reason].counts for reason in reasons) > self.c.policy.retries:
            broken.append("MORE ATTEMPTS THAN RETRIES ALLOW")
        if self.spent(earlier):
            broken.append("AN ATTEMPT BEYOND THE BUDGET")
        return tuple(broken)

    def _next(self, s: State) -> Iterator[Step]:
        yield from self.backend(s)
        yield from self.time(s)
        for q in s.procs:
            name = f"{'ABCD'[q.place]}{q.rank}#{q.inc}"
            yield from self.process(s, q, name)
            yield from self.process_faults(s, q, name)
        yield from self.people(s)

    def backend(self, s: State) -> Iterator[Step]:
        for place, obj in enumerate(s.objs):
            if obj.state != "active":
                continue
            for rank, (inc, state) in enumerate(obj.slots):
                if state == "P" and self.c.starts and not self.eager:
                    if place and self.c.late and not any(att.exits[0] for att in s.atts):
                        continue
                    if any(q.place == place and q.rank == rank and not q.orphan for q in s.procs):
                        continue
                    t = self.with_proc(s, place, rank, inc)
                    yield f"backend {'ABCD'[place]} starts rank {rank} (#{inc})", t, True, ()
            if self.left(s, "gone"):
                for t in self.end_all(self.spend(s, "gone"), place):
                    t = t._replace(objs=put(t.objs, place, obj._replace(state="failed")))
                    yield f"backend {'ABCD'[place]} GIVES UP", t, False, ()

    def time(self, s: State) -> Iterator[Step]:
        for n, att in enumerate(s.atts, 1):
            for rank, claim in enumerate(att.claims):
                if claim is None or att.exits[rank] is not None or att.beats[rank] in (QUIET, QUIET_CLAIM):
                    continue
                q = self.owner(s, n, rank)
                silent_one = q is not None and (q.cut or q.frozen) and (q.child != RUNS or not self.fences)
                if q is not None and q.n == n and not silent_one:
                    continue
                quiet = QUIET if att.beats[rank] == BEATS else QUIET_CLAIM
                if quiet == QUIET_CLAIM and not silent(*AGES[quiet], 1.0, self.rules):
                    continue
                t = self.att(s, n, beats=put(att.beats, rank, quiet))
                yield f"rank {rank} of attempt {n} has been quiet for long", t, True, ()
            open_ends = any(claim and not reason for claim, reason in zip(att.claims, att.exits, strict=True))
            if n < len(s.atts) and not att.settled and open_ends:
                if self.yields and any(q.n <= n and q.child == RUNS and not q.cut for q in s.procs):
                    continue
                yield (
                    f"a beat and the kill time have passed since claim {n + 1}",
                    self.att(s, n, settled=True),
                    True,
                    (),
                )

        if self.c.policy.budget is not None and not self.spent(s.atts):
            for q in s.procs:
                if q.rank == 0 and q.n and q.child == RUNS and not q.frozen:
                    t = self.att(s, q.n, held=s.atts[q.n - 1].held + 1)
                    yield f"attempt {q.n} is billed for another unit of time", t, True, ()

    # one process

    def process(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        if q.frozen:
            yield f"{name} wakes up", self.proc(s, q, frozen=False), True, ()
            if q.child == RUNS and self.fences:
                yield f"{name}: its leash ends the command", self.proc(s, q, child=ENDED), True, ()
            return
        if q.child == ENDED and q.pc == "run":
            yield from self.awake(s, q, name)
            return
        if q.cut:
            yield f"{name} reaches the store again", self.proc(s, q, cut=False), True, ()
            if q.n and q.pc != "end" and self.fences:
                yield from self.fencing(s, q, name)
            if q.pc == "end":
                for t in self.leave(s, q, 75):
                    yield f"{name} gives up, the store is away", t, True, ()
            yield from self.command(s, q, name)
            return
        quiet = q.n and s.atts[q.n - 1].beats[q.rank] in (QUIET, QUIET_CLAIM) and q.pc != "end" and self.fences
        if q.n and not quiet and s.atts[q.n - 1].beats[q.rank] != BEATS and s.atts[q.n - 1].exits[q.rank] is None:
            t = self.att(s, q.n, beats=put(s.atts[q.n - 1].beats, q.rank, BEATS))
            yield f"{name} beats", t, True, ()
        if q.pc == "start":
            yield from self.starting(s, q, name)
        elif q.pc == "act":
            yield from self.acting(s, q, name)
        elif q.pc == "end":
            yield from self.endings(s, q, name)
        else:
            if s.atts[q.n - 1].beats[q.rank] in (QUIET, QUIET_CLAIM) and self.fences:
                yield from self.fencing(s, q, name)  # its own clock says so before anybody else may think it gone
                return
            for stop in self.stops(s, q):
                t = self.proc(s, q, child=IDLE, pc="end", mem=stop.reason)
                if stop.gone is not None:
                    t = self.att(t, q.n, broken=True)
                yield f"{name} stops: {stop.message}", t, True, ()
            if q.pc == "form":
                yield from self.forming(s, q, name)
            elif q.pc == "settle":
                yield from self.settling(s, q, name)
            elif q.pc == "before":
                yield from self.checking(s, q, name)
            else:
                yield from self.command(s, q, name)

    def fencing(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        stop = decide.fence(1.0, 0.0, self.rules)
        assert stop is not None
        yield f"{name} fences itself", self.proc(s, q, child=IDLE, pc="end", mem=stop.reason), True, ()

    def awake(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        """Its command was ended while it slept. Its own clock says so, unless that slept as well; a command that is
        asked to end may exit with 0."""
        if self.fences:
            yield from self.fencing(s, q, name)
        if len(s.atts) > q.n or not self.fences:
            for reason in (Reason.USER_ERROR, Reason.SUCCEEDED):
                yield f"{name} sees the end of its command: {reason}", self.proc(s, q, pc="end", mem=reason), True, ()

    def starting(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        last = len(s.atts)
        leader = self.owner(s, last, 0) if last else None
        beating = leader is not None and not leader.cut and s.atts[-1].beats[0] == BEATS and s.atts[-1].exits[0] is None
        turn = q.place if self.c.ordered else 0
        for moved in (False, True) if beating else (False,):
            step = self.start(self.seen(s, q, moved), q.rank, s.works, q.served, self.rules, turn)
            match step:
                case steps.Wait():
                    if q.served is not None and "served" in self.names:  # it looks again after a wait
                        yield f"{name} waits", self.proc(s, q, served=None), True, ()
                case steps.LookForWork():
                    yield f"{name} looks for the work: {s.served}", self.proc(s, q, served=s.served), True, ()
                case steps.Leave(code, reason):
                    broken: tuple[str, ...] = ()
                    if reason is Reason.DUPLICATE and not q.orphan and (leader is None or leader.orphan):
                        broken = ("GAVE UP THOUGH NOBODY ELSE RUNS",)
                    for t in self.leave(s, q, code):
                        yield f"{name} leaves with {code}: {step.message}", t, True, broken
                case _:
                    broken = self.contradicts(s, step)
                    yield f"{name} reads, decides {_name(step)}", self.proc(s, q, pc="act", mem=step), True, broken

    def acting(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        """What was decided is done, perhaps long after."""
        back = {"pc": "start", "mem": None}
        match q.mem:
            case steps.Finish(verdict):
                t, broken = self.put_result(s, verdict)
                yield f"{name} puts result {verdict.outcome}", self.proc(t, q, **back), True, broken
            case steps.Adopt():
                t, broken = self.put_result(s, ADOPTED)
                yield f"{name} adopts", self.proc(t, q, **back), True, broken
            case steps.PutWorks():
                yield f"{name} puts works/", self.proc(s._replace(works=True), q, **back), True, ()
            case steps.Break(number):
                yield f"{name} puts broken {number}", self.proc(self.att(s, number, broken=True), q, **back), True, ()
            case steps.PutClaim(number):
                yield from self.claiming(s, q, name, number)

    def claiming(self, s: State, q: Proc, name: str, number: int) -> Iterator[Step]:
        ranks = self.c.ranks
        there = s.atts[number - 1].claims[q.rank] if len(s.atts) >= number else None
        if there is not None and there != (q.place, q.inc):
            yield f"{name}: claim {number} is taken", self.proc(s, q, pc="start", mem=None), True, ()
            return
        t = s
        if there is None and q.rank == 0:
            if len(s.atts) >= number:
                yield f"{name}: claim {number} is taken", self.proc(s, q, pc="start", mem=None), True, ()
                return
            new = Att(put((None,) * ranks, 0, (q.place, q.inc)), (self.first_beat,) * ranks, (None,) * ranks)
            t = s._replace(atts=(*s.atts, new))
        elif there is None:
            t = self.att(s, number, claims=put(s.atts[number - 1].claims, q.rank, (q.place, q.inc)))
        pc = "form" if ranks > 1 else "settle"
        yield f"{name} claims {number}", self.proc(t, q, pc=pc, mem=None, n=number), True, ()
        if there is None and self.left(s, "lost"):
            yield f"{name} claims {number}, the answer is LOST", self.spend(t, "lost"), False, ()

    def forming(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        att = s.atts[q.n - 1]
        if att.formed:
            yield f"{name} sees attempt {q.n} formed", self.proc(s, q, pc="settle"), True, ()
        elif q.rank == 0 and all(att.claims):
            places = {self.placement(*claim) for claim in att.claims if claim}
            mixed = any(not same_placement(one, self.placement(q.place, q.inc)) for one in places)
            broken = ("AN ATTEMPT OF TWO PLACEMENTS",) if mixed else ()
            yield f"{name} puts formed {q.n}", self.proc(self.att(s, q.n, formed=True), q, pc="settle"), True, broken

    def settling(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        run = self.seen(s, q)
        step = self.settle(run, q.n, self.rules)
        if isinstance(step, steps.Go):
            broken = self.one_too_many(s, q.n)
            found = newest_checkpoint(run, q.n, self.rules)
            t = self.proc(s, q, pc="before", step=found[1] if found else -1)
            yield f"{name}: earlier attempts are over, goes on from step {found[1] if found else -1}", t, True, broken
        elif isinstance(step, steps.Finish):
            t, broken = self.put_result(s, step.verdict)
            broken = (*broken, *self.contradicts(s, step))
            yield f"{name} puts result of attempt {step.verdict.attempt}", t, True, broken

    def checking(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        step = self.before(self.seen(s, q), q.n, q.rank, self.rules)
        if isinstance(step, steps.Finish):
            t, broken = self.put_result(s, step.verdict)
            yield f"{name} puts result of attempt {step.verdict.attempt}", t, True, broken
        elif isinstance(step, steps.Stop):
            yield f"{name} stops: {step.message}", self.proc(s, q, pc="end", mem=step.reason), True, ()
        else:
            found = []
            if s.cancel:
                found.append("A COMMAND STARTED AFTER CANCEL")
            if s.result:
                found.append("A COMMAND STARTED AFTER THE RESULT")
            if self.c.ordered and q.place != self.turn(s):
                found.append("A COMMAND STARTED AT A BACKEND THAT THE RUN HAS LEFT")
            if q.late and q.rank == 0:
                found.append("WORK THAT ANOTHER RUN HAS DONE IS COMPUTED AGAIN")
            if any(self.whole(att) for att in s.atts):
                found.append("COMPLETE WORK IS COMPUTED AGAIN")
            if q.step < max((att.checkpoint for att in s.atts[: q.n - 1]), default=-1):
                found.append("STEPS BEFORE THE LAST CHECKPOINT ARE COMPUTED AGAIN")
            yield f"{name}: COMMAND of attempt {q.n} starts", self.proc(s, q, pc="run", child=RUNS), True, tuple(found)

    def command(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        """What the user's command does, reachable store or not."""
        if q.child != RUNS:
            return
        if self.spent(s.atts):  # its own clock says so, reachable store or not
            t = self.proc(s, q, child=IDLE, pc="end", mem=Reason.BUDGET)
            yield f"{name} stops: the budget is spent", t, True, ()
        if q.rank < self.c.leading:
            yield f"{name}: command exits 0", self.proc(s, q, child=EXITED_0, pc="end", mem=Reason.SUCCEEDED), True, ()
        if q.rank == 0 and not q.cut and q.step + 1 < self.c.steps:
            t = self.proc(self.att(s, q.n, checkpoint=q.step + 1), q, step=q.step + 1)
            yield f"{name}: checkpoint {q.step + 1} is complete", t, True, ()
        for fault, reason in (
            ("user", Reason.USER_ERROR),
            ("memory", Reason.OUT_OF_MEMORY),
            ("never", Reason.CONFIG_ERROR),  # the command exits with 78
        ):
            if not self.left(s, fault):
                continue
            if q.rank >= self.c.leading and self.c.inplace:
                yield f"{name}: command dies, starts again in place", self.spend(s, fault), False, ()
            else:
                t = self.proc(self.spend(s, fault), q, child=IDLE, pc="end", mem=reason)
                yield f"{name}: command dies, {reason}", t, False, ()

    def endings(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        assert isinstance(q.mem, Reason)
        base = decide.Ending(self.seen(s, q), q.n, q.rank, q.mem)
        if q.rank == 0 and q.mem is Reason.SUCCEEDED and not s.atts[q.n - 1].outputs:
            yield f"{name} puts its manifests", self.att(s, q.n, outputs=True), True, ()
            return
        done = []
        for stop in (None, *self.stops(s, q)):
            step = self.ending(base._replace(stop=stop), s.works, self.rules)
            if step in done:
                continue
            done.append(step)
            match step:
                case steps.WriteExit(reason):
                    att = s.atts[q.n - 1]
                    wrong: tuple[str, ...] = ()
                    if q.child == ENDED and reason in (Reason.USER_ERROR, Reason.CONFIG_ERROR, Reason.SUCCEEDED):
                        wrong = ("AN EXIT TELLS OF THE COMMAND WHAT OTHERS DID TO IT",)
                    beats = put(att.beats, q.rank, BEATS)  # nobody asks any more
                    t = self.att(s, q.n, exits=put(att.exits, q.rank, reason), beats=beats)
                    yield f"{name} puts exit {reason}", self.proc(t, find(t, q), mem=reason), True, wrong
                case steps.Break(number):
                    yield f"{name} puts broken {number}", self.att(s, number, broken=True), True, ()
                case steps.Finish(verdict):
                    t, broken = self.put_result(s, verdict)
                    yield f"{name} puts result {verdict.outcome}", t, True, (*broken, *self.contradicts(s, step))
                case steps.PutWorks():
                    yield f"{name} puts works/", s._replace(works=True), True, ()
                case steps.Leave(code):
                    for t in self.leave(s, q, code):
                        yield f"{name} leaves with {code}: {step.message}", t, True, ()

    def process_faults(self, s: State, q: Proc, name: str) -> Iterator[Step]:
        if self.left(s, "crash"):
            for t in self.leave(self.spend(s, "crash"), q, -9):
                yield f"{name} CRASHES ({q.pc})", t, False, ()
        if self.left(s, "cut") and not q.cut:
            t = self.proc(self.spend(s, "cut"), q, cut=True, excused=q.child == RUNS)
            yield f"{name} is CUT OFF from the store ({q.pc})", t, False, ()
        if self.left(s, "freeze") and not q.frozen and q.n:
            yield f"{name} is FROZEN ({q.pc})", self.proc(self.spend(s, "freeze"), q, frozen=True), False, ()
        if self.left(s, "force") and not q.orphan:
            t = self.proc(self.spend(s, "force"), q, orphan=True)
            for t2 in self.slot_ends(t, q.place, q.rank, -9):
                yield f"{name} is FORCE-DELETED and lives on ({q.pc})", t2, False, ()
        if self.left(s, "term") and not q.orphan and not q.cut and not q.frozen:
            if q.n and q.pc != "end":
                t = self.proc(self.spend(s, "term"), q, child=IDLE, pc="end", mem=Reason.PREEMPTED)
                yield f"{name} gets SIGTERM ({q.pc})", t, False, ()
            elif q.pc == "start":
                for t in self.leave(self.spend(s, "term"), q, EXIT_PREEMPTED):
                    yield f"{name} gets SIGTERM ({q.pc})", t, False, ()

    # people: submit, cancel, status, reap

    def people(self, s: State) -> Iterator[Step]:
        if self.left(s, "cancel") and not s.cancel and s.result is None:
            # where nothing ever starts, only a person can end the run; the same if its file goes before its first start
            # (another cluster may have it)
            person = not self.c.starts or (not s.file and not s.atts)
            yield "cancel.json is put", self.spend(s, "cancel")._replace(cancel=True), person, ()
        if self.left(s, "served"):
            t = self.spend(s, "served")._replace(served=True, once_served=True)
            yield "ANOTHER RUN has done the work", t, False, ()
        if self.left(s, "deleted") and s.served:
            procs = tuple(sorted((q._replace(late=False) for q in s.procs), key=order))
            yield "its outputs are DELETED", self.spend(s, "deleted")._replace(served=False, procs=procs), False, ()
        if s.cancel and not s.told:
            yield from self.tell_backend(s._replace(told=True), "cancel tells the backend")
        for k, sub in enumerate(s.subs):
            yield from self.submitting(s, k, sub)
        yield from self.reaping(s)
        yield from self.waiting(s)
        if self.c.ordered:
            yield from self.moving(s)
        if self.c.stranger:
            yield from self.asking_elsewhere(s)
        if self.c.applied:
            yield from self.gitops(s)

    def gitops(self, s: State) -> Iterator[Step]:
        """What applied the run makes its object again; time passes once nobody does."""
        for fault, file in (("removed", s.file), ("pruned", False)):
            if self.left(s, fault) and s.file:
                label = "somebody DELETES the object" if file else "its file is REMOVED, and the object is pruned"
                for _, t, _, _ in self.tell_backend(self.spend(s, fault)._replace(file=file), ""):
                    yield label, t, False, ()
        for place, obj in enumerate(s.objs):
            if obj.state == "away" and s.file:
                slots = tuple((inc + 1, "P") for inc, _ in obj.slots)  # a new object: nothing proves the old one dead
                yield "it is applied again", s._replace(objs=put(s.objs, place, Obj("active", slots))), True, ()
        # the bound is longer than the time until the object is made again, and heartbeats hold it off
        if not s.file and not s.quiet and not s.procs and all(obj.state == "away" for obj in s.objs):
            yield "nothing was heard of it for long", s._replace(quiet=True), True, ()

    def tell_backend(self, s: State, label: str) -> Iterator[Step]:
        states = [s]
        for place, obj in enumerate(s.objs):
            if obj.state == "active":
                states = [
                    t._replace(objs=put(t.objs, place, obj._replace(state="away" if self.c.applied else "deleted")))
                    for u in states
                    for t in self.end_all(u, place)
                ]
        for t in states:
            yield label, t, True, ()

    def submitting(self, s: State, k: int, sub: Sub) -> Iterator[Step]:
        def now(t: State, pc: str, known: decide.Submission | None = None) -> State:
            return t._replace(subs=put(t.subs, k, Sub(pc, known)))

        name = f"submitter {k}"
        if sub.pc == "dead":
            yield f"{name}: the same command again", now(s, "read"), True, ()
            return
        if sub.pc == "done":
            return
        if self.left(s, "submitter") and sub.pc == "go":
            yield f"{name} CRASHES", now(self.spend(s, "submitter"), "dead"), False, ()
        if sub.pc == "read":
            served = None if "served" in self.names else False
            known = decide.Submission(self.seen(s, None), s.job, served=served, turn=self.turn(s))
            yield f"{name} reads the run", now(s, "go", known), True, ()
            return
        known = sub.known
        assert known is not None
        place = known.turn
        obj = s.objs[place]
        match decide.submit(known, self.rules):
            case steps.PutJob():
                yield f"{name} puts job.json", now(s._replace(job=True), "go", known._replace(job=True)), True, ()
            case steps.LookUp():
                there = decide.BackendObject(obj.state != "none")
                yield f"{name} looks up: {obj.state}", now(s, "go", known._replace(object=there)), True, ()
            case steps.LookForWork():
                yield f"{name} looks for the work: {s.served}", now(s, "go", known._replace(served=s.served)), True, ()
            case steps.Adopt():
                t, broken = self.put_result(s, ADOPTED)
                yield f"{name} adopts", now(t, "go", known._replace(run=self.seen(t, None))), True, broken
            case steps.Submit():
                t = s
                if obj.state == "none":
                    t = s._replace(objs=put(s.objs, place, obj._replace(state="active")))
                after = known._replace(submitted=True, run=self.seen(t, None))
                yield f"{name}: backend.submit, reads cancel.json", now(t, "go", after), True, ()
                if self.left(s, "lost"):
                    yield f"{name}: backend.submit, the answer is LOST", now(self.spend(t, "lost"), "dead"), False, ()
            case steps.CancelThere():
                yield from self.tell_backend(now(s, "done"), f"{name}: cancelled meanwhile, tells the backend")
            case steps.Finish(verdict):
                t, broken = self.put_result(s, verdict)
                after = known._replace(run=self.seen(t, None))
                yield f"{name} puts result {verdict.outcome}", now(t, "go", after), True, broken
            case _:
                yield f"{name} is done", now(s, "done"), True, ()

    def reaping(self, s: State) -> Iterator[Step]:
        """A reaper may die after each of its steps: the next one reads everything again."""
        if s.reaper is not None:
            t, broken = self.put_result(s._replace(reaper=None), s.reaper)
            yield f"reap puts result {s.reaper.outcome}", t, True, broken
            return
        turn = self.turn(s)
        step = None if s.result is not None else self.reap(self.situation(s), self.rules)
        if s.result is not None or isinstance(step, steps.EndFormer):
            for place in range(turn):
                for t in self.taken_away(s, place):
                    yield f"backend {'ABCD'[place]} is told that the run has left", t, True, ()
        if s.result is not None:
            works = self.finish(self.seen(s, None), None, s.works, None, self.rules)
            if isinstance(works, steps.PutWorks) and (self.c.slow_reaper or all(sub.pc == "done" for sub in s.subs)):
                yield "reap puts works/", s._replace(works=True), True, ()
            return
        if isinstance(step, steps.SubmitNext):
            if s.objs[turn].state == "none":
                t = s._replace(objs=put(s.objs, turn, s.objs[turn]._replace(state="active")))
                yield f"the run is submitted to backend {'ABCD'[turn]}", t, True, ()
            return
        if isinstance(step, steps.Move):
            if s.mover is None:
                yield f"a reaper decides to move it: {step.reason}", s._replace(mover=step), True, ()
            return
        if any(sub.pc != "done" for sub in s.subs) and not self.c.slow_reaper:
            return
        if isinstance(step, steps.Finish):
            yield from self.ending_by_reaper(s, step)
        elif isinstance(step, steps.NoteDeletion):
            yield f"reap notes that it deletes the object: {step.reason}", s._replace(noted=True), True, ()
        elif isinstance(step, steps.EndObject):
            for place in range(len(s.objs)):
                for t in self.taken_away(s, place):
                    yield "reap deletes the object", t, True, ()

    def situation(self, s: State) -> reaping.Situation:
        """What a reaper reads. It has no memory: each step is taken by another one."""
        run, turn = self.seen(s, None), self.turn(s)
        objs = s.objs if not self.c.ordered else (s.objs[turn],)
        states = [obj.state for obj in objs]
        evidence = Reason.CAPACITY if self.c.ordered else Reason.UNSCHEDULABLE
        there = any(state in ("active", "complete", "failed") for state in states)
        absent = None
        if self.c.applied and all(state == "away" for state in states):
            absent = decide.GONE_FOR_GOOD if s.quiet else 0.0
        return reaping.Situation(
            run=run,
            active="active" in states,
            evidence=evidence if "failed" in states else None,
            own=there or bool(run.since_move),  # of a run that never started, another cluster may have the object
            absent=absent,
            object=there,
            waited=1.0 if s.waited else 0.0,
            start_deadline=0.5,
            deletion=Reason.UNSCHEDULABLE if s.noted else None,
            left=all(obj.state != "active" for obj in s.objs[:turn]),
        )

    def ending_by_reaper(self, s: State, step: steps.Finish) -> Iterator[Step]:
        wrong = (*self.contradicts(s, step), *self.too_early(s, step))
        if self.c.slow_reaper:
            yield f"reap decides: {step.verdict.outcome}", s._replace(reaper=step.verdict), True, wrong
            return
        t, broken = self.put_result(s, step.verdict)
        yield f"reap puts result {step.verdict.outcome}", t, True, (*broken, *wrong)

    def taken_away(self, s: State, place: int) -> Iterator[State]:
        """The object of a place is deleted, if it is active."""
        if s.objs[place].state == "active":
            for t in self.end_all(s, place):
                yield t._replace(objs=put(t.objs, place, t.objs[place]._replace(state="deleted")))

    def waiting(self, s: State) -> Iterator[Step]:
        """The time for the first process of a backend passes."""
        if not self.left(s, "waited") or s.waited or s.result is not None:
            return
        if self.situation(s).active and not self.seen(s, None).since_move:
            yield "it WAITED TOO LONG", self.spend(s, "waited")._replace(waited=True), False, ()

    def moving(self, s: State) -> Iterator[Step]:
        """Somebody moves the run. A reaper's put may come long after it decided, and whoever moves it may die before
        the backends are told; then a reaper tells them."""
        if s.mover is not None:
            t = s._replace(mover=None)
            number = s.mover.attempt or len(s.atts) + 1
            if len(s.atts) >= number:
                yield f"the move comes too late: claim {number} is taken", t, True, ()
                return
            yield f"claim {number} moves the run", self.moved(t), True, ()
            return
        active: bool | None = s.objs[self.turn(s)].state == "active"
        run = self.seen(s, None)
        if self.left(s, "asked") and (step := decide.move(run, active, None, self.rules, asked=True)) is not None:
            number = step.attempt or len(s.atts) + 1
            yield f"a person MOVES the run by claim {number}", self.moved(self.spend(s, "asked")), False, ()

    def moved(self, s: State) -> State:
        empty = (None,) * self.c.ranks
        return s._replace(atts=(*s.atts, Att(empty, (QUIET,) * self.c.ranks, empty, move=True)), waited=False)

    def asking_elsewhere(self, s: State) -> Iterator[Step]:
        """`status` in another folder, or with another cluster: nothing of the run is there."""
        step = self.finish(self.seen(s, None), False, s.works, None, self.rules, own=False)
        if isinstance(step, steps.Finish):
            t, broken = self.put_result(s, step.verdict)
            broken = (*broken, *self.contradicts(s, step), *self.too_early(s, step))
            yield f"a stranger puts result {step.verdict.outcome}", t, True, broken

    def over(self, s: State) -> bool:
        """Nothing runs, nothing is billed, and the run has its one record."""
        idle = not s.procs and all(obj.state != "active" for obj in s.objs)
        told = s.result is not None and (s.result.outcome != "succeeded" or s.works or s.result == ADOPTED)
        return idle and told and all(sub.pc == "done" for sub in s.subs)


def _name(step: object) -> str:
    match step:
        case steps.Finish(verdict):
            return f"result {verdict.outcome} (attempt {verdict.attempt})"
        case steps.PutClaim(number):
            return f"claim {number}"
        case steps.Break(number):
            return f"broken {number}"
    return type(step).__name__
