"""The facts on which decisions depend, made from a view, and what they say of a run's end. All of them are tuples
(hashable, comparable, small), so that the exhaustive check can build the same facts from its own states.

Members are indices in the order of `job.members()`, the leading ranks first, the leader at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from launcher.protocol.records import Placement
from launcher.protocol.rules import ALL, Rule
from launcher.protocol.view import AttemptView, RunView
from launcher.reasons import MAX_BRIEF_ATTEMPTS, MAX_INFRASTRUCTURE_ATTEMPTS, NAMED, RULES, Reason
from launcher.spec.model import ResolvedJob

Rules = frozenset[Rule]


class RetryPolicy(NamedTuple):
    """When a job may be tried again."""

    retries: int = 0
    infrastructure: int = MAX_INFRASTRUCTURE_ATTEMPTS  # failures of the infrastructure without a new checkpoint between
    again: frozenset[Reason] = frozenset()  # these are tried again, too
    deadline: float | None = None  # seconds of running time, all attempts together
    budget: float | None = None  # seconds for which the budget pays, all attempts together

    @staticmethod
    def of(job: ResolvedJob) -> RetryPolicy:
        return RetryPolicy(
            retries=job.limits.retries,
            again=frozenset(reason for reason in NAMED if reason in job.limits.retry_on),
            deadline=job.limits.deadline,
            budget=job.limits.paid_seconds,
        )


class AttemptFacts(NamedTuple):
    """One attempt as one process sees it. Every tuple has one entry per member."""

    claimed: tuple[bool, ...]
    exits: tuple[Reason | None, ...]
    gone: tuple[bool, ...]  # proved dead, or silent for longer than `stale`
    own: bool = False  # the leader's claim carries this process's placement
    moved: bool = False  # the leader sent a new heartbeat since this process first read the attempt
    settled: bool = False  # one beat and the kill time have passed since the next attempt was claimed
    broken: bool = False
    outputs: bool = False  # every declared output has its manifest
    checkpoint: int = -1  # the newest complete step
    running: float = 0.0  # seconds
    held: float = 0.0  # seconds from its claim on: it is billed for them
    brief: bool = False  # its leader left no exit, and no heartbeat but the first
    move: bool = False  # not an attempt: its claim moved the run to its next backend


class RunFacts(NamedTuple):
    attempts: tuple[AttemptFacts, ...]
    result: str | None = None  # the outcome in result.json
    cancelled: bool = False
    leading: int = 1  # how many of the members are ranks of the leading role
    policy: RetryPolicy = RetryPolicy()
    adopted: bool = False  # another run did the work, so this run needs no works/ record
    backends: int = 1  # on how many backends the run may start, in the order of its job

    @property
    def turn(self) -> int:
        """Which of its backends may start an attempt now, from 0: each move is to the next one."""
        return sum(attempt.move for attempt in self.attempts)

    @property
    def since_move(self) -> tuple[AttemptFacts, ...]:
        """The attempts of the backend whose turn it is."""
        moves = [number for number, attempt in enumerate(self.attempts, 1) if attempt.move]
        return self.attempts[moves[-1] :] if moves else self.attempts

    @property
    def last(self) -> int:
        """The number of the newest attempt in which something could compute; 0 before the first."""
        return max((number for number, attempt in enumerate(self.attempts, 1) if not attempt.move), default=0)


def proves_dead(
    earlier: Placement,
    mine: Placement,
    *,
    same_member: bool,
    before: bool,
    alive: bool | None = None,
    rules: Rules = ALL,
) -> bool:
    """Whether a process at `mine` can prove that the process of another claim is dead. `earlier`: that claim's
    placement.

    same_member  the claim is of this process's own member
    before       the claim was written before this process began. A process that its backend had given up may start
                 late; it must not think that its own replacement is dead
    alive        whether the process with that pid and start time still runs; None if it is of another host or boot
    """
    if alive is not None:
        return not alive
    if earlier.where != mine.where or earlier.kind != mine.kind:
        return False
    if earlier.kind == "set" and earlier.generation != mine.generation:
        return earlier.generation < mine.generation
    if earlier.boot and mine.boot and earlier.boot != mine.boot and earlier.kind in ("process", "machine"):
        # a run's machines share `where`; which of them it is, is in `container`
        return earlier.kind == "process" or earlier.container == mine.container  # that machine has started anew
    if not before and Rule.EARLIER in rules:
        return False
    # a Job or a container's supervisor starts a process only when the one before it is gone
    return same_member and earlier.kind in ("job", "container", "set")


def same_placement(first: Placement, second: Placement, rules: Rules = ALL) -> bool:
    """Whether two ranks were started together: by the same queue entry, Job or machine, or by the same restart of a
    JobSet."""
    restart = first.generation == second.generation or Rule.GENERATION not in rules
    return restart and (first.kind, first.where) == (second.kind, second.where)


def silent(claim: float, beat: float | None, stale: float, rules: Rules = ALL) -> bool:
    """Whether a member's last sign of life is older than `stale`. `claim`, `beat`: the ages of its claim and of its
    last heartbeat in seconds."""
    if beat is None:
        return claim > stale if Rule.CLAIM_IS_BEAT in rules else False
    return min(claim, beat) > stale


def gone(
    claims: tuple[Placement | None, ...],
    at: int,
    quiet: bool,
    mine: Placement | None,
    *,
    same_member: bool,
    before: bool,
    alive: bool | None,
    rules: Rules = ALL,
) -> bool:
    """Whether a member is gone from an attempt.

    claims  the member's placement in each attempt; None where it has no claim
    at      index of the attempt
    quiet   the member is silent

    The others are as in `proves_dead`.
    """
    claim = claims[at]
    if claim is None:
        return False
    if quiet:
        return True
    if alive is False:
        return True
    if mine is not None and proves_dead(claim, mine, same_member=same_member, before=before, alive=alive, rules=rules):
        return True
    # a process claims the same member at the same place again only when it knows that its predecessor is gone
    later = (new for new in claims[at + 1 :] if new is not None)
    return any(proves_dead(claim, new, same_member=True, before=True, rules=rules) for new in later)


def facts(
    view: RunView,
    job: ResolvedJob,
    mine: Placement | None = None,
    member: str | None = None,
    *,
    age: float = 0.0,
    alive: Callable[[Placement], bool | None] = lambda placement: None,
    moved: frozenset[int] = frozenset(),
) -> RunFacts:
    """The facts that `member`, running at `mine`, can conclude from a view. Both are None for a process outside the
    run.

    age    seconds for which that process had existed when the view was read
    alive  whether a claim's process still runs; None if this machine cannot know it
    moved  the attempts whose leader has sent a new heartbeat since this process first read them
    """
    members = job.members()
    outputs = {name for name, output in job.outputs.items() if output.kind == "files"}
    attempts: list[AttemptFacts] = []
    highest = max((attempt.number for attempt in view.attempts), default=0)
    claims = {who: tuple(_placement(view.attempt(number), who) for number in range(1, highest + 1)) for who in members}
    for number in range(1, highest + 1):
        attempt = view.attempt(number)
        if attempt is None:  # not read yet, but a later attempt was: so this one has ended
            nothing = (False,) * len(members)
            attempts.append(AttemptFacts(nothing, (None,) * len(members), (True,) * len(members)))
            continue
        if attempt.moved_to:
            nothing = (False,) * len(members)
            attempts.append(AttemptFacts(nothing, (None,) * len(members), (True,) * len(members), move=True))
            continue
        claim = attempt.claims.get(members[0])
        following = view.attempt(attempt.number + 1)
        superseded = following.claimed.get(members[0]) if following else None
        attempts.append(
            AttemptFacts(
                claimed=tuple(who in attempt.claims for who in members),
                exits=tuple(attempt.exits[who].reason if who in attempt.exits else None for who in members),
                gone=tuple(
                    gone(
                        claims[who],
                        number - 1,
                        _quiet(view, attempt, who, job.timing.stale),
                        mine,
                        same_member=who == member,
                        before=_before(view, attempt, who, mine, age),
                        alive=alive(attempt.claims[who].placement) if who in attempt.claims else None,
                    )
                    for who in members
                ),
                own=mine is not None and claim is not None and same_placement(claim.placement, mine),
                moved=attempt.number in moved,
                settled=superseded is not None
                and _since(view, number + 1, superseded) > job.timing.beat + job.limits.grace,
                broken=attempt.broken is not None,
                outputs=outputs <= attempt.outputs,
                checkpoint=max(attempt.checkpoints, default=-1),
                running=attempt.running(members[0]),
                held=attempt.held(members[0]),
                brief=attempt.brief(members[0], job.timing.beat),
            )
        )
    leading = job.roles[job.leading].replicas
    result = view.result.outcome if view.result else None
    adopted = view.result is not None and view.result.adopted is not None
    policy = RetryPolicy.of(job)
    return RunFacts(tuple(attempts), result, view.cancelled, leading, policy, adopted, 1 + len(job.alternatives))


def _placement(attempt: AttemptView | None, member: str) -> Placement | None:
    return attempt.claims[member].placement if attempt is not None and member in attempt.claims else None


def _quiet(view: RunView, attempt: AttemptView, member: str, stale: float) -> bool:
    if member not in attempt.claimed:
        return False
    beat = attempt.beats.get(member)
    if view.settable:
        watched = view.watched.get((attempt.number, member), 0.0)
        return silent(watched, watched if beat else None, stale)
    return silent(view.now - attempt.claimed[member], view.now - beat[1] if beat else None, stale)


def _since(view: RunView, number: int, claimed: float) -> float:
    """Seconds since attempt `number` was claimed; if the store's clock can be set, since this process first saw it."""
    return view.watched.get((number, ""), 0.0) if view.settable else view.now - claimed


