"""A running `launcher forward`, and what comes through it."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def forwarding(
    argv: Sequence[str], environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[int]:
    """Gives the port that it listens on, which was any: one that was free before may be another's by now."""
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, env=environ, cwd=folder
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Forwarding from 127.0.0.1:"), line
            yield int(line.partition("127.0.0.1:")[2].split()[0])
        finally:
            process.terminate()


def fetch(url: str) -> bytes:
    """A page, through no proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as answer:
        body: bytes = answer.read()
        return body
