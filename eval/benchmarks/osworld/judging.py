"""Starts the public evaluators in an environment of their own (`make osworld-env`), and reads what they found."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.benchmarks.osworld import judge_program
from eval.benchmarks.osworld.tasks import Fields
from eval.desktop import BrokenByAgent, CheckerFailed, InfraError, NotRunHere, SetupFailed
from eval.desktops.server.browser_port import BrowserPort

LIMIT_S: Final = 600.0
NOBODY: Final = 65534
PROGRAM: Final = Path(judge_program.__file__)
INSTALL: Final = "make osworld-env"
OF_THE_TASK: Final = ("cloud_file", "cache_file")  # getters of files that no agent can change


class JudgeFailed(InfraError):
    """The judge or one of its getters failed, so nothing is known about the task."""


class MetricRaised(CheckerFailed):
    """A metric or getter raised, or ended the judge, while the desktop and all that it needs answered."""


class PublicVerdict(msgspec.Struct, frozen=True):
    """What judge_program prints."""

    package: str
    score: float | None
    failures: list[str]
    broken: str | None
    raised: str | None = None


@dataclass(frozen=True)
class PublicJudge:
    """The interpreter that has the package `desktop-env`, or runs a clone's `package`: its folder `desktop_env`."""

    python: Path
    package: Path | None = None

    def check(self) -> None:
        """Raises SetupFailed where there is no such interpreter."""
        if not os.access(self.python, os.X_OK):
            raise NotRunHere(f"missing dependency: the public evaluators ({INSTALL}); no {self.python}")

    async def judge(
        self,
        evaluator: Fields,
        *,
        address: str,
        token: str | None,
        cache: Path,
        screen: tuple[int, int],
        browser: BrowserPort | None = None,
        gave_up: bool = False,
    ) -> PublicVerdict:
        """The verdict, with a score. `cache` becomes the judge's own folder.

        Metrics of the package evaluate strings of the desktop as Python, so that an agent has a say in what the judge
        does. So it gets no variable of this process's environment. Where this process is root it is one of the user
        `nobody`, with one right of root at most: to read, where the interpreter lies in a folder that is not open to
        all. Raises JudgeFailed, MetricRaised, SetupFailed for what is not installed, BrokenByAgent.
        """
        self.check()
        order: dict[str, Any] = {
            "address": address,
            "token": token,
            "evaluator": {name: value for name, value in evaluator.items() if name != "postconfig"},
            "cache": str(cache),
            "screen": screen,
            "last_action": "FAIL" if gave_up else "DONE",
            "package": None if self.package is None else str(self.package.parent),
        }
        async with contextlib.AsyncExitStack() as stack:
            if browser is not None:
                order["browser_port"] = await stack.enter_async_context(browser.listening(NOBODY))
            return await self._judge(order, cache)

    async def _judge(self, order: Fields, cache: Path) -> PublicVerdict:
        try:
            return await self._verdict(order, cache)
        except MetricRaised as raised:
            if (right := on_right_files(order["evaluator"])) is None:
                raise
            with contextlib.suppress(InfraError):
                await self._verdict({**order, "evaluator": right}, cache)
                raise BrokenByAgent(f"the metric judges the right file, and fails on what is there: {raised}") from None
            raise

    async def _verdict(self, order: Fields, cache: Path) -> PublicVerdict:
        out, told, status = await self._run(json.dumps(order).encode(), cache)
        try:
            verdict = msgspec.json.decode(out, type=PublicVerdict)
        except msgspec.DecodeError:
            raise MetricRaised(f"the judge ended with status {status} and no verdict: {told[-1000:]}") from None
        if missing := [text for text in verdict.failures if text.startswith("missing dependency")]:
            raise SetupFailed("; ".join(missing))
        if verdict.broken is not None:
            raise BrokenByAgent(verdict.broken)
        if verdict.failures:
            raise JudgeFailed("; ".join([*verdict.failures, *filter(None, [verdict.raised])]))
        if verdict.score is None:
            raise MetricRaised(verdict.raised or "no score")
        return verdict

    def _apart(self) -> list[str]:
        """The beginning of the command that takes root's rights away."""
        if os.geteuid() != 0:
            return []
        read = [self.python, PROGRAM, *([] if self.package is None else [self.package / "evaluators"])]
        rights = "-all" if all(map(_open_to_all, read)) else "-all,+dac_read_search"
        kinds = [f"--{kind}={rights}" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", *kinds]

    async def _run(self, order: bytes, cache: Path) -> tuple[bytes, str, int]:
        if os.geteuid() == 0:
            for path in (cache, *cache.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        pipe = asyncio.subprocess.PIPE
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(cache), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
        command = [*self._apart(), str(self.python), "-I", str(PROGRAM)]
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=True
            )
        except FileNotFoundError as error:
            raise SetupFailed(f"missing dependency: program {error.filename}") from None
        try:
            async with asyncio.timeout(LIMIT_S):
                out, told = await process.communicate(order)
        except TimeoutError:
            raise JudgeFailed(f"the judge did not end within {LIMIT_S:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and what it started
                await process.wait()
        return out, told.decode(errors="replace"), process.returncode or 0


def on_right_files(evaluator: Fields) -> Fields | None:
    """The evaluator with the files that are expected in the place of those that the agent left; None where not every
    result is compared with a file that comes with the task."""
    results, expected = (
        each if isinstance(each, list) else [each] for each in map(evaluator.get, ("result", "expected"))
    )
    if len(results) != len(expected) or not all(
        isinstance(mine, dict)
        and isinstance(right, dict)
        and mine.get("type") == "vm_file"
        and right.get("type") in OF_THE_TASK
        for mine, right in zip(results, expected, strict=True)
    ):
        return None
    kept = {name: value for name, value in evaluator.items() if name != "postconfig"}
    return {**kept, "result": evaluator["expected"]}


def _open_to_all(path: Path) -> bool:
    """Whether every user gets to a file, and to what it links to."""
    return all(folder.stat().st_mode & 0o001 for each in (path, path.resolve()) for folder in each.parents)
