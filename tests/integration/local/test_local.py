"""Runs on this machine, with the real supervisor, the real runtime and real commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.backends.local import daemon
from launcher.errors import BadInput
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.spec.model import Limits, Ready, Resources, Role, Timing
from launcher.store.layout import RunKeys, works
from launcher.userdata import secrets
from launcher.verbs.cancel import cancel
from launcher.verbs.retry import retry
from launcher.verbs.submit import submit
from launcher.version import __version__
from tests.integration.local.machine import CHECKPOINTS, COUNT, Machine, environ, machine, wait_for
from tests.support.jobs import OUT, changed, group, reads


def test_a_pipeline_runs_in_order_and_only_once(here: Machine) -> None:
    write = "out = pathlib.Path(E['SLIPWAY_OUTPUTS'], 'out'); out.mkdir(exist_ok=True)\n"
    first = here.job("first", write + "(out / 'a').write_text('1'); say('ran', 'first')", outputs=OUT)
    second = here.job(
        "second",
        write
        + "(out / 'a').write_text(pathlib.Path(E['SLIPWAY_INPUTS'], 'x', 'a').read_text() + '2'); say('ran', 'second')",
        outputs=OUT,
        inputs={"x": reads(first)},
    )
    third = here.job(
        "third",
        "say('ran', 'third', pathlib.Path(E['SLIPWAY_INPUTS'], 'x', 'a').read_text())",
        inputs={"x": reads(second)},
    )
    assert [one.state for one in here.submit(first, second, third)] == ["submitted"] * 3
    assert [result.outcome for result in here.wait(first, second, third)] == ["succeeded"] * 3
    assert [one.state for one in here.submit(first, second, third)] == ["succeeded"] * 3
    assert here.lines("ran") == ["first", "second", "third 12"]


def test_a_failing_stage_ends_its_dependants(here: Machine) -> None:
    first = here.job("first", "sys.exit('no luck')", outputs=OUT)
    second = here.job("second", "say('ran', 'second')", outputs=OUT, inputs={"x": reads(first)})
    third = here.job("third", "say('ran', 'third')", inputs={"x": reads(second)})
    beside = here.job("beside", "say('ran', 'beside')")
    here.submit(first, second, third, beside)
    found = here.wait(first, second, third, beside)
    assert [result.reason for result in found] == [
        Reason.USER_ERROR,
        Reason.UPSTREAM_FAILED,
        Reason.UPSTREAM_FAILED,
        Reason.SUCCEEDED,
    ]
    assert here.lines("ran") == ["beside"]


def test_a_retried_stage_serves_what_waits(here: Machine) -> None:
    """The second stage is submitted again first, and starts when a retry of the first one succeeds."""
    script = "out = pathlib.Path(E['SLIPWAY_OUTPUTS'], 'out'); out.mkdir(exist_ok=True)\n"
    script += "(here / 'fixed').exists() or sys.exit(3)\n(out / 'a').write_text('1')"
    first = here.job("first", script, outputs=OUT)
    second = here.job("second", "say('ran', 'second')", inputs={"x": reads(first)})
    here.submit(first, second)
    here.wait(first, second)
    (again_second,) = retry(here.store, [run_id(second)]).runs
    here.submit(again_second)
    (here.path / "fixed").touch()
    (again_first,) = retry(here.store, [run_id(first)]).runs
    here.submit(again_first)
    assert [result.outcome for result in here.wait(again_first, again_second)] == ["succeeded"] * 2
    assert here.lines("ran") == ["second"]
    assert next(iter(here.store.scan(works(here.wait(again_first)[0].work)))).key.endswith(
        f"{run_id(again_first)}.json"
    )


def test_killed_supervisor_the_run_goes_on_and_is_adopted(here: Machine) -> None:
    wait = "while not (here / 'go').exists(): time.sleep(0.02)\n"
    one = here.job("count", COUNT + wait, outputs=CHECKPOINTS, role={"env": {"STEPS": "8"}})
    here.submit(one)
    wait_for(lambda: len(here.lines("steps")) >= 2, explain=here.explain)
    before = here.runtimes()
    assert here.kill_supervisor()
    wait_for(lambda: here.supervisor() is None)
    assert list(here.backend.mine())  # any look at the queue starts another
    assert here.supervisor() is not None
    assert here.runtimes() == before
    (here.path / "go").touch()
    assert here.wait(one)[0].outcome == "succeeded"
    assert here.lines("steps") == [str(step) for step in range(1, 9)]
    assert here.attempts(one) == 1


def test_after_a_power_cut_it_goes_on_where_it_was(here: Machine) -> None:
    one = here.count(limits=Limits(grace=0.3))
    two = here.job("waits", "say('waited')", inputs={"x": reads(here.job("never", "pass"))})
    here.submit(one)
    here.submit(two)
    wait_for(lambda: here.store.head(RunKeys(run_id(one)).attempt(1).checkpoint_complete(2)), explain=here.explain)
    here.power_cut()
    assert not here.runtimes()
    assert here.supervisor() is None
    assert {seen.handle.run for seen in here.backend.mine()} == {run_id(one), run_id(two)}
    assert here.wait(one)[0].outcome == "succeeded"
    assert len(here.lines("starts")) == here.attempts(one) == 2
    steps = [int(line) for line in here.lines("steps")]
    assert steps.count(1) == steps.count(2) == 1
    cancel(here.store, run_id(two), here.backend)
    here.wait(two)


def test_slots_are_kept(tmp_path: Path) -> None:
    script = "say('log', 'start'); time.sleep(0.3); say('log', 'end')"
    with machine(tmp_path, cpus=1, gpus=1) as here:
        jobs = [here.job(f"j{k}", script, role={"resources": Resources(cpus=1.0)}) for k in range(3)]
        here.submit(*jobs)
        here.wait(*jobs)
        assert here.lines("log") == ["start", "end"] * 3
        many = here.job("many", "pass", role={"resources": Resources(gpus=2)})
        with pytest.raises(BadInput, match="2 GPUs"):
            here.submit(many)
        assert here.store.read(RunKeys(run_id(many)).job) is None


def test_ranks_find_each_other(here: Machine) -> None:
    """Two ranks with torchrun's variables: they meet at MASTER_ADDR:MASTER_PORT."""
    script = """
import socket
rank, world = int(E["RANK"]), int(E["WORLD_SIZE"])
address = (E["MASTER_ADDR"], int(E["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(address)
    other, _ = server.accept()
    say("met", world, other.recv(100).decode())
else:
    while True:
        try:
            socket.create_connection(address, 1).sendall(b"rank 1")
            break
        except OSError:
            time.sleep(0.05)
"""
    one = here.job("ranks", script, role={"replicas": 2})
    here.submit(one)
    assert here.wait(one)[0].outcome == "succeeded", here.explain()
    assert here.lines("met") == ["2 rank 1"]


