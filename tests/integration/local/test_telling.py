"""How the supervisor tells people of the ends of many runs at once."""

from __future__ import annotations

import msgspec

from launcher.backends.local.state import Site
from launcher.backends.local.supervisor.loop import THREADS
from launcher.files import replace
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.store import layout
from tests.integration.local.bench import Bench, bench
from tests.support.jobs import job

__all__ = ["bench"]

TELLS = """#!/bin/sh
[ "$1" = -m ] || exec /bin/sh "$@"
echo "$4" >> '{path}/told'
while [ ! -e '{path}/go' ]; do sleep 0.05; done
"""


def test_many_ends_at_once_start_few_processes_that_tell(bench: Bench) -> None:
    """As when a large group is cancelled: each such process is an interpreter of its own."""
    runs = bench.queue(*(job(f"j{k}") for k in range(3 * THREADS)))
    program = bench.path / "python"
    program.write_text(TELLS.format(path=bench.path))
    program.chmod(0o755)
    for run in runs:
        result = Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n")
        bench.store.create(layout.RunKeys(run).result, msgspec.json.encode(result))
        site = msgspec.json.decode(bench.state.site(run).read_bytes(), type=Site)
        told = msgspec.structs.replace(site, python=str(program), notify=(str(bench.path), ""))
        replace(bench.state.site(run), msgspec.json.encode(told))
    supervisor = bench.supervisor("exit 0")
    most = 0

    def all_ended() -> bool:
        nonlocal most
        most = max(most, len(supervisor.teller.known()))
        ended = [run.looks for run in supervisor.runs.values()]
        return len(ended) == len(runs) and all(ended) and len(bench.lines("told")) >= THREADS

    bench.drive(supervisor, all_ended)
    (bench.path / "go").touch()
    bench.drive(supervisor, lambda: not all_ended() and not bench.state.queued())
    assert sorted(bench.lines("told")) == sorted(runs)
    assert most == THREADS
