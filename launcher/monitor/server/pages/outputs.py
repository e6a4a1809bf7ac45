"""The files of a run's outputs, by name and size: texts and pictures are shown, anything else is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from sqlalchemy import RowMapping
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from launcher.monitor.server.blind_mode import blind
from launcher.monitor.server.queries.runs import Queries
from launcher.results.read import StoredOutput, open_output
from launcher.store.base import Store
from launcher.store.manifest import StoredFile, key_of

LISTED: Final = 1000  # files of one page
LARGEST: Final = 4 << 20  # bytes of a file that is shown
PICTURES: Final = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg"}
TEXTS: Final = ("csv", "json", "jsonl", "log", "md", "txt", "yaml", "yml")


@dataclass
class OutputPages:
    """`page` renders a template; `found` gives the run of a request, `store` the store of a URL: both raise 404."""

    queries: Queries
    page: Callable[..., HTMLResponse]
    found: Callable[[Request], RowMapping]
    store: Callable[[str], Store]

    def output(self, request: Request) -> Response:
        run, output, row = self._output(request)
        listed = sorted(output.manifest.files.items())[:LISTED]
        files = [(path, entry.size, bool(_kind(path, entry))) for path, entry in listed]
        count, size = len(output.manifest.files), output.manifest.size
        return self.page(
            "output.html", run=run, name=row["name"], attempt=row["attempt"], files=files, count=count, size=size
        )

    def file(self, request: Request) -> Response:
        """A picture or a text as it is, after a comparison with its sha256; anything else as a download, which the
        browser never opens by itself."""
        run, output, row = self._output(request)
        path = request.query_params.get("path", "")
        if not path:
            return RedirectResponse(f"/runs/{run['id']}/outputs/{quote(row['name'], safe='')}", 303)
        entry = output.manifest.files.get(path)
        if entry is None:
            raise HTTPException(404, "the output has no such file")
        if kind := _kind(path, entry):
            return Response(output.read(path), media_type=kind)
        pieces = output.store.stream(key_of(output.prefix, path, entry.at))

        def body() -> Iterator[bytes]:
            for piece in pieces:
                yield bytes(piece)

        name = quote(path.rpartition("/")[2], safe="")
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "Content-Length": str(entry.size)}
        return StreamingResponse(body(), media_type="application/octet-stream", headers=headers)

    def _output(self, request: Request) -> tuple[RowMapping, StoredOutput, RowMapping]:
        if blind():
            raise HTTPException(404, "outputs tell outcomes: they are not shown in blind mode")
        run, name = self.found(request), request.path_params["output"]
        row = next((each for each in self.queries.parts("outputs", run["id"]) if each["name"] == name), None)
        output = open_output(self.store(run["url"]), run["run"], row["attempt"], name) if row is not None else None
        if row is None or output is None:
            raise HTTPException(404, "the run has no such output in its store")
        return run, output, row


def _kind(path: str, entry: StoredFile) -> str:
    """The type as which a file is shown; "" for one that is downloaded."""
    ending = path.rpartition(".")[2].lower() if entry.size <= LARGEST else ""
    return PICTURES.get(ending) or ("text/plain; charset=utf-8" if ending in TEXTS else "")
