"""The protocol's decisions as pure functions: facts in, the next step out. They use no clock, no store and no
randomness. docs/explanation/protocol.md has them as one table.

Each function takes the rules to apply: all of them, unless the exhaustive check (tests/contract/protocol) leaves one
out. `launcher.runtime.member` and `launcher.verbs.submit_steps` read the store, ask here for the next step, take it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, NamedTuple

from launcher.protocol.facts import (
    AttemptFacts,
    Rules,
    RunFacts,
    Verdict,
    deserted,
    ended,
    exhausted,
    finished,
    reason_of,
    verdict,
)
from launcher.protocol.rules import ALL, Rule
from launcher.protocol.steps import (
    Adopt,
    Attached,
    Break,
    CancelThere,
    Finish,
    Go,
    Leave,
    LookForWork,
    LookUp,
    Move,
    PutClaim,
    PutJob,
    PutWorks,
    Refuse,
    ReportResult,
    Stop,
    Submit,
    Wait,
    WriteExit,
)
from launcher.reasons import EXIT_AGAIN, EXIT_DONE, EXIT_NEVER, EXIT_PREEMPTED, EXIT_USER, RULES, Reason

OVERTAKEN: Final = "the next attempt has begun"
CANCELLED: Final = "the run was cancelled"
# seconds without a sign of life after which nobody makes the object of an applied run again: longer than the intervals
# of Flux (10 min in k8s/gitops) and Argo CD (3 min)
GONE_FOR_GOOD: Final = 1800.0
# ends of an object after which the run may go on at the next of its backends
NO_PLACE: Final = (Reason.CAPACITY, Reason.QUOTA, Reason.UNSCHEDULABLE, Reason.PREEMPTED, Reason.EVICTED)
# what a backend says of an object whose machine was taken away, if it says anything
MACHINE_GONE: Final = (None, Reason.INFRASTRUCTURE)
DISPLACED: Final = (Reason.PREEMPTED, Reason.EVICTED)


def leaving(outcome: str, rules: Rules = ALL) -> Leave:
    """How a process exits when its run has its result.json."""
    if outcome == "succeeded":
        return Leave(EXIT_DONE, Reason.SUCCEEDED, "the run has succeeded")
    reason = Reason.CANCELLED if outcome == "cancelled" else Reason.LOST
    return Leave(_code(EXIT_NEVER, rules), reason, f"the run is {outcome}")


def _code(code: int, rules: Rules) -> int:
    """The exit code. Without Rule.CODES: that of a command killed by a signal."""
    return EXIT_PREEMPTED if code == EXIT_NEVER and Rule.CODES not in rules else code


# start


def start(
    run: RunFacts, member: int, works: bool = True, served: bool | None = False, rules: Rules = ALL, turn: int = 0
) -> Leave | Finish | PutWorks | LookForWork | Adopt | PutClaim | Break | Wait:
    """The next step of a process that has no claim yet.

    works   the works/ record is in the store, or is not needed
    served  another run has done this work and may be adopted; None: not looked for yet
    turn    of the backend that started this process, in the order of the run's job
    """
    if run.result is not None:
        if _lacks_works(run, works, rules):
            return PutWorks()
        return leaving(run.result, rules)
    end = verdict(run, rules)
    if end is not None:
        return Finish(end) if Rule.ONE_END in rules or end.outcome == "succeeded" else leaving(end.outcome, rules)
    last = run.attempts[-1] if run.attempts else None
    live = last is not None and not ended(last)
    if run.cancelled:
        if Rule.ONE_END in rules and not live:
            return Finish(Verdict("cancelled", run.last, Reason.CANCELLED))
        return leaving("cancelled", rules)  # the leader of the live attempt writes the result after its command ended
    if run.turn != turn and Rule.TURN in rules:
        moved = f"it is the turn of the run's backend {run.turn + 1}; this is its backend {turn + 1}"
        return Leave(EXIT_NEVER, Reason.LOST, moved)
    if last is None or not live:
        if member > 0:
            return Wait("for the leader")
        step = _adopting(served, rules)
        return PutClaim(len(run.attempts) + 1) if step is None else step
    if member > 0:
        return _join(len(run.attempts), last, member, rules)
    if Rule.WAIT not in rules or (last.moved and not last.own):
        return Leave(EXIT_NEVER, Reason.DUPLICATE, f"attempt {len(run.attempts)} of this run is alive at another place")
    return Wait(f"attempt {len(run.attempts)} may still be alive")


def _adopting(served: bool | None, rules: Rules) -> LookForWork | Adopt | None:
    """The step before anything is computed: another run may have done the work already."""
    if served is False or Rule.ADOPT not in rules:
        return None
    return Adopt() if served else LookForWork()


def _lacks_works(run: RunFacts, works: bool, rules: Rules) -> bool:
    return run.result == "succeeded" and not run.adopted and not works and Rule.FINISH in rules


def _join(number: int, last: AttemptFacts, member: int, rules: Rules) -> PutClaim | Break | Wait:
    if last.claimed[member]:
        # only an earlier process of this member can have made this claim
        if last.gone[member] and not last.broken and last.exits[member] is None and Rule.WATCH in rules:
            return Break(number, member, "its process is gone")
        return Wait(f"attempt {number} has to end first")
    if not last.broken and (last.own or Rule.JOIN not in rules):
        return PutClaim(number)
    return Wait("for this placement's leader")


# before the command


def settle(run: RunFacts, number: int, rules: Rules = ALL) -> Finish | Wait | Go:
    """Waits until every earlier attempt is over. After Go the newest checkpoint can be chosen: none will be added."""
    end = finished(run, rules) or exhausted(run._replace(attempts=run.attempts[: number - 1]), rules)
    if end is not None:
        return Finish(end)
    for earlier, attempt in enumerate(run.attempts[: number - 1], 1):
        watched = len(attempt.exits) if Rule.EVERY_MEMBER in rules else 1
        for member in range(watched):
            if not attempt.claimed[member] or attempt.exits[member] is not None:
                continue
            if Rule.REREAD in rules and not attempt.gone[member]:
                return Wait(f"attempt {earlier} still beats")
            if Rule.GIVE_TIME in rules and not attempt.settled:
                return Wait(f"attempt {earlier} gets the time to stop")
    return Go()


def before_command(run: RunFacts, number: int, member: int, rules: Rules = ALL) -> Finish | Stop | Go:
    """The last check before the command starts. `run` was read after everything else was prepared."""
    if Rule.RECHECK not in rules:
        return Go()
    done = finished(run, rules)
    if done is not None and run.result is None:
        return Finish(done)
    mine = run.attempts[number - 1]
    helper = member >= run.leading
    stop = beat(BeatFacts(run.result, run.cancelled, len(run.attempts) > number, mine.broken, helper), rules)
    if stop is not None:
        return stop
    for other, reason in enumerate(mine.exits):
        if other != member and reason is not None and (reason is not Reason.SUCCEEDED or other == 0):
            return Stop(_reason_of_other(reason), f"another rank ended: {reason}", other)
    return Go()


# while it runs


class BeatFacts(NamedTuple):
    """What is read with each heartbeat: four keys, and the heartbeat or exit of one other member, each in turn."""

    result: str | None = None
    cancelled: bool = False
    successor: bool = False  # the next attempt is claimed
    broken: bool = False
    helper: bool = False  # this member is not of the leading role
    watched: int | None = None  # the other member that was read
    exit: Reason | None = None  # the reason in that member's exit
    gone: bool = False  # that member is silent


def beat(glance: BeatFacts, rules: Rules = ALL) -> Stop | None:
    """Whether the command has to end."""
    if glance.result is not None:
        reason = Reason.CANCELLED if glance.result == "cancelled" else Reason.LOST
        if glance.result == "succeeded" and glance.helper:
            reason = Reason.SUCCEEDED  # stopped because the leading role is done, which is no failure
        return Stop(reason, f"the run is {glance.result}")
    if glance.cancelled:
        return Stop(Reason.CANCELLED, CANCELLED)
    if glance.successor and Rule.SUCCESSOR in rules:
        return Stop(Reason.LOST, OVERTAKEN)
    if Rule.WATCH not in rules:
        return None
    if glance.broken:
        return Stop(Reason.INFRASTRUCTURE, "another rank ended the attempt")
    if glance.watched is None:
        return None
    if glance.exit is not None and glance.exit is not Reason.SUCCEEDED:
        return Stop(_reason_of_other(glance.exit), f"another rank ended: {glance.exit}", glance.watched)
    if glance.exit is None and glance.gone:
        return Stop(Reason.INFRASTRUCTURE, "another rank is gone", glance.watched)
    return None


def _reason_of_other(reason: Reason) -> Reason:
    """The reason of a rank that stops because another rank ended. It is never worse than the other rank's reason."""
    return reason if RULES[reason].severity <= RULES[Reason.PREEMPTED].severity else Reason.INFRASTRUCTURE


