"""The rules that the protocol's decisions apply. Only the exhaustive check leaves one out, to show that a property then
breaks."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Rule(StrEnum):
    ONE_END = "result.json is the one end of a run, whatever the outcome; cancel.json is only a request"
    FINISH = "any process that finds the work done and its record missing writes the record"
    FINISH_ANY = "for that every attempt is looked at, not only the newest"
    FINAL = "nothing runs after a final reason or after the last retry: a start looks at the earlier attempts first"
    WORST = "an attempt's reason is the worst of its ranks'"
    WAIT = "a start waits; it ends as `duplicate` only if another placement sent a new heartbeat meanwhile"
    CLAIM_IS_BEAT = "a claim counts as its member's first heartbeat"
    EARLIER = "a placement proves a process dead only if that process's claim was written before this process began"
    GENERATION = "the restart number of a JobSet is part of its placement"
    JOIN = "a rank joins an attempt only if its leader is of the same placement"
    REREAD = "after its claim a process reads the members of earlier attempts again and waits until they have ended"
    EVERY_MEMBER = "it waits for every member of an earlier attempt, not only for the leader"
    GIVE_TIME = "if attempt n has no exit, the command of n+1 starts one heartbeat and the kill time after its claim"
    RECHECK = "result, cancel, the next claim and the exits are read again just before the command starts"
    SUCCESSOR = "an attempt stops when the next attempt is claimed"
    WATCH = "ranks watch the leader, the leader watches all ranks; a rank that failed or is gone ends the attempt"
    SELF_FENCE = "a runtime that could not write a heartbeat for `fence` ends its command"
    OVERTAKEN = "a member of an attempt that was superseded exits as `lost`, however its command ended"
    LEADER_LAST = "the leader's exit is written after the exits of all other leading ranks"
    STAY = "the process of a rank that exited 0 stays until the end of the attempt is known"
    CODES = "the exit code alone tells the backend whether to start the rank again"
    ATTACH = "a submit of a run that has not ended always asks the backend for its object"
    CANCEL_AGAIN = "cancel.json is read again after the backend took the run"
    ADOPT = "works/ is read before a claim: work that another run has done is adopted, not computed again"
    OWN_PLACE = "only the run's own place can say that nothing of the run will start again"
    COMES_BACK = "an object of a run that GitOps applied is made again: gone for less than the bound, it says nothing"
    BUDGET = "no attempt begins once the budget is spent by the earlier ones, whatever their reasons"
    TURN = "only the backend whose turn it is starts an attempt of a run that has several"
    MOVE_CLAIMS = "a move is the next attempt's claim: it comes before the old backend's next attempt, or not at all"
    NEXT_BACKEND = "a run that was preempted, or got no place, does not end while one of its backends is left"
    OBJECT_FIRST = "a run that waited too long for its first process loses its object before its end is written"
    NOTE_FIRST = "a reaper notes that it deletes an object before it does: the next one can write the end"
    NEWEST = "a command continues from the newest complete checkpoint of all earlier attempts"


ALL: Final = frozenset(Rule)