def test_roles_with_needs_and_endpoints(here: Machine) -> None:
    head = f"import os, pathlib, sys\nhere = pathlib.Path({str(here.path)!r})\n"
    server = (
        "import http.server, os\n"
        "class Handler(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(b'welcome')\n"
        "    def log_message(self, *words): pass\n"
        "http.server.HTTPServer(('127.0.0.1', int(os.environ['SLIPWAY_PORT_HTTP'])), Handler).serve_forever()\n"
    )
    client = head + (
        "import json, urllib.request\n"
        "address = os.environ['SLIPWAY_ENDPOINT_SERVER']\n"
        "address = json.loads(address)[0] if address.startswith('[') else address\n"
        "url = address if '://' in address else 'http://' + address\n"
        "(here / 'said').write_text(urllib.request.urlopen(url + '/health', timeout=10).read().decode())\n"
    )
    roles = {
        "agent": Role((sys.executable, "-c", client), leader=True, needs=("server",)),
        "server": Role((sys.executable, "-c", server), ports={"http": 0}, ready=Ready("/health")),
    }
    one = here.job("roles", "", roles=roles)
    here.submit(one)
    (result,) = here.wait(one)
    assert result.outcome == "succeeded", here.explain()
    assert (here.path / "said").read_text() == "welcome"


