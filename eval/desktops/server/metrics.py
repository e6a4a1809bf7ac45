"""Numbers of a desktop's server for Prometheus, at /metrics, if `--metrics` asks for them. Who asks needs the token, as
for everything else here (`authorization` with a `credentials_file` in Prometheus' configuration)."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

TYPE: Final = "text/plain; version=0.0.4"
METRICS: Final = {
    # name: (kind, what it is)
    "slipway_desktop_started_timestamp_seconds": ("gauge", "When the desktop's server started."),
    "slipway_desktop_requests_total": ("counter", "Answered requests by route and status."),
    "slipway_desktop_request_seconds_total": ("counter", "Seconds that they took together, by route."),
}


class DesktopMetrics:
    def __init__(self) -> None:
        self._started = time.time()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def begin(self, app: web.Application) -> None:
        """Sets the numbers of every route to 0: increase() does not see a value that appears with the first event."""
        for resource in app.router.resources():
            for status in (200, 500):
                self._requests[resource.canonical, status] += 0
            self._seconds[resource.canonical] += 0.0

    def counting(self) -> Middleware:
        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            route = resource.canonical if resource is not None else "none"  # not the path: anybody may ask for anything
            began = time.monotonic()
            status = 500
            try:
                answer = await handler(request)
                status = answer.status
                return answer
            finally:
                self._requests[route, status] += 1
                self._seconds[route] += time.monotonic() - began

        return count

    async def answer(self, request: web.Request) -> web.Response:
        return web.Response(body=self.text().encode(), headers={"Content-Type": TYPE})

    def text(self) -> str:
        values = {
            "slipway_desktop_started_timestamp_seconds": {"": self._started},
            "slipway_desktop_requests_total": {
                f'{{route="{route}",status="{status}"}}': float(count)
                for (route, status), count in sorted(self._requests.items())
            },
            "slipway_desktop_request_seconds_total": {
                f'{{route="{route}"}}': seconds for route, seconds in sorted(self._seconds.items())
            },
        }
        lines = []
        for name, samples in values.items():
            kind, meaning = METRICS[name]
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{labels} {value!r}" for labels, value in samples.items()]
        return "\n".join(lines) + "\n"
