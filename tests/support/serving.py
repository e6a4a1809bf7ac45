"""Servers of eval.serve for tests: processes of their own, as users start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from eval.episodes import jsonl
from eval.records.task_record import TaskRecord
from tests.support.documented import ROOT
from tests.support.waiting import HANGS, until

TOKEN: Final = "sesame"
ELSEWHERE: Final = """
import sys
from eval.desktops import session
session.FOLDERS = sys.argv.pop(1)
from eval.serve.__main__ import main
sys.exit(main())
"""


class Served(NamedTuple):
    """A server that listens."""

    process: subprocess.Popen[str]
    url: str
    out: Path

    def records(self) -> list[TaskRecord]:
        return jsonl.read(self.out / "tasks.jsonl", TaskRecord)


def written(folder: Path, config: dict[str, Any]) -> Path:
    file = folder / "serve.json"
    file.write_text(json.dumps(config))
    return file


def command(protocol: str, folder: Path, config: dict[str, Any], *more: str, desktops: Path | None = None) -> list[str]:
    """desktops: where its desktops have their folders."""
    file = str(written(folder, config))
    program = ["-m", "eval.serve"] if desktops is None else ["-c", ELSEWHERE, str(desktops)]
    return [sys.executable, *program, protocol, "--config", file, "--out", str(folder / "out"), *more]


@contextmanager
def served(
    protocol: str,
    folder: Path,
    config: dict[str, Any],
    listen: str = "127.0.0.1:0",
    *,
    desktops: Path | None = None,
) -> Iterator[Served]:
    """Until the block ends; then the server is told to end, and must end well, unless the block killed it."""
    environment = {**os.environ, "SERVE_TOKEN": TOKEN}
    arguments = command(protocol, folder, config, "--listen", listen, desktops=desktops)
    with (
        (folder / "trouble.txt").open("w+") as trouble,
        subprocess.Popen(
            arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=trouble, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            assert line.startswith("listening on "), (folder / "trouble.txt").read_text()
            yield Served(process, line.removeprefix("listening on "), folder / "out")
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(HANGS) == 0, (folder / "trouble.txt").read_text()
        finally:
            process.kill()
    assert "Traceback" not in (folder / "trouble.txt").read_text()


def ended(server: Served, count: int) -> list[TaskRecord]:
    """The records, as soon as there are so many."""
    return until(lambda: found if len(found := server.records()) >= count else [], server.records)
