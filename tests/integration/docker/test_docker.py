"""Runs in containers: limits, ends, faults of the engine and of the supervisor, and what must not be seen."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from launcher.backends.docker.container import NETWORK, RUNTIME_LABEL, network
from launcher.cli import main
from launcher.errors import BadInput, NotFound, Unreachable
from launcher.images.engine import Engine as Client
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.spec.model import Limits, Ready, Resources, Role
from launcher.store.layout import RunKeys
from launcher.userdata import secrets
from launcher.verbs.cancel import cancel
from tests.integration.docker.conftest import TUNING, Containers
from tests.integration.local.machine import CHECKPOINTS, COUNT, STAY, wait_for
from tests.support.engine import ROOT, Engine, run_folder
from tests.support.forwarding import fetch, forwarding
from tests.support.jobs import OUT, reads
from tests.support.s3 import KEY, SECRET, s3_server, s3_url

__all__ = ["s3_server", "s3_url"]
LOGIN = str(ROOT / "examples" / "login")

# a command that ends when it is told to: on a busy machine any other would be over before somebody has looked at it
GO = "while not (here / 'go').exists(): time.sleep(0.05)\n"
WRITE = "out = pathlib.Path(E['SLIPWAY_OUTPUTS'], 'out'); out.mkdir(exist_ok=True)\n"


def count(here: Containers, steps: int = 8, pace: float = 0.1, then: str = ""):  # type: ignore[no-untyped-def]
    return here.job("count", COUNT + then, outputs=CHECKPOINTS, role={"env": {"STEPS": str(steps), "PACE": str(pace)}})


def test_a_pipeline_runs_once_as_the_submitter_without_capabilities_and_leaves_no_container(here: Containers) -> None:
    first = here.job("first", WRITE + "(out / 'a').write_text(open('/proc/self/status').read())", outputs=OUT)
    second = here.job(
        "second",
        "text = pathlib.Path(E['SLIPWAY_INPUTS'], 'x', 'a').read_text()\n"
        "wanted = ('Uid', 'CapEff', 'NoNewPrivs')\n"
        "say('ran', *[line.split()[1] for line in text.splitlines() if line.startswith(wanted)])",
        inputs={"x": reads(first)},
    )
    here.submit(first, second)
    assert [result.outcome for result in here.wait(first, second)] == ["succeeded"] * 2
    assert [one.state for one in here.submit(first, second)] == ["succeeded"] * 2
    assert here.lines("ran") == [f"{os.getuid()} {'0' * 16} 1"]
    wait_for(lambda: not here.containers("-a"))


def test_a_killed_container_goes_on_from_its_checkpoint_in_a_new_one(here: Containers) -> None:
    one = count(here, steps=12, pace=0.05, then=STAY)
    here.submit(one)
    wait_for(lambda: here.store.head(RunKeys(run_id(one)).attempt(1).checkpoint_complete(2)), 60, here.explain)
    here.engine.docker("kill", here.containers()[0]["Id"])
    (result,) = here.wait(one, limit=90)
    assert (result.outcome, result.attempt) == ("succeeded", 2)
    second = here.lines("starts")[1].split()
    assert int(second[1]) >= 2  # it did not begin at nothing


@pytest.mark.nightly  # an engine of its own, because others are at work on the shared one: 2 GB are copied into it
@pytest.mark.alone
def test_an_engine_that_restarts_costs_time_and_no_work(
    tmp_path: Path, engine: Engine, cpu_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with second_engine(tmp_path / "engine", engine, cpu_image) as own:
        monkeypatch.setenv("DOCKER_HOST", own.host)
        monkeypatch.setenv("SLIPWAY_TUNING", json.dumps(TUNING))
        here = Containers(tmp_path, own, cpu_image)
        try:
            one = count(here, steps=12, pace=0.05, then=STAY)
            here.submit(one)
            wait_for(lambda: here.store.head(RunKeys(run_id(one)).attempt(1).checkpoint_complete(2)), 60, here.explain)
            own.restart()
            (result,) = here.wait(one, limit=120)
        finally:
            here.close()
    assert (result.outcome, result.attempt) == ("succeeded", 2)
    assert int(here.lines("starts")[1].split()[1]) >= 2  # it did not begin at nothing
    assert here.lines("steps")[-1] == "12"


@contextmanager
def second_engine(state: Path, first: Engine, image: str) -> Iterator[Engine]:
    """Another engine that has one image of the first."""
    state.mkdir()
    made = Engine(f"unix://{run_folder(state)}/docker.sock", base=first.base, state=state)
    made.start()
    try:
        with subprocess.Popen(["docker", "save", image], env=first.environment, stdout=subprocess.PIPE) as saved:
            subprocess.run(["docker", "load", "-q"], env=made.environment, stdin=saved.stdout, check=True)
        yield made
    finally:
        made.stop()


def test_a_killed_supervisor_is_replaced_and_adopts_the_container(here: Containers) -> None:
    one = count(here, steps=10, pace=0.05, then=GO)
    here.submit(one)
    wait_for(lambda: len(here.lines("steps")) >= 2)
    assert here.kill_supervisor()
    wait_for(lambda: not here.state.held())  # on a busy machine a killed process takes its time to die
    here.submit(one)
    (here.path / "go").touch()
    (result,) = here.wait(one)
    assert (result.outcome, result.attempt) == ("succeeded", 1)
    assert here.lines("starts") == ["1 0"]


def test_cancel_lets_the_command_save_and_ends_the_container(here: Containers) -> None:
    script = (
        "signal.signal(signal.SIGTERM, lambda *_: (say('saved', 'yes'), sys.exit(0)))\nsay('up', 1)\ntime.sleep(60)\n"
    )
    one = here.job("slow", script, limits=Limits(grace=5.0))
    here.submit(one)
    wait_for(lambda: here.lines("up"))
    cancel(here.store, run_id(one), here.backend)
    (result,) = here.wait(one)
    assert result.outcome == "cancelled"
    assert here.lines("saved") == ["yes"]
    assert not here.containers()


def test_out_of_memory_is_told_from_a_kill(here: Containers) -> None:
    eats = here.job(
        "eats",
        "say('up', 1)\nblock = [bytearray(1 << 20) for _ in range(2000)]\n",
        role={"resources": Resources(cpus=0.1, memory=192 << 20)},
    )
    dies = here.job("dies", "os.kill(os.getpid(), signal.SIGKILL)")
    here.submit(eats, dies)
    first, second = here.wait(eats, dies)
    assert (first.reason, second.reason) == (Reason.OUT_OF_MEMORY, Reason.USER_ERROR)


@pytest.mark.nightly
@pytest.mark.ml
def test_two_processes_of_torchrun_share_the_cpus_of_the_container(here: Containers) -> None:
    script = "import os, torch; print('threads', os.environ['OMP_NUM_THREADS'], torch.get_num_threads(), flush=True)"
    one = here.job("threads", "", role={"resources": Resources(cpus=2.0)})
    words = ("torchrun", "--standalone", "--nproc-per-node", "2", "--no-python", "python", "-c", script)
    one = replace(one, roles={name: replace(role, command=words) for name, role in one.roles.items()})
    here.submit(one)
    assert here.wait(one)[0].outcome == "succeeded", here.explain()
    assert re.findall(r"^threads .*", here.log(one), re.MULTILINE) == ["threads 1 1"] * 2


def test_memory_of_no_process_is_out_of_memory_at_once(here: Containers) -> None:
    """Pages of /dev/shm stay when the command is gone, so the kernel kills the runtime, too: it was tried 5 times."""
    fills = here.job(
        "fills",
        "say('up', 1)\nfile = open('/dev/shm/x', 'wb')\nfor _ in range(400): file.write(b'x' * (1 << 20))\n",
        role={"resources": Resources(cpus=0.1, memory=150 << 20, shm=500 << 20)},
    )
    here.submit(fills)
    (result,) = here.wait(fills)
    assert (result.outcome, result.reason) == ("failed", Reason.OUT_OF_MEMORY)
    assert len(here.lines("up")) == 1


def test_secrets_are_in_the_command_and_nowhere_else(here: Containers) -> None:
    secrets.put(here.state.make().secrets, "HF_TOKEN", "hush-hush-hush")
    one = here.job(
        "secretive",
        "say('got', len(E['HF_TOKEN'])); print('token', E['HF_TOKEN'], flush=True)\n" + GO,
        secrets={"HF_TOKEN": "local"},
    )
    here.submit(one)
    wait_for(lambda: here.lines("got"), 60, here.explain)
    (shown,) = here.containers()
    assert "hush" not in str(shown)
    (here.path / "go").touch()
    here.wait(one)
    assert here.lines("got") == ["14"]
    assert "token" in here.log(one)
    assert "hush" not in here.log(one)


def test_a_read_only_root_is_enough(here: Containers) -> None:
    script = (
        "try:\n    open('/opt/here', 'w')\nexcept OSError as error:\n    say('root', error.errno)\n"
        "open('/tmp/here', 'w'); open('here', 'w'); say('rest', 'fine')\n"
    )
    one = here.job("reads", script, options={"read_only": True})
    here.submit(one)
    assert here.wait(one)[0].outcome == "succeeded"
    assert here.lines("root") == ["30"]  # EROFS
    assert here.lines("rest") == ["fine"]


def test_roles_find_each_other(here: Containers) -> None:
    serve = (
        "from http.server import HTTPServer, SimpleHTTPRequestHandler\n"
        "HTTPServer(('0.0.0.0', int(E['SLIPWAY_PORT_HTTP'])), SimpleHTTPRequestHandler).serve_forever()"
    )
    ask = "import urllib.request\nsay('got', urllib.request.urlopen('http://' + E['SLIPWAY_ENDPOINT_SERVER']).status)"
    made = here.job("talk", ask)
    head = made.roles["main"].command[2].removesuffix(ask)
    roles = {
        "main": Role(
            (*made.roles["main"].command[:2], head + ask), leader=True, needs=("server",), resources=Resources(cpus=0.1)
        ),
        "server": Role(
            (*made.roles["main"].command[:2], head + serve),
            ports={"http": 0},
            ready=Ready("/"),
            resources=Resources(cpus=0.1),
        ),
    }
    one = here.job("talk", ask, roles=roles)
    here.submit(one)
    assert here.wait(one)[0].outcome == "succeeded"
    assert here.lines("got") == ["200"]


def test_an_image_without_the_runtime_is_refused_with_the_line_to_add(here: Containers) -> None:
    base = here.engine.base or "debian:bookworm-slim"
    one = here.job("bare", "pass", image=base)
    with pytest.raises(BadInput, match=r"no Slipway runtime: add .COPY slipway_cua-\*.whl .* .LABEL slipway.runtime"):
        here.backend.check([one])


def test_an_image_that_is_not_built_names_the_command(here: Containers) -> None:
    with pytest.raises(BadInput, match="launcher images build slipway-cpu"):
        here.backend.check([here.job("missing", "pass", image="slipway-cpu:0.0.0-00000000")])
    several = [here.job(name, "pass", image="slipway-cpu:0.0.0-00000000") for name in ("one", "two")]
    with pytest.raises(BadInput) as caught:
        here.backend.check(several)
    assert len(str(caught.value).splitlines()) == 1  # one image, one line


def test_exec_enters_the_container_of_a_run(here: Containers) -> None:
    one = here.job("waits", "say('up', 1)\n" + GO)
    here.submit(one)
    wait_for(lambda: here.lines("up"))
    argv = here.backend.execute(run_id(one), "main-0", ["sh", "-c", "echo inside; exit 3"], tty=False)
    done = subprocess.run(argv, env=here.engine.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "inside\n")
    (here.path / "go").touch()
    assert here.wait(one)[0].outcome == "succeeded"


PAGE = """
import http.server, threading
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8123), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
pathlib.Path("page").write_bytes(b"the page " * 100000)
say('up', 1)
"""


@pytest.mark.parametrize("network", ["none", "host"])
def test_a_port_of_the_containers_loopback_is_brought_here(here: Containers, network: str) -> None:
    """With `none`, no other way leads to it."""
    one = here.job(
        "serves", PAGE.replace("8123", "8123" if network == "none" else "0") + GO, options={"network": network}
    )
    here.submit(one)
    wait_for(lambda: here.lines("up"))
    if network == "none":
        with forwarding(here.backend.forward(run_id(one), "main-0", [(0, 8123)]), here.engine.environment) as port:
            for _ in range(3):
                assert fetch(f"http://127.0.0.1:{port}/page") == b"the page " * 100000
    else:
        assert "docker" not in here.backend.forward(run_id(one), "main-0", [(0, 8123)])
    (here.path / "go").touch()
    assert here.wait(one)[0].outcome == "succeeded"
    with pytest.raises(NotFound):
        here.backend.forward(run_id(one), "main-0", [(0, 8123)])


def test_ranks_find_each_other_by_name_in_a_network_of_their_own(here: Containers) -> None:
    """Nothing says which network: several members get the bridge `slipway`, where the engine answers for names."""
    script = (
        "import socket\n"
        "where = E['MASTER_ADDR'], int(E['MASTER_PORT'])\n"
        "if E['RANK'] == '0':\n"
        "    server = socket.create_server(('', where[1]))\n"
        "    say('heard', server.accept()[0].recv(99).decode(), where[0])\n"
        "else:\n"
        "    for _ in range(600):\n"
        "        try:\n"
        "            line = socket.create_connection(where)\n"
        "            break\n"
        "        except OSError:\n"
        "            time.sleep(0.1)\n"
        "    line.sendall(b'rank 1 of ' + E['WORLD_SIZE'].encode())\n"
    )
    one = here.job("pair", script, role={"replicas": 2})
    one = replace(one, options={key: value for key, value in one.options.items() if key != "network"})
    assert network(one) == NETWORK
    here.submit(one)
    assert here.wait(one)[0].outcome == "succeeded", here.explain()
    assert here.lines("heard") == [f"rank 1 of 2 slipway-{run_id(one)}-main-0-1-{here.state.id[:6]}"]
    here.engine.docker("network", "rm", NETWORK, check=False)


def test_an_engine_without_gpus_says_what_to_install(tmp_path: Path, here: Containers) -> None:
    if "nvidia" in here.engine.docker("info", "--format", "{{.Runtimes}}").stdout:
        pytest.skip("this engine gives GPUs")
    (tmp_path / "gpu").mkdir()
    with_gpu = Containers(tmp_path / "gpu", here.engine, here.image, gpus=["0"])
    try:
        one = with_gpu.job("wants", "pass", role={"resources": Resources(cpus=0.1, gpus=1)})
        with_gpu.submit(one)
        (result,) = with_gpu.wait(one)
    finally:
        with_gpu.close()
    assert (result.outcome, result.reason) == ("failed", Reason.CONFIG_ERROR)
    assert "install the NVIDIA Container Toolkit" in result.message


def test_an_image_whose_label_lies_ends_with_the_line_to_add(here: Containers) -> None:
    made = here.engine.docker("create", here.engine.base or "debian:bookworm-slim", "true").stdout.strip()
    tag = "slipway-test-lies:1"
    try:
        here.engine.docker("commit", f"--change=LABEL {RUNTIME_LABEL}=1", made, tag)
        one = here.job("lies", "pass", image=tag)
        here.backend.check([one])
        here.submit(one)
        (result,) = here.wait(one)
        assert (result.outcome, result.reason) == ("failed", Reason.CONFIG_ERROR)
        assert "has no `python` on its PATH: add `COPY slipway_cua-*.whl" in result.message
    finally:
        here.engine.docker("rm", made)
        here.engine.docker("rmi", "-f", tag, check=False)


def test_another_user_than_the_submitter_works_with_an_object_store(
    tmp_path: Path, here: Containers, s3_url: str
) -> None:
    (folder := tmp_path / "other").mkdir()
    tmp_path.chmod(0o711)
    folder.chmod(0o777)
    other = Containers(folder, here.engine, here.image, store=s3_url)
    try:
        script = WRITE + "(out / 'a').write_text('x'); say('who', os.getuid(), os.getgid())"
        one = other.job("other", script, outputs=OUT, options={"user": "1000:1000"})
        other.submit(one)
        (result,) = other.wait(one)
    finally:
        other.close()
    assert result.outcome == "succeeded"
    assert other.lines("who") == ["1000 1000"]


def test_credentials_in_a_file_of_the_submitters_home_are_enough(
    tmp_path: Path, here: Containers, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "home" / ".aws").mkdir(parents=True)
    text = f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    (home / "credentials").write_text(text)
    (home / "credentials").chmod(0o600)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home.parent))
    (tmp_path / "keyless").mkdir()
    keyless = Containers(tmp_path / "keyless", here.engine, here.image, store=s3_url)
    try:
        one = keyless.job("keyless", "say('up', 1)\n" + GO)
        keyless.submit(one)
        wait_for(lambda: keyless.lines("up"), 60, keyless.explain)
        (shown,) = keyless.containers()
        assert SECRET not in str(shown)
        (keyless.path / "go").touch()
        assert keyless.wait(one)[0].outcome == "succeeded"
    finally:
        keyless.close()


def test_a_store_on_loopback_is_refused_where_containers_can_not_reach_it(
    here: Containers, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(here.job("one", "pass"), store=s3_url, options={})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    with pytest.raises(BadInput, match="loopback"):
        here.backend.check([replace(one, store="s3://bucket/prefix")])
    here.backend.check([replace(one, store="s3://bucket/prefix?endpoint=http://10.0.0.1:9000")])  # it comes first
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    with pytest.raises(BadInput, match=r"loopback, which containers in the network `bridge` .*docker.network=host"):
        here.backend.check([one])
    here.backend.check([replace(one, options={"network": "host"})])


def test_a_network_that_is_not_there_is_refused_with_the_command_that_makes_it(here: Containers) -> None:
    with pytest.raises(BadInput, match="no network `slipw`: `docker network create slipw`"):
        here.backend.check([here.job("one", "pass", options={"network": "slipw"})])


def test_an_engine_that_this_user_may_not_ask_says_what_to_do(tmp_path: Path, here: Containers) -> None:
    root = os.geteuid() == 0
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        (tmp_path / "s").chmod(0)
        if root:
            os.seteuid(65534)
        try:
            with pytest.raises(Unreachable, match="join the group `docker`, or set DOCKER_HOST"):
                Client({"DOCKER_HOST": f"unix://{tmp_path / 's'}"})
        finally:
            if root:
                os.seteuid(0)


def test_the_verb_says_in_one_line_that_there_is_no_engine(
    here: Containers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    monkeypatch.chdir(here.path)
    store = here.path / "empty"
    assert main(["submit", LOGIN, "--backend", "docker", "--store", str(store)]) == 4  # a backend that is away
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "there is no Docker engine at tcp://127.0.0.1:9, which DOCKER_HOST names: start it, or set another" in said
    assert not list(store.rglob("job.json"))


def test_without_an_engine_nothing_is_submitted(here: Containers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    one = here.job("one", "pass")
    with pytest.raises(Unreachable, match="there is no Docker engine"):
        here.backend.check([one])
