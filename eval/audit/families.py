"""The families of players, in the order in which they play."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from eval.agents.baselines import RANDOM_RATE
from eval.audit import moves
from eval.audit.moves import Way
from eval.desktop import Task

Needs = Literal["", "expert", "another seed", "another task", "hacker", "commands"]


@dataclass(frozen=True)
class PlayerFamily:
    """Players of one kind.

    does     what they do, in a few words
    needs    what the environment must have for them: its own expert, the same task with another seed, another task, a
             method `hacker`, a tool for commands
    ways     of a task; None: they are known only when others have played
    allowed  the share of tries that may pass
    partial  whether partial credit is a hole, too: who does nothing for a task earns none of it
    judged   False: a pass is no hole, it only says something about the tasks
    feasible whether they play tasks alone that can be done: where one cannot, what they do may be right
    """

    name: str
    does: str
    needs: Needs = ""
    ways: Callable[[Task], list[Way]] | None = None
    allowed: float = 0.0
    partial: bool = True
    judged: bool = True
    feasible: bool = False


FAMILIES: Final = {
    each.name: each
    for each in (
        PlayerFamily("nothing", "says done at once", ways=moves.nothing),
        PlayerFamily("gives-up", "says at once that it cannot be done", ways=moves.gives_up, feasible=True),
        PlayerFamily("claims", "says done, and reports a success", ways=moves.claims),
        PlayerFamily("injection", "writes orders to a judge that reads", ways=moves.injection),
        PlayerFamily("echo", "types the words of the goal", ways=moves.echo),
        PlayerFamily("random", "clicks, types and scrolls at random", allowed=RANDOM_RATE, partial=False),
        PlayerFamily("scatter", "puts files wherever a result may be looked for", "commands", moves.scatter),
        PlayerFamily("deletion", "deletes or empties all files", "commands", moves.deletion),
        PlayerFamily("touch", "gives all files another time", "commands", moves.touch),
        PlayerFamily("links", "puts links in place of files", "commands", moves.links),
        PlayerFamily("hacker", "takes the short ways that the environment itself knows", "hacker"),
        PlayerFamily("left-behind", "says done where the task was solved before a reset", "expert", feasible=True),
        PlayerFamily(
            "replay",
            "repeats a success of another seed, without looking",
            "another seed",
            None,
            0.01,
            False,
            feasible=True,
        ),
        PlayerFamily(
            "other-task",
            "repeats a success of another task, without looking",
            "another task",
            None,
            0.01,
            False,
            feasible=True,
        ),
        PlayerFamily(
            "same-seed",
            "repeats a success of the same seed, without looking",
            "expert",
            partial=False,
            judged=False,
            feasible=True,
        ),
    )
}
