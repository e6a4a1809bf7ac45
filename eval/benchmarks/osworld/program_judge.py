"""Runs the program that judges a task (`tasks.ProgramCheck`), on a desktop of its own.

The program and its files never come to the agent's desktop. They come to a clean desktop, with a copy of the files that
the agent left, so that nothing of the agent can change what the program does or see how it judges.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from eval.benchmarks.osworld.judging import JudgeFailed, MetricRaised
from eval.benchmarks.osworld.machine import judge_python
from eval.benchmarks.osworld.tasks import SHARED, ProgramCheck, PublicTask
from eval.desktop import NotRunHere, SetupFailed
from eval.desktops.display.running_desktop import RunningDesktop
from eval.desktops.isolation import isolation
from eval.desktops.judging.copies import copy_files, put_file
from eval.desktops.keeping.guest import SYSTEM
from eval.desktops.server import commands
from eval.desktops.server.errors import Refused
from eval.desktops.session import DesktopOptions, DesktopSession

LIMIT_S: Final = 300.0
TOLD: Final = 500  # characters of what a failed check printed
# No module that the agent left, in the folder of the check or in the home, takes the place of another one
APART: Final = {"PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
SCORES: Final = ("overall_score", "score", "reward")
REWARD: Final = re.compile(r"REWARD:\s*(\S+)")


@dataclass(frozen=True)
class CheckedScore:
    """value: from 0 to 1; success: whether the task counts as solved; detail: what else the program said."""

    value: float
    success: bool
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class ProgramJudge:
    """folder: of the task files; python: that of the judge, which `python3` means."""

    folder: Path
    python: Path
    memory: int
    home_size: int

    def check(self, task: PublicTask) -> None:
        """Raises SetupFailed where a file of the task is another one than was imported."""
        if "mount" not in isolation().namespaces:
            raise NotRunHere("missing dependency: mount namespaces, which keep the check from the agent")
        for name, digest in task.files.items():
            if (path := self._file(name)) is None or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                raise SetupFailed(f"{name}: it is not the file that was imported: import the tasks again")

    def _file(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.is_file() and path.resolve().is_relative_to(self.folder.resolve()) else None

    async def judge(self, task: PublicTask, agents: DesktopSession) -> CheckedScore:
        """The score of what lies on the agent's desktop. Raises JudgeFailed, MetricRaised, BrokenByAgent."""
        program = task.program
        assert program is not None
        async with await DesktopSession.start(self._options(task, program)) as session:
            folders = (str(agents.place.home_inside), *program.copies)
            await asyncio.to_thread(copy_files, agents.place, session.place, folders)
            await asyncio.to_thread(self._put, task, program.at, session.place)
            argv = [str(judge_python(self.python)) if word == "python3" else word for word in program.command]
            try:
                output = await commands.run(session, argv, limit_s=LIMIT_S, folder=PurePosixPath(program.at))
            except Refused as error:
                raise JudgeFailed(f"the check: {error}") from None
        if output.status is None:
            raise JudgeFailed(f"the check did not end within {LIMIT_S:g} s")
        return read_score(program.score, output.status, output.stdout, output.stderr)

    def _put(self, task: PublicTask, at: str, place: RunningDesktop) -> None:
        """Puts the files of the check to their place; nothing that the agent left there stays beside them."""
        found: dict[str, str] = {}
        for above in (f"{task.task_id.partition('/')[0]}/{SHARED}/", f"{task.task_id}/check/"):
            found |= {name.removeprefix(above): name for name in task.files if name.startswith(above)}
        root = Path(f"{place.root}/{at}")
        for top in {PurePosixPath(name).parts[0] for name in found}:
            if (root / top).is_dir():
                shutil.rmtree(root / top)
            (root / top).unlink(missing_ok=True)
        for name, file in found.items():
            put_file(root / name, (self.folder / file).read_bytes(), place)

    def _options(self, task: PublicTask, program: ProgramCheck) -> DesktopOptions:
        python = judge_python(self.python)
        own = {program.at} if not program.at.startswith(("/tmp/", "/home/user/")) else set()
        return DesktopOptions(
            screen=(1280, 720),
            terminal="always",
            shown=_shown(python),
            folders=tuple(sorted({*task.folders, *own})),
            memory=self.memory,
            home_size=self.home_size,
            temporary_size=self.home_size,
            environ={"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin", **APART},
        )


def _shown(python: Path) -> tuple[str, ...]:
    """The folders of a Python that a desktop does not see by itself."""
    if str(python).startswith(SYSTEM):
        return ()
    real = python.resolve().parents[1]
    folders = {str(python.parents[1]), *(() if str(real).startswith(SYSTEM) else (str(real),))}
    return tuple(sorted(folders))


def read_score(form: str, status: int, out: str, told: str) -> CheckedScore:
    """What a check printed as a score. Raises MetricRaised where it gives none."""
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    said = f"status {status}: {(told or out).strip()[-TOLD:]}"
    if form in ("reward", "json") and status:
        raise MetricRaised(f"the check failed; {said}")
    if form == "reward":
        found = [match[1] for line in lines if (match := REWARD.match(line))] or lines[-1:]
        if len(set(found)) != 1:
            raise MetricRaised(f"the check gives {len(found)} rewards and not one; {said}")
        value = _number(found[0], said)
        return CheckedScore(value, value == 1.0, {})
    try:
        answer = json.loads(lines[-1])
    except (ValueError, IndexError):
        raise MetricRaised(f"the last line of the check is no JSON; {said}") from None
    if not isinstance(answer, dict):
        raise MetricRaised(f"the last line of the check is no object; {said}")
    if form == "json":
        value = _number(next((answer[name] for name in SCORES if name in answer), None), said)
        detail = {name: answer[name] for name in ("subscores", "errors") if answer.get(name)}
        return CheckedScore(value, value == 1.0, detail)
    passed = answer.get("passed")
    if not isinstance(passed, bool):
        raise MetricRaised(f"the verdict gives passed {passed!r}, which is neither true nor false; {said}")
    detail = {name: answer[name] for name in ("score", "feedback") if answer.get(name)}
    value = float(passed) if form == "verdict" else _number(answer.get("score"), said, 100.0)
    return CheckedScore(value, passed, detail)


def _number(value: Any, said: str, whole: float = 1.0) -> float:
    try:
        number = float(value) / whole
    except (TypeError, ValueError):
        raise MetricRaised(f"the check gives {value!r} and no number; {said}") from None
    if not (math.isfinite(number) and 0.0 <= number <= 1.0):
        raise MetricRaised(f"the check gives {number}, which is not from 0 to 1; {said}")
    return number
