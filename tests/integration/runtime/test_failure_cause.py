"""Ranks whose commands hold connections to each other, as torchrun's do: who fails because of whom."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from launcher.reasons import Reason
from launcher.spec.model import Limits, Timing
from tests.integration.runtime.rig import Rig, python, terminate, until

# rank 0 listens; everybody fails as soon as a connection of his breaks
BOUND = """
import os, selectors, socket, sys, time
from pathlib import Path
rank, meeting = int(os.environ["RANK"]), Path(sys.argv[1])
if rank == 0:
    server = socket.create_server(("127.0.0.1", 0))
    (meeting / ".port").write_text(str(server.getsockname()[1]))
    (meeting / ".port").rename(meeting / "port")
    others = [server.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
else:
    while not (meeting / "port").exists(): time.sleep(0.01)
    others = [socket.create_connection(("127.0.0.1", int((meeting / "port").read_text())))]
look = selectors.DefaultSelector()
for other in others: look.register(other, selectors.EVENT_READ)
print("bound", flush=True)
while not look.select(0.05):
    if (meeting / f"fail-{rank}").exists(): sys.exit("my own fault")
    if (meeting / f"leave-{rank}").exists(): sys.exit(0)
sys.exit("connection lost")
"""


def bound(root: Path, ranks: int, stale: float = 12.0) -> Rig:
    return Rig.of(
        root,
        (*python(BOUND), str(root)),
        role={"replicas": ranks},
        limits=Limits(grace=1.0),
        timing=Timing(beat=0.3, stale=stale, fence=stale / 2),
    )


def started(rig: Rig) -> list[subprocess.Popen[bytes]]:
    """The runtimes, once all commands are connected."""
    found = [rig.start(member) for member in rig.job.members()]
    until(lambda: all(b"bound\n" in rig.log(member=member) for member in rig.job.members()))
    return found


def end(process: subprocess.Popen[bytes]) -> int:
    return process.wait()  # where `stale` is an hour it would not come if anybody had to count as silent for it


def kill(process: subprocess.Popen[bytes]) -> None:
    """With its command, of which the kernel takes care."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_rank_that_is_lost_makes_nobody_elses_failure_count(tmp_path: Path) -> None:
    """Three ranks: the two that are left fail at once, on both sides of the leader's decision."""
    rig = bound(tmp_path, 3)
    ranks = started(rig)
    kill(ranks[2])
    assert [end(rank) for rank in ranks[:2]] == [75, 75]
    for member in ("main-0", "main-1"):
        found = rig.exit(member=member)
        assert (found.reason, found.code) == (Reason.INFRASTRUCTURE, 1)
        assert "connection lost" in found.message
    assert rig.result() is None  # with `retries: 0`, and tried again


def test_a_rank_that_was_told_to_go_makes_nobody_elses_failure_count(tmp_path: Path) -> None:
    rig = bound(tmp_path, 3)
    ranks = started(rig)
    assert terminate(ranks[1]) == 143
    assert {end(ranks[0]), end(ranks[2])} <= {75, 143}
    assert rig.exit(member="main-1").reason is Reason.PREEMPTED
    assert {rig.exit(member=f"main-{rank}").reason for rank in (0, 2)} <= {Reason.PREEMPTED, Reason.INFRASTRUCTURE}
    assert rig.result() is None


@pytest.mark.parametrize("who", [0, 1])
def test_a_failure_of_its_own_counts_whoever_fails_with_it(tmp_path: Path, who: int) -> None:
    rig = bound(tmp_path, 3, stale=3600.0)
    ranks = started(rig)
    (tmp_path / f"fail-{who}").touch()
    codes = [end(rank) for rank in ranks]
    assert codes[0] == 78
    result = rig.result()
    assert result is not None
    assert (result.outcome, result.reason) == ("failed", Reason.USER_ERROR)


def test_a_rank_that_fails_after_the_leader_is_done_is_not_waited_for_in_turn(tmp_path: Path) -> None:
    rig = bound(tmp_path, 2, stale=3600.0)
    ranks = started(rig)
    (tmp_path / "leave-0").touch()
    codes = [end(rank) for rank in ranks]
    assert codes[0] == 78
    assert rig.exit(member="main-1").reason is Reason.USER_ERROR


def test_a_rank_told_to_go_while_it_asks_is_preempted(tmp_path: Path) -> None:
    rig = bound(tmp_path, 2, stale=3600.0)
    ranks = started(rig)
    kill(ranks[1])
    until(lambda: rig.view().attempts[0].beats["main-0"][0].phase == "asking")
    assert terminate(ranks[0]) == 143
    assert rig.exit().reason is Reason.PREEMPTED
