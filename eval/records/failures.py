"""Why an episode failed, by rules over its records: `failure` gives the first rule that fits.

A rule is a pure function over what was recorded. It gives a sentence of evidence where it fits, else None. The words
of the rule go into the record beside the evidence, so a report shows by which rule an episode got its class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from eval.actions import Action, ActionType
from eval.episodes import Episode, Step

ENDS: Final = (ActionType.DONE, ActionType.FAIL)
POINTING: Final = 3  # of answers that point, at least, before their share says something
REPEATED: Final = {1: 4, 2: 3, 3: 3}  # answers in a pattern -> how often it must come
SAME: Final = 0.01  # of the screen: points so near are one place
BLIND: Final = (
    "cannot see the screen",
    "can't see the screen",
    "cannot see the image",
    "can't see the image",
    "cannot see any image",
    "can't see any image",
    "cannot see the screenshot",
    "can't see the screenshot",
    "no screenshot was provided",
    "no image was provided",
    "unable to view the",
    "unable to see the",
)


class FailureClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an episode failed.

    kind  the class
    rule  the rule that fitted, in words
    why   what in this episode fitted
    """

    kind: str
    rule: str
    why: str


@dataclass(frozen=True)
class FailedEpisode:
    """What the rules read: the episode, what broke the desktop, and what is known of the task.

    feasible   whether the task can be done; None: not known
    max_steps  the limit of answers; None: not known
    broke      how the agent broke the desktop; "" where it did not
    """

    episode: Episode
    feasible: bool | None = None
    max_steps: int | None = None
    broke: str = ""

    @property
    def steps(self) -> Sequence[Step]:
        return self.episode.steps

    @property
    def last(self) -> Action | None:
        """The last action; None where the last answer held none."""
        return self.steps[-1].actions[-1] if self.steps and self.steps[-1].actions else None


@dataclass(frozen=True)
class FailureRule:
    """A class, its rule in words, and the rule itself."""

    kind: str
    words: str
    fits: Callable[[FailedEpisode], str | None]


def infrastructure(failed: FailedEpisode) -> str | None:
    return (failed.episode.error or "no reason was given") if failed.episode.outcome != "scored" else None


def broke_the_desktop(failed: FailedEpisode) -> str | None:
    return failed.broke or None


def wrong_format(failed: FailedEpisode) -> str | None:
    bad = [step for step in failed.steps if step.parse_error is not None]
    if not bad or (bad[-1] is not failed.steps[-1] and 2 * len(bad) < len(failed.steps)):
        return None
    return f"{len(bad)} of {len(failed.steps)} answers; answer {bad[-1].index + 1}: {bad[-1].parse_error}"


def gave_up(failed: FailedEpisode) -> str | None:
    if failed.feasible is False or failed.last is None or failed.last.type is not ActionType.FAIL:
        return None
    return f"answer {len(failed.steps)} says that it cannot be done"


def missed_infeasible(failed: FailedEpisode) -> str | None:
    said = failed.last is not None and failed.last.type is ActionType.FAIL
    return "the task cannot be done" if failed.feasible is False and not said else None


def could_not_see(failed: FailedEpisode) -> str | None:
    steps = failed.steps
    blind = [step for step in steps if _says_blind(step)]
    if blind and 2 * len(blind) >= len(steps):
        return f"{len(blind)} of {len(steps)} answers say so; the first is answer {blind[0].index + 1}"
    pointed = [step.metrics["on_control"] for step in steps if "on_control" in step.metrics]
    if len(pointed) >= POINTING and 2 * sum(pointed) < len(pointed):
        return f"{len(pointed) - round(sum(pointed))} of {len(pointed)} answers point at no control"
    return None


def loop(failed: FailedEpisode) -> str | None:
    steps = list(failed.steps)
    if steps and steps[-1].actions and steps[-1].actions[-1].type in ENDS:
        steps.pop()
    for length, times in REPEATED.items():
        tail = steps[-length * times :]
        if len(tail) < length * times or not all(step.actions or step.calls for step in tail):
            continue
        if all(_same(step, tail[number % length]) for number, step in enumerate(tail)):
            what = "the same answer" if length == 1 else f"the same {length} answers"
            return f"{what} {times} times, up to answer {tail[-1].index + 1}"
    return None