def fence(since_beat: float, limit: float, rules: Rules = ALL) -> Stop | None:
    """Ends the command of a runtime that could not reach the store for longer than `limit` seconds. `since_beat`:
    seconds since the last successful heartbeat began, by a clock that goes on while the machine is suspended."""
    if since_beat <= limit or Rule.SELF_FENCE not in rules:
        return None
    return Stop(Reason.STORE_UNREACHABLE, f"no beat reached the store for {since_beat:.0f} s")


def deadline(running: float, limit: float | None) -> Stop | None:
    """Ends a command that has reached its deadline. `running`: seconds it has run, all attempts together."""
    if limit is None or running < limit:
        return None
    return Stop(Reason.DEADLINE, f"the command has run for {limit:g} s over all attempts")


def budget(held: float, limit: float | None) -> Stop | None:
    """Ends a command whose run has spent its budget. `held`: seconds for which the attempts have held their machines,
    all together; `limit`: seconds for which the budget pays."""
    if limit is None or held < limit:
        return None
    return Stop(Reason.BUDGET, f"the budget is spent: it pays for {limit:.0f} s over all attempts")


def ceiling(spent: Decimal, amount: Decimal, currency: str) -> Stop | None:
    """Ends a command when its group has spent its ceiling.

    spent   the cost of all runs of the group, and of stopping those that still run
    amount  the group's ceiling
    """
    if spent < amount:
        return None
    return Stop(Reason.BUDGET, f"the runs of its group may cost {amount} {currency} together, and have")


