"""The page of a desktop that a running member shows, and the two addresses from which it is kept new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import RowMapping
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from launcher.errors import SlipwayError
from launcher.monitor.server.live.desktops import DesktopWatch, LiveDesktops, LiveScreen, with_screens
from launcher.spec.hashing import decode_job
from launcher.store.base import Store

AT_WORK: Final = ("starting", "running")  # states of runs whose members may have desktops


def screens_of(state: str, job: str) -> list[str]:
    """The members of a run that may be at work and whose roles show their desktops."""
    return with_screens(decode_job(job.encode())) if state in AT_WORK and job else []


@dataclass
class DesktopPages:
    """`page`, `found` and `store` as of `VerdictPages`."""

    page: Callable[..., HTMLResponse]
    found: Callable[[Request], RowMapping]
    store: Callable[[str], Store]
    live: LiveDesktops

    def desktop(self, request: Request) -> Response:
        run, member = self._member(request)
        return self.page("desktop.html", run=run, member=member)

    def screen(self, request: Request) -> Response:
        """Which picture is the newest; a desktop that cannot be seen says why."""
        try:
            found = self._watch(request).look()
        except SlipwayError as error:
            found = LiveScreen(0, problem=str(error).partition("\n")[0])
        return JSONResponse(asdict(found))

    def picture(self, request: Request) -> Response:
        body = self._watch(request).png()
        if not body:
            raise HTTPException(404, "the desktop has not been seen yet")
        return Response(body, media_type="image/png")

    def _member(self, request: Request) -> tuple[RowMapping, str]:
        run, member = self.found(request), request.path_params["member"]
        if member not in screens_of(run["state"], run["job"]):
            raise HTTPException(404, "the run has no such desktop now")
        return run, member

    def _watch(self, request: Request) -> DesktopWatch:
        run, member = self._member(request)
        return self.live.watch(self.store(run["url"]), run["run"], decode_job(run["job"].encode()), member)
