"""What is explored, and for each rule the smallest configuration in which leaving it out breaks a property."""

from __future__ import annotations

from typing import Final

from launcher.protocol.facts import RetryPolicy
from launcher.protocol.rules import Rule
from launcher.reasons import Reason
from tests.contract.protocol.states import Config, config

TWO: Final = {"ranks": 2, "leading": 2}
SET: Final = {**TWO, "mode": "set"}
ROLES: Final = {"ranks": 2, "leading": 1}
ORDERED: Final = {"places": 2, "ordered": True}
FEW: Final = RetryPolicy(retries=1, infrastructure=2)
NAMES: Final = RetryPolicy(retries=1, infrastructure=3, again=frozenset({Reason.CONFIG_ERROR, Reason.OUT_OF_MEMORY}))
PAID: Final = RetryPolicy(retries=1, infrastructure=2, budget=2.0)
BOTH_RUN: Final = (
    "backend A starts rank 0",
    "backend A starts rank 1",
    "A0#0 reads",
    "A0#0 claims",
    "A1#0 reads",
    "A1#0 claims",
    "A0#0 puts formed",
    "A1#0 sees",
    "A0#0: earlier",
    "A1#0: earlier",
    "A0#0: COMMAND",
    "A1#0: COMMAND",
)
CUT_BEHIND: Final = (*BOTH_RUN, "A1#0 is CUT OFF", "A0#0 gets SIGTERM", "A0#0 puts exit")