def idle(seconds: float, limit: float | None) -> Stop | None:
    """Ends a command whose GPUs are idle. `seconds`: for which they have been idle; `limit`: None: for ever."""
    if limit is None or seconds < limit:
        return None
    return Stop(Reason.IDLE, f"the GPUs have done nothing for {seconds:.0f} s")


# the end


class Ending(NamedTuple):
    """A member whose command has ended, or never began. `run` was read after that."""

    run: RunFacts
    number: int
    member: int
    reason: Reason  # why this member ends
    stop: Stop | None = None  # the answer of `beat` now


def end(ending: Ending, works: bool = True, rules: Rules = ALL) -> WriteExit | Break | Finish | PutWorks | Wait | Leave:
    """The next step of a member that ends. Called again after each step."""
    run, number, member = ending.run, ending.number, ending.member
    mine = run.attempts[number - 1]
    if mine.exits[member] is None:
        return _write_exit(ending, mine, rules)
    reason = mine.exits[member]
    assert reason is not None
    if run.result is not None:
        if _lacks_works(run, works, rules):
            return PutWorks()
        return leaving(run.result, rules)
    if reason is not Reason.SUCCEEDED and len(mine.exits) > 1 and not mine.broken and Rule.WATCH in rules:
        return Break(number, member, str(reason))
    if member == 0:
        return _leader(ending, reason, rules)
    if reason is not Reason.SUCCEEDED:
        return _again(run, reason, rules)
    return _stay(ending, mine, rules)


