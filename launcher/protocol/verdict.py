"""Whether the attempts of a run have done its work, may be followed by another, or may not (the table in
launcher.reasons)."""

from __future__ import annotations

from typing import NamedTuple

from launcher.protocol.facts import AttemptFacts, Rules, RunFacts
from launcher.protocol.rules import ALL, Rule
from launcher.reasons import MAX_BRIEF_ATTEMPTS, RULES, Reason


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
