"""Several roles and ranks as processes of one machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.reasons import Reason
from launcher.runtime.uploads import stored_checkpoints
from launcher.spec.model import Limits, Output, Ready, Role
from tests.integration.runtime.rig import Rig, python, terminate, until

SERVER = """
import http.server, os, sys, time
from pathlib import Path
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = time.monotonic() - began > 0.3
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(b"pong" if self.path == "/ping" else b"")
    def log_message(self, *_): pass
began = time.monotonic()
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SLIPWAY_PORT_HTTP"])), Handler)
print("serving", flush=True)
crash = Path(sys.argv[1])
if crash.exists():
    crash.unlink()
    sys.exit(5)
server.serve_forever()
"""
CLIENT = """
import os, urllib.request
for address in os.environ["SLIPWAY_ENDPOINT_SERVER"].split(","):
    print("got", urllib.request.urlopen(f"http://{address}/ping", timeout=10).read().decode(), flush=True)
"""


def go(rig: Rig) -> dict[str, int]:
    """Every member at once; the exit code of each."""
    processes = {member: rig.start(member) for member in rig.job.members()}
    return {member: process.wait(timeout=60) for member, process in processes.items()}


def served(root: Path, *, restarts: int = 0, replicas: int = 1) -> Rig:
    server = Role(
        command=(*python(SERVER), str(root / "crash")),
        ports={"http": 0},
        ready=Ready(http="/health"),
        restarts=restarts,
        replicas=replicas,
    )
    agent = Role(command=python(CLIENT), leader=True, needs=("server",))
    return Rig.of(root, (), roles={"agent": agent, "server": server})


def test_a_role_waits_for_those_it_needs_and_ends_them(tmp_path: Path) -> None:
    rig = served(tmp_path, replicas=2)
    assert go(rig) == {"agent-0": 0, "server-0": 0, "server-1": 0}
    assert rig.log(member="agent-0").count(b"got pong\n") == 2
    assert b"ready: http" in rig.log(member="server-0")
    result = rig.result()
    assert result is not None
    assert result.outcome == "succeeded"


def test_a_server_starts_again_in_place(tmp_path: Path) -> None:
    (tmp_path / "crash").touch()
    rig = served(tmp_path, restarts=1)
    assert go(rig) == {"agent-0": 0, "server-0": 0}
    assert rig.log(member="server-0").count(b"serving\n") == 2
    assert len(rig.view().attempts) == 1


def test_a_server_that_dies_ends_the_attempt(tmp_path: Path) -> None:
    (tmp_path / "crash").touch()
    rig = served(tmp_path)
    codes = go(rig)
    assert codes["agent-0"] == 78
    assert rig.exit(member="server-0").reason is Reason.USER_ERROR
    result = rig.result()
    assert result is not None
    assert (result.outcome, result.reason) == ("failed", Reason.USER_ERROR)


NODES = """
import json, os, sys, time
from pathlib import Path
rank, out = int(os.environ["RANK"]), Path(os.environ["SLIPWAY_OUTPUTS"])
resume = os.environ["SLIPWAY_RESUME"]
print("resume", sorted(p.name for p in Path(resume).iterdir()) if resume else [], flush=True)
if resume:
    print("mine", (Path(resume) / "shared").read_text(), flush=True)
told = ("MASTER", "PET", "WORLD", "LOCAL", "NODE")
print("env", json.dumps({name: value for name, value in os.environ.items() if name.startswith(told)}))
folder = out / "checkpoints" / "checkpoint-10"
if rank == 0 or sys.argv[1] == "all":
    folder.mkdir(parents=True)
    (folder / f"shard-{rank}").write_text(str(rank))
    (folder / "shared").write_text(f"of {rank}")
if not resume:
    print("saved", flush=True)
    time.sleep(60)
if rank == 0:
    (out / "model" / "w").touch()
"""


@pytest.mark.parametrize("who", ["all", "first"])
def test_checkpoints_of_several_ranks(tmp_path: Path, who: str) -> None:
    rig = Rig.of(
        tmp_path,
        (*python(NODES), who),
        role={"replicas": 2},
        outputs={"model": Output(), "checkpoints": Output(kind="checkpoints", match="checkpoint-*")},
        limits=Limits(grace=3.0),
    )
    processes = {member: rig.start(member) for member in rig.job.members()}
    until(lambda: [found.step for found, _ in stored_checkpoints.complete(rig.store, rig.run)] == [10])
    [(_, record)] = stored_checkpoints.complete(rig.store, rig.run)
    assert record.members == ("main-0", "main-1")
    for process in processes.values():
        process.terminate()
    assert {process.wait(timeout=60) for process in processes.values()} <= {143, 75}
    assert go(rig) == {"main-0": 0, "main-1": 0}
    files = b"['shard-0', 'shard-1', 'shared']" if who == "all" else b"['shard-0', 'shared']"
    for rank in (0, 1):
        log = rig.log(2, f"main-{rank}")
        assert b"resume " + files in log
        assert (b"mine of %d" % (rank if who == "all" else 0)) in log
        env_text = json.loads(log.split(b"env ")[1].split(b"\n")[0])
        assert (env_text["WORLD_SIZE"], env_text["NODE_RANK"], env_text["PET_NNODES"]) == ("2", str(rank), "2")
        assert env_text["MASTER_ADDR"] == "127.0.0.1"
    ports = {rig.log(2, f"main-{rank}").split(b'MASTER_PORT": "')[1].split(b'"')[0] for rank in (0, 1)}
    assert len(ports) == 1


def test_a_rank_that_is_killed_ends_the_attempt_for_all(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("sh", "-c", "echo up; exec sleep 60"), role={"replicas": 2})
    first, second = rig.start("main-0"), rig.start("main-1")
    until(lambda: b"up\n" in rig.log(member="main-1"))
    assert terminate(second) == 143
    assert first.wait(timeout=60) in (75, 143)
    assert rig.result() is None