def _write_exit(ending: Ending, mine: AttemptFacts, rules: Rules) -> WriteExit | Wait:
    if len(ending.run.attempts) > ending.number and Rule.OVERTAKEN in rules:
        return WriteExit(Reason.LOST, OVERTAKEN)  # the next attempt may have killed the command: its exit means nothing
    if ending.reason is Reason.PREEMPTED and ending.run.cancelled:
        return WriteExit(Reason.CANCELLED, CANCELLED)  # the backend's SIGTERM came before the next look at cancel.json
    if ending.reason is not Reason.SUCCEEDED or ending.member > 0 or Rule.LEADER_LAST not in rules:
        return WriteExit(ending.reason)
    others = mine.exits[1 : ending.run.leading]
    if all(reason is Reason.SUCCEEDED for reason in others):
        return WriteExit(Reason.SUCCEEDED)
    if ending.stop is not None:
        return WriteExit(ending.stop.reason)
    return Wait("for the other leading ranks")


def _leader(ending: Ending, reason: Reason, rules: Rules) -> Finish | Wait | Leave:
    run = ending.run
    done = finished(run, ALL) if reason is Reason.SUCCEEDED else finished(run, rules)
    if done is not None:
        return Finish(done)
    if reason is Reason.SUCCEEDED and ending.stop is None:
        return Wait("for the other leading ranks")
    last = len(run.attempts) == ending.number
    if last and Rule.ONE_END in rules:
        final = exhausted(run, rules)
        if final is not None:
            return Finish(final)
        if run.cancelled:
            return Finish(Verdict("cancelled", ending.number, Reason.CANCELLED))
    return _again(run, reason, rules)


def _stay(ending: Ending, mine: AttemptFacts, rules: Rules) -> Wait | Leave:
    """A rank whose command exited 0 has nothing left to do, but its container must not end before the run does."""
    if Rule.STAY not in rules:
        return Leave(EXIT_DONE, Reason.SUCCEEDED, "done")
    failed = mine.exits[0] is not None and mine.exits[0] is not Reason.SUCCEEDED
    superseded = len(ending.run.attempts) > ending.number
    if failed or superseded or mine.broken or (mine.exits[0] is None and mine.gone[0]):
        return Leave(EXIT_AGAIN, Reason.INFRASTRUCTURE, "the attempt ended without this rank's doing")
    return Wait("for the end of the run")


def _again(run: RunFacts, reason: Reason, rules: Rules) -> Leave:
    """How a member exits while its run has no result. The exit code says whether the backend may start it again."""
    code = RULES[reason].code
    assert code is not None
    if reason is Reason.SUCCEEDED:
        return Leave(EXIT_AGAIN, Reason.LOST, "the attempt ended without this rank's doing")
    if reason in run.policy.again:
        code = EXIT_USER if RULES[reason].counts else EXIT_AGAIN
    if code != EXIT_NEVER and exhausted(run, rules) is not None:
        code = EXIT_NEVER
    return Leave(_code(code, rules), reason, str(reason))


# for others


def finish(
    run: RunFacts,
    active: bool | None,
    works: bool = True,
    evidence: Reason | None = None,
    rules: Rules = ALL,
    *,
    own: bool = True,
    absent: float | None = None,
) -> Finish | PutWorks | None:
    """The record that `status`, `submit` and `reap` have to write; None if there is none to write. An end that follows
    from the records alone is written whatever the backend says.

    active    an object on the backend runs or may still start a process; None: unknown
    evidence  why the backend's object ended, where no process of the run could write it
    own       the backend that was asked is the run's own place; any other knows nothing of the run
    absent    the run was applied without submit (GitOps), and its object is gone: seconds since its last sign of life
    """
    if run.result is not None:
        return PutWorks() if _lacks_works(run, works, rules) else None
    done = finished(run, rules)
    if done is not None:
        return Finish(done)
    if not own and Rule.OWN_PLACE in rules:
        active = active or None
    if active or Rule.ONE_END not in rules:
        return None
    number = run.last
    if run.attempts and not ended(run.attempts[-1]) and not (active is False and deserted(run.attempts[-1])):
        return None
    final = exhausted(run, rules)
    if final is not None:
        return Finish(final)
    if run.cancelled:
        return Finish(Verdict("cancelled", number, Reason.CANCELLED))
    if active is None:
        return None
    if Rule.NEXT_BACKEND in rules and move(run, active, evidence, absent=absent, rules=rules) is not None:
        return None
    if evidence is not None:
        return Finish(Verdict("failed", number, evidence))
    if run.since_move and absent is not None and Rule.COMES_BACK in rules:
        # no fault removes an object: somebody did, and whoever applies it would have made it again
        return Finish(Verdict("cancelled", number, Reason.CANCELLED)) if absent >= GONE_FOR_GOOD else None
    if run.since_move:
        return Finish(Verdict("failed", number, Reason.LOST))
    return None  # job.json is in the store, but the backend never got the run: it has to be submitted again