def test_secrets_reach_the_command_and_nothing_else(here: Machine) -> None:
    one = here.job("secret", "say('seen', E['TOKEN']); print('token is', E['TOKEN'])", secrets={"TOKEN": "local"})
    with pytest.raises(BadInput, match="launcher secrets set TOKEN"):
        here.submit(one)
    assert list(here.store.scan("")) == []
    secrets.put(here.state.secrets, "TOKEN", "xyzzy-12345")
    here.submit(one)
    assert here.wait(one)[0].outcome == "succeeded", here.explain()
    assert here.lines("seen") == ["xyzzy-12345"]
    secrets.remove(here.state.secrets, "TOKEN")
    assert [done.state for done in here.submit(one)] == ["succeeded"]  # nothing is needed to hear how it ended
    secrets.put(here.state.secrets, "TOKEN", "xyzzy-12345")
    (here.path / "seen").unlink()
    held = [path for path in here.path.rglob("*") if path.is_file() and b"xyzzy-12345" in path.read_bytes()]
    assert held == [here.state.secrets]


def test_retry_resumes_with_another_limit(here: Machine) -> None:
    one = here.count(steps=8, limits=Limits(deadline=3.0, grace=0.3))  # long enough for a checkpoint on any machine
    here.submit(one)
    (result,) = here.wait(one)
    assert (result.outcome, result.reason) == ("failed", Reason.DEADLINE)
    made = retry(here.store, [run_id(one)], overrides=["limits.deadline=10m"])
    (again,) = made.runs
    assert again.limits.deadline == 600.0
    here.submit(again)
    assert here.wait(again)[0].outcome == "succeeded", here.explain()
    steps = [int(line) for line in here.lines("steps")]
    starts = here.lines("starts")
    assert int(starts[-1].split()[1]) >= 2
    assert steps.count(1) == steps.count(2) == 1
    assert set(steps) == set(range(1, 9))


YAML = """
name: hello
command: [python, -c, "import time, pathlib; time.sleep(0.5); pathlib.Path('{folder}/ran').open('a').write('x')"]
timing: {{beat: 0.3s, stale: 60s, fence: 20s}}
"""