CONFIGS: Final[dict[str, Config]] = {
    "one rank": config(crash=1, term=1, lost=1, cut=1),
    "one rank, user and memory errors": config(crash=1, user=2, memory=1),
    "one rank, exit code 78": config(crash=1, user=1, never=1),
    "one rank, exit code 78 is tried again": config(crash=1, user=1, never=2, policy=NAMES),
    "one rank, checkpoints": config(crash=2, steps=2),
    "one rank, pids prove": config(mode="process", crash=1, term=1, cut=1),
    "one rank, a new machine each time": config(mode="host", crash=1, term=1, cut=1),
    "one rank, cut off and force-deleted": config(cut=1, force=1),
    "two submitters": config(submitted=False, job=False, submitters=2, submitter=1, lost=1),
    "a submitter, cancelled": config(submitted=False, job=False, submitters=1, cancel=1, submitter=1, crash=1),
    "a submitter, cancelled, nothing ever starts": config(
        submitted=False, job=False, submitters=1, cancel=1, submitter=1, starts=False
    ),
    "one rank, a budget": config(crash=2, user=1, policy=PAID),
    "two places": config(places=2, crash=2),
    "two places, cut off": config(places=2, cut=1, policy=FEW),
    "two places, frozen": config(places=2, freeze=1, crash=1, policy=FEW),
    "two places, cancelled": config(places=2, crash=1, cancel=1),
    "one rank, a stranger looks on": config(stranger=True, crash=1, user=1, term=1, cancel=1),
    "a submitter, a stranger looks on": config(
        stranger=True, submitted=False, job=False, submitters=1, cancel=1, submitter=1, crash=1
    ),
    "two places, a slow reaper": config(places=2, crash=1, gone=2, slow_reaper=True, policy=FEW),
    "one rank, another run does the work": config(crash=1, user=1, served=1, deleted=1),
    "one rank, another run does the work, cut off": config(cut=1, served=1),
    "two places, another run does the work": config(places=2, crash=1, served=1),
    "a submitter, another run does the work": config(
        submitted=False, job=False, submitters=1, cancel=1, submitter=1, served=1, deleted=1
    ),
    "two ranks, another run does the work": config(**SET, crash=1, served=1),
    "applied from Git": config(applied=True, mode="host", removed=1, pruned=1, crash=1, cancel=1, policy=FEW),
    "two backends, preempted": config(**ORDERED, term=1, crash=1, policy=FEW),
    "two backends, checkpoints": config(**ORDERED, term=1, steps=2, policy=FEW),
    "two backends, frozen and moved": config(**ORDERED, freeze=1, asked=1, policy=FEW),
    "two backends, cut off and moved": config(**ORDERED, cut=1, asked=1, policy=FEW),
    "two backends, given up": config(**ORDERED, gone=2, crash=1, policy=FEW),
    "one rank, waits too long": config(waited=1, crash=1, cancel=1),
    "two ranks, wait too long": config(**SET, waited=1),
    "two backends, wait too long": config(**ORDERED, waited=2, policy=FEW),
    "two backends, cancelled": config(**ORDERED, mode="host", term=1, asked=1, cancel=1, policy=FEW),
    "two ranks, restarted together": config(**SET, crash=1, user=1),
    "two ranks, restarted one by one": config(**TWO, crash=1, user=1),
    "two ranks, exit code 78": config(**SET, crash=1, never=1),
    "two ranks, exit code 78 is tried again": config(**TWO, user=1, never=1, policy=NAMES),
    "two ranks, cancelled": config(**SET, crash=1, cancel=1),
    "two ranks at two places": config(**SET, places=2, crash=1, policy=FEW),
    "two roles, restarted one by one": config(**ROLES, crash=1, user=1),
    "two roles, restarted together": config(**ROLES, mode="set", crash=1, user=1, inplace=True),
}
NIGHTLY: Final[dict[str, Config]] = {
    "large: one rank": config(crash=2, term=1, lost=1, cut=1),
    "large: one rank, checkpoints": config(crash=2, steps=2, cut=1),
    "large: one rank, pids prove": config(mode="process", crash=2, term=1, cut=1),
    "large: one rank, a new machine each time": config(mode="host", crash=2, term=1, cut=1),
    "large: one rank, cut off and force-deleted": config(cut=1, force=1, crash=1),
    "large: two places, a budget": config(places=2, crash=1, cut=1, policy=PAID),
    "large: two ranks, a budget": config(**SET, crash=1, policy=PAID),
    "large: two submitters": config(submitted=False, job=False, submitters=2, crash=1, submitter=2, lost=1, gone=1),
    "large: two places": config(places=2, crash=2, lost=1, user=1),
    "large: two places, cut off": config(places=2, cut=2, policy=FEW),
    "large: two places, frozen": config(places=2, freeze=2, crash=1, term=1, policy=FEW),
    "large: two places, a stranger looks on": config(places=2, stranger=True, crash=1, cut=1, cancel=1, policy=FEW),
    "large: two ranks, frozen": config(**SET, places=2, freeze=1, policy=FEW),
    "large: two places, cancelled": config(places=2, crash=1, cancel=1, cut=1),
    "large: one rank, another run does the work": config(crash=2, cut=1, user=1, served=1, deleted=1),
    "large: two places, another run does the work": config(places=2, crash=1, cut=1, served=1, policy=FEW),
    "large: applied from Git, cut off": config(
        applied=True, mode="host", removed=2, pruned=1, crash=1, cancel=1, cut=1, policy=FEW
    ),
    "large: applied from Git, preempted": config(
        applied=True, mode="host", removed=2, pruned=1, crash=1, cancel=1, term=1, policy=FEW
    ),
    "large: two backends": config(**ORDERED, term=1, crash=1, cut=1, asked=1, policy=FEW),
    "large: two backends, frozen and moved": config(**ORDERED, freeze=2, term=1, asked=1, policy=FEW),
    "large: two backends, two submitters": config(
        **ORDERED, submitted=False, job=False, submitters=2, asked=1, policy=FEW
    ),
    "large: two backends, a submitter": config(
        **ORDERED, submitted=False, job=False, submitters=1, submitter=1, lost=1, asked=1, policy=FEW
    ),
    "large: two backends, the first starts late": config(
        **ORDERED, submitted=False, job=False, submitters=1, waited=1, force=1, asked=1, policy=FEW
    ),
    "large: three backends": config(places=3, ordered=True, term=2, crash=1, policy=FEW),
    "large: two ranks, two backends": config(**SET, **ORDERED, term=1, policy=FEW),
    "large: two ranks, restarted together": config(**SET, crash=2, user=1),
    "large: two ranks, restarted one by one": config(**TWO, crash=2, cut=1, policy=FEW),
    "large: two ranks, force-deleted": config(**SET, force=1, crash=1),
    "large: two ranks at two places, cut off": config(**SET, places=2, cut=1, policy=FEW),
    "large: two roles, cut off": config(**ROLES, crash=1, user=1, cut=1),
}
ABLATIONS: Final[dict[Rule, Config]] = {
    Rule.ONE_END: config(cancel=1),
    Rule.FINISH: config(crash=1),
    Rule.FINISH_ANY: config(places=2, cut=1, crash=1),
    Rule.FINAL: config(user=2, crash=1),
    Rule.WORST: config(**SET, user=3),
    Rule.WAIT: config(mode="host", crash=1),
    Rule.CLAIM_IS_BEAT: config(mode="host", crash=1),
    Rule.EARLIER: config(force=1, cut=1),
    Rule.GENERATION: config(**SET, force=1),
    Rule.JOIN: config(**SET, places=2),
    Rule.REREAD: config(**TWO, places=2, late=True, cut=1, term=1, policy=FEW, begin=CUT_BEHIND),
    Rule.EVERY_MEMBER: config(**TWO, places=2, late=True, cut=1, term=1, policy=FEW, begin=CUT_BEHIND),
    Rule.GIVE_TIME: config(force=1),
    Rule.RECHECK: config(cancel=1),
    Rule.SUCCESSOR: config(force=1),
    Rule.WATCH: config(**TWO, crash=1),
    Rule.SELF_FENCE: config(places=2, cut=1),
    Rule.OVERTAKEN: config(places=2, freeze=1),
    Rule.LEADER_LAST: config(**SET, places=2),
    Rule.STAY: config(**TWO, crash=1),
    Rule.CODES: config(memory=1),
    Rule.ATTACH: config(submitted=False, submitters=1, submitter=1),
    Rule.CANCEL_AGAIN: config(submitted=False, job=False, submitters=1, cancel=1, starts=False),
    Rule.ADOPT: config(served=1),
    Rule.OWN_PLACE: config(stranger=True, term=1),
    Rule.COMES_BACK: config(applied=True, mode="host", removed=1),
    Rule.BUDGET: config(crash=1, policy=PAID),
    Rule.TURN: config(**ORDERED, term=1),
    Rule.MOVE_CLAIMS: config(**ORDERED, term=1),
    Rule.NEXT_BACKEND: config(**ORDERED, gone=1),
    Rule.OBJECT_FIRST: config(waited=1),
    Rule.NOTE_FIRST: config(waited=1),
    Rule.NEWEST: config(crash=2, steps=1),
}