def move(
    run: RunFacts,
    active: bool | None,
    evidence: Reason | None = None,
    rules: Rules = ALL,
    *,
    own: bool = True,
    absent: float | None = None,
    asked: bool = False,
) -> Move | None:
    """The step that moves a run to the next of its backends, because it was preempted or has no place; None: it stays.

    evidence  why the backend's object ended, or why it is ended now: it waited too long for its first process
    asked     a person asks for it: whatever the reason, and even if the newest attempt lives, which then stops

    The others are as in `finish`.
    """
    if run.result is not None or run.cancelled or run.turn + 1 >= run.backends or verdict(run, rules) is not None:
        return None
    number = len(run.attempts) + 1 if Rule.MOVE_CLAIMS in rules else 0  # 0: whichever is free when it is put
    if asked:
        return Move(number, Reason.PREEMPTED)
    if absent is not None or (run.attempts and not ended(run.attempts[-1])):
        return None  # what applied its object from Git says where it runs
    if evidence in NO_PLACE:
        return Move(number, evidence)
    if not run.since_move:
        return None
    reason = reason_of(run.attempts[-1], run.leading, rules)
    if reason in DISPLACED:
        return Move(number, reason)
    # the object is gone, so that nothing of it is started again: a machine that was taken away
    gone = active is False and (own or Rule.OWN_PLACE not in rules)
    return Move(number, reason) if gone and reason is Reason.LOST and evidence in MACHINE_GONE else None


class BackendObject(NamedTuple):
    """Whether the backend has an object of the run's name, and whether its fingerprint is this run's."""

    there: bool
    ours: bool = True


class Submission(NamedTuple):
    """What a submit knows of a run. None: not looked up yet."""

    run: RunFacts
    job: bool = False  # job.json is there
    object: BackendObject | None = None
    submitted: bool = False  # backend.submit of this process has returned
    turn: int = 0  # of the backend to which this submit gives the run, in the order of its job
    served: bool | None = False  # another run has done this work and may be adopted


def submit(
    known: Submission, rules: Rules = ALL
) -> PutJob | LookUp | Submit | CancelThere | Attached | ReportResult | Refuse | Finish | LookForWork | Adopt:
    """The next step of a submit. Called again after each step, with what was read since. A submit that crashed at any
    point can be repeated from the beginning and leads to the same end."""
    run = known.run
    if run.result is not None:
        return ReportResult(run.result)
    if known.submitted:
        return CancelThere() if run.cancelled and Rule.CANCEL_AGAIN in rules else Attached()
    if not known.job:
        return PutJob()
    if run.turn != known.turn and Rule.TURN in rules:
        return Attached()
    if known.object is None:
        return LookUp() if Rule.ATTACH in rules else Attached()
    if known.object.there and not known.object.ours:
        return Refuse()
    if known.object.there:
        return CancelThere() if run.cancelled and Rule.CANCEL_AGAIN in rules else Attached()
    end = verdict(run, rules)
    if end is not None:
        return Finish(end)
    over = not run.attempts or ended(run.attempts[-1])
    if run.cancelled:
        return Finish(Verdict("cancelled", run.last, Reason.CANCELLED)) if over else Attached()
    step = _adopting(known.served, rules) if over else None
    return Submit() if step is None else step
