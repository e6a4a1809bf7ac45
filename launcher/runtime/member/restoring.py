"""Restores the checkpoint from which an attempt continues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from launcher.errors import NotFound
from launcher.runtime.context import MemberContext
from launcher.runtime.member.member import Member
from launcher.runtime.uploads import stored_checkpoints
from launcher.spec.code.environment import is_local
from launcher.spec.model import ResolvedJob


def checkpoint(context: MemberContext, member: Member, report: Callable[[str], None]) -> Path | None:
    """Restores the newest checkpoint of this run's earlier attempts, or else of the run to resume, or else of the one
    which that resumed. Returns its folder; None if there is no checkpoint, or if other packages made it. Call it after
    `member.settle()`. Raises Unreachable."""
    own = context.address.run
    if member.previous:
        folder, step = _restore(context, own, member.checkpoint, report)
        if folder is not None:
            member.beat_state.checkpoint = step
            return folder
    for view in stored_checkpoints.resumed(context.store, context.job.resume):
        if view.job is not None and _others_made(view.job, context.job):
            context.say(
                f"the checkpoints of {view.run} were made with other packages than this run's: starting from the "
                f"beginning; `launcher retry {view.run} --resume` goes on from them"
            )
            return None
        folder, _ = _restore(context, view.run, lambda lost: stored_checkpoints.newest_of(view, None, lost), report)  # noqa: B023 - called at once
        if folder is not None:
            return folder
    return None


def _others_made(theirs: ResolvedJob, ours: ResolvedJob) -> bool:
    """Whether a run had other packages of its machine than this one, and nobody said that they may be others."""
    packages = [
        {name: role.image.environment for name, role in job.roles.items() if is_local(role.image.environment)}
        for job in (theirs, ours)
    ]
    return not ours.resume_made_with and all(packages) and packages[0] != packages[1]


def _restore(
    context: MemberContext, run: str, choose: stored_checkpoints.Choose, report: Callable[[str], None]
) -> tuple[Path | None, int | None]:
    """Restores the checkpoint that `choose` names. If that one was deleted meanwhile, asks `choose` again without it.
    Returns its folder and step."""
    lost: set[tuple[int, int]] = set()
    while (chosen := choose(lost)) is not None:
        attempt, step = chosen
        report(f"checkpoint {step}")
        try:
            folder = stored_checkpoints.restore(
                context.store, stored_checkpoints.Stored(step, attempt, run), context.folders.resume, context.member
            )
        except NotFound:  # deleted meanwhile, perhaps because a newer one is there
            lost.add(chosen)
            continue
        context.say(f"continuing from checkpoint {step} of {run}, attempt {attempt}")
        return folder, step
    return None, None