def launcher(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    shell = environ(XDG_CACHE_HOME=str(folder / "cache"), PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return subprocess.Popen(
        ["launcher", *arguments],
        cwd=folder,
        env=shell,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_the_verbs_and_a_closed_terminal(tmp_path: Path) -> None:
    """Submit returns, its whole session is killed, the run goes on; the same command again follows it to its end."""
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state}\n")
    (tmp_path / "hello.yaml").write_text(YAML.format(folder=tmp_path))
    with machine(tmp_path) as here:
        first = launcher(tmp_path, "submit", "hello.yaml", "-o", "json")
        said = first.communicate(timeout=60)
        assert first.returncode == 0, said
        assert '"state": "submitted"' in said[0]
        with pytest.raises(ProcessLookupError):  # nobody is left in the submitter's session
            os.killpg(first.pid, signal.SIGKILL)
        assert len(here.state.queued()) == 1 or here.lines("ran")
        follow = launcher(tmp_path, "submit", "hello.yaml", "--follow")
        assert follow.communicate(timeout=60) is not None
        assert follow.returncode == 0
        assert here.lines("ran") == ["x"]
        again = launcher(tmp_path, "submit", "hello.yaml")
        out, error = again.communicate(timeout=60)
        assert again.returncode == 0
        assert "succeeded" in out
        assert "nothing to run" in error
        status = launcher(tmp_path, "local", "status", "-o", "json")
        (about,) = json.loads(status.communicate(timeout=60)[0])
        assert (about["queue"], about["version"], about["stopped"]) == ([], __version__, False)
        os.kill(about["supervisor"], signal.SIGSTOP)
        written = here.state.who.read_bytes()
        here.state.who.write_bytes(written.replace(f'"{__version__}"'.encode(), b'"0.0.9"'))
        said = launcher(tmp_path, "local", "status").communicate(timeout=60)
        assert f"supervisor pid {about['supervisor']}, stopped, begun" in said[0]
        assert f"`kill -CONT {about['supervisor']}`" in said[1]
        assert f"of version 0.0.9, and this launcher is {__version__}: `launcher local stop`" in said[1]
        here.state.who.write_bytes(written)
        os.kill(about["supervisor"], signal.SIGCONT)
        stop = launcher(tmp_path, "local", "stop")
        stop.communicate(timeout=60)
        assert stop.returncode == 0
        assert here.supervisor() is None


def test_stopping_with_the_runs_and_starting_again(here: Machine) -> None:
    one = here.count(limits=Limits(grace=0.3), timing=Timing(beat=0.2, stale=30.0, fence=20.0))
    here.submit(one)
    wait_for(lambda: here.store.head(RunKeys(run_id(one)).attempt(1).checkpoint_complete(2)), explain=here.explain)
    assert daemon.stop(here.state, runs=True)
    assert not here.runtimes()
    assert here.result(one) is None
    assert [seen.handle.run for seen in here.backend.mine()] == [run_id(one)]
    assert here.wait(one)[0].outcome == "succeeded", here.explain()
    assert here.exits(one)[1].reason is Reason.PREEMPTED
    assert here.attempts(one) == 2


def test_who_follows_a_run_does_not_start_again_what_somebody_has_stopped(tmp_path: Path) -> None:
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state}\n")
    (tmp_path / "long.yaml").write_text("name: long\nimage: x\ncommand: [sleep, '300']\nlimits: {deadline: 1h}\n")
    with machine(tmp_path) as here:
        follow = launcher(tmp_path, "submit", "long.yaml", "--backend", "local", "--follow")
        wait_for(here.runtimes)
        stop = launcher(tmp_path, "local", "stop", "--runs")
        assert "1 run waits and goes on with the next launcher command" in stop.communicate(timeout=60)[1]
        time.sleep(3.0)
        assert here.supervisor() is None
        assert not here.runtimes()
        launcher(tmp_path, "status").communicate(timeout=60)  # somebody asks
        wait_for(here.runtimes)
        launcher(tmp_path, "cancel", "long").communicate(timeout=60)
        said, _ = follow.communicate(timeout=60)
        assert "has stopped this machine's queue" in said, said
        assert "cancelled" in said


def test_work_that_is_done_is_adopted_before_anything_starts(here: Machine) -> None:
    script = "out = pathlib.Path(E['SLIPWAY_OUTPUTS'], 'out'); (out / 'a').write_text('1'); say('ran', 'once')"
    first = here.job("first", script, outputs=OUT)
    here.submit(first)
    here.wait(first)
    second = changed(first, limits=Limits(grace=2.0, deadline=600.0))
    (planned,) = submit(group(second), here.store, here.backend, plan=True)
    assert (planned.state, planned.reason) == ("succeeded", "adopted")
    assert here.result(second) is None
    (done,) = here.submit(second)
    assert (done.state, done.reason) == ("succeeded", "adopted")
    assert run_id(first) in done.message
    assert not here.state.entry(run_id(second)).exists()
    assert here.lines("ran") == ["once"]
    (again,) = here.submit(second)
    assert (again.state, again.reason) == ("succeeded", "adopted")


def test_a_runtime_that_refuses_before_it_claims_ends_the_run(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image whose launcher is too old for the job, settings that it does not understand: nobody could write the
    end, and the run was `queued` for ever."""
    monkeypatch.setenv("SLIPWAY_TUNING", "{")
    refused = here.job("refused", "say('ran')")
    here.submit(refused)
    (result,) = here.wait(refused)
    assert (result.outcome, result.reason, result.attempt) == ("failed", Reason.CONFIG_ERROR, 0)
    assert "SLIPWAY_TUNING" in result.message
    assert not here.lines("ran")