def wrong_target(failed: FailedEpisode) -> str | None:
    step = _first_difference(failed)
    if step is None or step.action is None or step.expected is None or step.action.type in ENDS:
        return None
    wanted = step.expected.action
    if step.action.type is not wanted.type or wanted.point is None:
        return None
    at = None if step.action.point is None else f"{step.action.point[0]:.3f}, {step.action.point[1]:.3f}"
    return f"answer {step.index + 1}: {step.action.type} at {at or 'no place'}, the solution's is elsewhere"


def wrong_action(failed: FailedEpisode) -> str | None:
    step = _first_difference(failed)
    if step is not None and step.action is not None and step.expected is not None and step.action.type not in ENDS:
        if step.expected.action.type not in ENDS:
            return f"answer {step.index + 1}: {step.action.type}, the solution's is {step.expected.action.type}"
        return None
    refused = [step for step in failed.steps if step.refused is not None]
    if refused and 2 * len(refused) >= len(failed.steps):
        return f"{len(refused)} of {len(failed.steps)} answers; answer {refused[0].index + 1}: {refused[0].refused}"
    return None


def stopped_early(failed: FailedEpisode) -> str | None:
    if failed.last is None or failed.last.type is not ActionType.DONE:
        return None
    return f"answer {len(failed.steps)} says done"


def never_stopped(failed: FailedEpisode) -> str | None:
    if failed.max_steps is None or len(failed.steps) < failed.max_steps:
        return None
    if failed.last is not None and failed.last.type in ENDS:
        return None
    return f"{len(failed.steps)} answers, the limit, and none says done"


# in their order: the first that fits counts
RULES: Final = (
    FailureRule("infrastructure", "The environment or a server failed. Never a score.", infrastructure),
    FailureRule(
        "broke the desktop", "The agent's doing ended the desktop, or what is judged in it.", broke_the_desktop
    ),
    FailureRule(
        "format", "The last answer is no valid action, or at least half of all answers are none.", wrong_format
    ),
    FailureRule("gave up a feasible task", "The last action says that the task cannot be done, and it can.", gave_up),
    FailureRule(
        "missed an infeasible task",
        "The task cannot be done, and the last action does not say so.",
        missed_infeasible,
    ),
    FailureRule(
        "could not see",
        "At least half of the answers say that there is no picture, or, of at least three answers that point, fewer "
        "than half point at a control of the accessibility tree.",
        could_not_see,
    ),
    FailureRule(
        "loop",
        "The last answers before the end are one answer four times, or two or three answers three times over; points "
        "within 1 % of the screen are the same.",
        loop,
    ),
    FailureRule(
        "wrong target",
        "The first action that differs from the known solution is of the right type, at another place.",
        wrong_target,
    ),
    FailureRule(
        "wrong action",
        "The first action that differs from the known solution is another action; or the desktop refused something in "
        "at least half of the answers.",
        wrong_action,
    ),
    FailureRule("stopped early", "The last action says done, and the task is not solved.", stopped_early),
    FailureRule("never stopped", "The limit of answers was reached, and none says done.", never_stopped),
    FailureRule("other", "No other rule fits.", lambda _: "no other rule fits"),
)


def failure(failed: FailedEpisode) -> FailureClass | None:
    """The class of an episode; None for one that was solved, and for one that nothing judged."""
    if failed.episode.outcome == "scored" and failed.episode.success is not False:
        return None
    for rule in RULES:
        if (why := rule.fits(failed)) is not None:
            return FailureClass(rule.kind, rule.words, why)
    raise AssertionError("the last rule fits everything")


def _says_blind(step: Step) -> bool:
    said = f"{step.response or ''} {step.thought or ''}".lower().replace("\u2019", "'")
    return any(words in said for words in BLIND)


def _first_difference(failed: FailedEpisode) -> Step | None:
    """The first step whose first action is not the known solution's, where a solution is known."""
    return next((s for s in failed.steps if s.expected is not None and not s.expected.matches(s.action)), None)


def _same(one: Step, other: Step) -> bool:
    """Whether two answers do the same: the same actions at the same places, and the same calls."""
    calls = [[(call.name, call.arguments) for call in step.calls] for step in (one, other)]
    return (
        calls[0] == calls[1]
        and len(one.actions) == len(other.actions)
        and all(_alike(mine, its) for mine, its in zip(one.actions, other.actions, strict=True))
    )


def _alike(one: Action, other: Action) -> bool:
    mine, its = one.to_json(), other.to_json()
    for name in ("x", "y", "x2", "y2"):
        if (name in mine) != (name in its) or abs(mine.pop(name, 0.0) - its.pop(name, 0.0)) > SAME:
            return False
    return bool(mine == its)