def _before(view: RunView, attempt: AttemptView, member: str, mine: Placement | None, age: float) -> bool:
    """Whether a claim was written before this process began. For two processes of the same boot the kernel's start
    times decide."""
    claim = attempt.claims.get(member)
    if claim is None or mine is None:
        return False
    theirs = claim.placement
    if theirs.boot and theirs.boot == mine.boot and theirs.start and mine.start:
        return theirs.start < mine.start
    return view.now - attempt.claimed.get(member, view.now) > age


# Whether the attempts of a run have done its work, may be followed by another, or may not (the table in
# launcher.reasons).


class Verdict(NamedTuple):
    """How a run ends, as its attempts show; `attempt` counts from 1."""

    outcome: str
    attempt: int
    reason: Reason


def ended(attempt: AttemptFacts) -> bool:
    """Whether an attempt has ended: its leader has exited, or is gone."""
    return attempt.exits[0] is not None or attempt.gone[0]


def deserted(attempt: AttemptFacts) -> bool:
    """Whether the leader never came, and every member that did has exited or is gone. Where the backend can start no
    process any more, nobody is left who would ever end this attempt."""
    rest = zip(attempt.claimed, attempt.exits, attempt.gone, strict=True)
    return not attempt.claimed[0] and all(end is not None or gone for claimed, end, gone in rest if claimed)


