"""A web application of a task: it serves pages to the desktop's programs, and they cannot reach it in another way.

Its process stands outside of the desktop's namespaces and groups, as another user, and listens in the desktop's network
only. So what it holds changes by its pages alone, and the judge asks it over a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from eval.desktop import DesktopGone, SetupFailed
from eval.desktops.isolation import keeper_sources

START_S: Final = 60.0
ANSWER_S: Final = 60.0
LINE: Final = 16 << 20  # bytes of one answer


class WebSite:
    """A running web application."""

    def __init__(self, process: asyncio.subprocess.Process, trouble: IO[bytes]) -> None:
        self._process = process
        self._trouble = trouble
        self._asking = asyncio.Lock()
        self.origin = ""

    @classmethod
    async def start(cls, module: str, order: Mapping[str, Any]) -> WebSite:
        """Runs `main` of a module with the standard library alone; it gets `order` as a JSON line, listens, and tells
        its port. Raises SetupFailed."""
        code = f"import sys; sys.path.append({keeper_sources()!r}); from {module} import main; sys.exit(main())"
        trouble = tempfile.TemporaryFile()  # noqa: SIM115 `stop` closes it
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", code),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=trouble,
            start_new_session=True,
            limit=LINE,
        )
        site = cls(process, trouble)
        try:
            told = await site._ask(order, START_S)
        except DesktopGone as error:
            await site.stop()
            raise SetupFailed(str(error)) from None
        if "failed" in told:
            await site.stop()
            raise SetupFailed(f"the web application does not start: {told['failed']}")
        site.origin = f"http://127.0.0.1:{told['port']}"
        return site

    async def state(self) -> dict[str, Any]:
        """What it holds now. Raises DesktopGone."""
        return await self._ask({}, ANSWER_S)

    async def stop(self) -> None:
        """Ends it, and waits for its end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._trouble.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _ask(self, message: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        async with self._asking:
            try:
                async with asyncio.timeout(limit_s):
                    self._process.stdin.write(json.dumps(message).encode() + b"\n")
                    await self._process.stdin.drain()
                    line = await self._process.stdout.readline()
            except TimeoutError:
                raise DesktopGone(f"the web application did not answer within {limit_s:g} s") from None
            except (ConnectionError, ValueError) as error:
                raise DesktopGone(f"the web application is gone: {error or self._last_words()}") from None
        if not line:
            raise DesktopGone(f"the web application ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        if self._trouble.closed:
            return "it was stopped"
        self._trouble.seek(0)
        return " ".join(self._trouble.read()[-1000:].decode(errors="replace").split()) or "it says nothing"


def namespaces_of(pid: int) -> list[str]:
    """The namespaces that a process has to join so that it shares the network of another one, in their order: the user
    namespace first, which gives the right to the other, where it is not this process's own."""
    found = [f"/proc/{pid}/ns/net"]
    if Path(f"/proc/{pid}/ns/user").stat().st_ino != Path("/proc/self/ns/user").stat().st_ino:
        found.insert(0, f"/proc/{pid}/ns/user")
    return found