def complete(attempt: AttemptFacts, leading: int) -> bool:
    """Every leading rank exited 0 and every declared output has its manifest."""
    return attempt.outputs and all(reason is Reason.SUCCEEDED for reason in attempt.exits[:leading])


def reason_of(attempt: AttemptFacts, leading: int, rules: Rules = ALL) -> Reason:
    """Why an attempt ended. The attempt must have ended."""
    reasons = [reason for reason in attempt.exits if reason is not None]
    if attempt.exits[0] is None:
        reasons.append(Reason.LOST)
    worst = max(reasons, key=lambda reason: RULES[reason].severity)
    if Rule.WORST not in rules:
        worst = attempt.exits[0] or Reason.LOST
    if worst is Reason.SUCCEEDED and not complete(attempt, leading):
        return Reason.LOST  # a leading rank's exit or an output never came
    return worst


def finished(run: RunFacts, rules: Rules = ALL) -> Verdict | None:
    """The first attempt that did the whole work."""
    if Rule.FINISH not in rules:
        return None
    for number, attempt in enumerate(run.attempts, 1):
        if complete(attempt, run.leading) and (Rule.FINISH_ANY in rules or number == len(run.attempts)):
            return Verdict("succeeded", number, Reason.SUCCEEDED)
    return None


def exhausted(run: RunFacts, rules: Rules = ALL) -> Verdict | None:
    """The end of a run that may not be tried again; None while its newest attempt lives, or if another may follow."""
    if Rule.FINAL not in rules or not run.attempts or not ended(run.attempts[-1]):
        return None
    users, streak = 0, 0.0
    newest, running, held, policy = -1, 0.0, 0.0, run.policy
    for number, attempt in enumerate(run.attempts, 1):
        if attempt.move:
            continue
        reason = reason_of(attempt, run.leading, rules)
        running += attempt.running
        held += attempt.held
        if attempt.checkpoint > newest:
            newest, streak = attempt.checkpoint, 0.0
        if not RULES[reason].again and reason not in policy.again:
            outcome = "cancelled" if reason is Reason.CANCELLED else "failed"
            return Verdict(outcome, number, reason)
        if RULES[reason].counts:
            users += 1
        elif attempt.brief and reason is Reason.LOST:
            # what kills a process at its start, such as a tmpfs that fills the memory, kills the next one, too
            streak += policy.infrastructure / MAX_BRIEF_ATTEMPTS
        else:
            streak += 1
        if users > policy.retries or streak >= policy.infrastructure:
            return Verdict("failed", number, reason)
    if policy.deadline is not None and running >= policy.deadline:
        return Verdict("failed", run.last, Reason.DEADLINE)
    if policy.budget is not None and held >= policy.budget and Rule.BUDGET in rules:
        return Verdict("failed", run.last, Reason.BUDGET)
    return None


def verdict(run: RunFacts, rules: Rules = ALL) -> Verdict | None:
    return finished(run, rules) or exhausted(run, rules)


def newest_checkpoint(run: RunFacts, before: int, rules: Rules = ALL) -> tuple[int, int] | None:
    """(attempt, step) of the checkpoint from which attempt `before` continues; of equal steps the later attempt's.
    None: there is no checkpoint, so it starts from the beginning."""
    earlier = run.attempts[: before - 1] if Rule.NEWEST in rules else run.attempts[before - 2 : before - 1]
    offset = before - len(earlier)
    steps = [(attempt.checkpoint, number) for number, attempt in enumerate(earlier, offset) if attempt.checkpoint >= 0]
    if not steps:
        return None
    step, number = max(steps)
    return number, step
