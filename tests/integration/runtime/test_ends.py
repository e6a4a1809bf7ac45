"""How attempts end: the right reason, exit code and message for everything that can go wrong with a command."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from launcher.protocol.records import Beat, StoredFolder
from launcher.reasons import Reason
from launcher.runtime.process import procs
from launcher.runtime.process.procs import MARK
from launcher.runtime.uploads.spool import LARGE
from launcher.spec.model import Input, Limits, Output, Resources, Timing
from launcher.spec.resolve.threads import threads
from launcher.store.manifest import read_manifest
from tests.integration.runtime.rig import Rig, command_of, no_process_left, python, started, terminate, until
from tests.support.needs import lacking, need_root
from tests.support.s3 import ENVIRONMENT, S3Server

NOTHING = ("sh", "-c", "true")
A_FILE = ("sh", "-c", "cd $SLIPWAY_OUTPUTS; rmdir model; touch model")
AGAIN, NAMED = Limits(retries=1, retry_on=("78",)), Limits(retries=1, retry_on=("config_error",))
MODEL, OTHER = {"model": Output()}, {"other": Output()}


def test_a_runtime_that_was_overtaken_while_it_was_frozen_says_lost(tmp_path: Path) -> None:
    """Its successor on this machine ends its command, which to the runtime, awake again, looks like any other end."""
    timing = Timing(beat=0.2, stale=8.0, fence=6.0)
    code = "import os, time; print('up', flush=True); time.sleep(0 if os.environ['SLIPWAY_ATTEMPT'] == '2' else 600)"
    rig = Rig.of(tmp_path, python(code), timing=timing, limits=Limits(grace=1.0, retries=0))
    first = started(rig)
    (command,) = command_of(first.pid)
    first.send_signal(signal.SIGSTOP)
    try:
        assert rig.go() == 0  # the same queue entry: it waits until the frozen one has been silent for long
        assert not procs.alive(command.pid, command.start, procs.boot_id())
    finally:
        first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=60) == 0  # the run has succeeded meanwhile
    assert rig.exit(1).reason is Reason.LOST
    assert rig.exit(2).reason is Reason.SUCCEEDED


def test_a_command_that_starts_is_told_before_the_next_beat_is_due(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("sleep", "60"), timing=Timing(beat=50.0, stale=600.0, fence=300.0))
    process = rig.start()
    until(lambda: (found := rig.store.read(rig.keys.attempt(1).beat("main-0"))) and b"running" in found[0])
    terminate(process)


def test_the_first_step_is_told_before_the_next_beat_is_due(tmp_path: Path) -> None:
    says = """sleep 1.5; echo '{"step": 3, "total": 9}' > $SLIPWAY_PROGRESS; exec sleep 60"""
    rig = Rig.of(tmp_path, ("sh", "-c", says), timing=Timing(beat=50.0, stale=600.0, fence=300.0))
    process = rig.start()
    until(lambda: (found := rig.store.read(rig.keys.attempt(1).beat("main-0"))) and b'"step":3' in found[0])
    terminate(process)


def test_a_deadline_waits_for_no_beat(tmp_path: Path) -> None:
    limits = Limits(deadline=0.5, grace=1.0)
    rig = Rig.of(tmp_path, ("sleep", "20"), limits=limits, timing=Timing(beat=300.0, stale=3600.0, fence=1800.0))
    assert rig.go() == 78
    assert rig.exit().reason is Reason.DEADLINE


@pytest.mark.two_bodies
def test_beats_go_on_where_a_record_cannot_be_read(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("sh", "-c", "echo up; until [ -e go ]; do sleep 0.05; done"))
    process = started(rig)
    rig.store.put(rig.keys.result, b"{no json")
    beat = rig.keys.attempt(1).beat("main-0")
    until(lambda: b"DecodeError" in rig.log())
    seq = msgspec.json.decode(rig.store.get(beat), type=Beat).seq
    until(lambda: msgspec.json.decode(rig.store.get(beat), type=Beat).seq > seq + 2)
    rig.store.delete([rig.keys.result])
    (rig.root / "work" / "main-0" / "work" / "go").touch()
    assert process.wait(60) == 0
    result = rig.result()
    assert result is not None
    assert result.outcome == "succeeded"


def test_success(tmp_path: Path) -> None:
    code = """
import json, os, sys, time
from pathlib import Path
env = os.environ
out = Path(env["SLIPWAY_OUTPUTS"]) / "results"
(out / "env.json").write_text(json.dumps(dict(env)))
(out / "config.json").write_text(Path(env["SLIPWAY_CONFIG"]).read_text())
(out / "argv.json").write_text(json.dumps(sys.argv[1:]))
with open(env["SLIPWAY_METRICS"], "a") as file:
    file.write('{"step": 1, "name": "loss", "value": 0.5, "time": 1}\\nno metric\\n')
with open(env["SLIPWAY_PROGRESS"], "a") as file:
    file.write('{"step": 3, "total": 9, "phase": "train", "message": "well"}\\n')
print("printed"); print("complained", file=sys.stderr)
time.sleep(0.6)
"""
    rig = Rig.of(
        tmp_path,
        (*python(code), "--resume=$SLIPWAY_RESUME", "$SLIPWAY_INPUTS/x", "$HOME", "$$SLIPWAY_RUN"),
        outputs={"results": Output()},
        config={"lr": 1e-05, "steps": [1, 2.0, True, None], "to": "$SLIPWAY_OUTPUTS/results", "empty": {}},
        role={"env": {"LOG_LEVEL": "info", "WHERE": "$SLIPWAY_RUN"}},
    )
    between = {"SLIPWAY_STAGE": "first", "SLIPWAY_CLUSTER": "no certificate"}  # backend and runtime
    rig.environ |= between
    assert rig.go() == 0
    result = rig.result()
    assert result is not None
    assert (result.outcome, result.reason, result.attempt) == ("succeeded", Reason.SUCCEEDED, 1)
    assert result.shown is not None  # it repeats what a reader of many runs would ask for one by one
    (attempt,) = rig.view().attempts
    assert (result.shown.claim, result.shown.exit) == (attempt.claims["main-0"], rig.exit())
    manifest = read_manifest(rig.store, rig.keys.attempt(1).output_manifest("results"))
    assert manifest is not None
    assert result.shown.folders == {"results": StoredFolder(3, manifest.size, manifest.digest)}
    end = rig.exit()
    assert (end.code, end.reason) == (0, Reason.SUCCEEDED)
    assert end.running > 0
    log = rig.log().decode()
    assert "printed\n" in log
    assert "complained\n" in log
    assert "1 lines were not metrics" in log
    env = json.loads(rig.output("results/env.json"))
    assert (env["SLIPWAY_RUN"], env["SLIPWAY_ATTEMPT"], env["SLIPWAY_ROLE"]) == (rig.run, "1", "main")
    assert (env["SLIPWAY_RANK"], env["SLIPWAY_NODES"], env["SLIPWAY_RESUME"]) == ("0", "1", "")
    assert (env["LOG_LEVEL"], env["WHERE"], env["WANDB_RUN_ID"], env["WANDB_RESUME"]) == (
        "info",
        rig.run,
        rig.run,
        "allow",
    )
    private = {"SLIPWAY_JOB", "SLIPWAY_PLACEMENT", "SLIPWAY_WORKDIR", "SLIPWAY_TUNING", *between}
    assert not {*private, "RANK", "LOCAL_RANK"} & env.keys()
    config = rig.output("results/config.json").decode()
    assert json.loads(config) == {
        "lr": 1e-05, "steps": [1, 2.0, True, None], "to": f"{env['SLIPWAY_OUTPUTS']}/results", "empty": {},
    }  # fmt: skip
    assert "1.0e-05" in config  # a YAML 1.1 reader takes 1e-05 for a text
    argv = ["--resume=", f"{env['SLIPWAY_INPUTS']}/x", "$HOME", "$SLIPWAY_RUN"]
    assert json.loads(rig.output("results/argv.json")) == argv
    [metrics] = [key for key in rig.objects() if "/metrics/" in key]
    assert json.loads(rig.store.get(rig.keys.prefix + metrics))["value"] == 0.5
    beat, _ = rig.view().attempts[0].beats["main-0"]
    assert (beat.step, beat.total, beat.message) == (3, 9, "train: well")
    assert no_process_left(rig)


def test_the_runtime_brings_nothing_heavy(tmp_path: Path) -> None:
    heavy = ("boto3", "obstore", "yaml", "torch", "asyncio")
    code = f"import sys, launcher.runtime.run; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(
    ("command", "job", "code", "reason", "says"),
    [
        (python("import sys; print('ValueError: x'); sys.exit(3)"), {}, 78, Reason.USER_ERROR, "with 3: ValueError: x"),
        (python("import sys; sys.exit(3)"), {"limits": Limits(retries=1)}, 1, Reason.USER_ERROR, "exited with 3"),
        (python("import sys; sys.exit(78)"), {"limits": Limits(retries=1)}, 78, Reason.CONFIG_ERROR, "exited with 78"),
        (python("import sys; sys.exit(78)"), {"limits": AGAIN}, 1, Reason.USER_ERROR, "exited with 78"),
        (python("import sys; sys.exit(78)"), {"limits": NAMED}, 1, Reason.CONFIG_ERROR, "exited with 78"),
        (python("import sys; sys.exit(143)"), {"limits": Limits(retries=1)}, 1, Reason.USER_ERROR, "exited with 143"),
        (python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), {}, 78, Reason.USER_ERROR, "SIGSEGV"),
        (python("import os, signal; os.kill(os.getpid(), 9)"), {}, 78, Reason.USER_ERROR, "SIGKILL from outside"),
        (("no-such-program", "x"), {}, 78, Reason.CONFIG_ERROR, "`no-such-program`: there is no such program"),
        (("/no/such/program",), {}, 78, Reason.CONFIG_ERROR, "no such program"),
        (("./README",), {}, 78, Reason.CONFIG_ERROR, "no such program"),
        (("/etc/passwd",), {}, 78, Reason.CONFIG_ERROR, "Permission denied"),
        (NOTHING, {"outputs": MODEL | OTHER}, 78, Reason.OUTPUT_MISSING, "model, other"),
        (A_FILE, {"outputs": MODEL}, 78, Reason.OUTPUT_MISSING, "model"),
        (NOTHING, {"secrets": {"NO_SUCH": "profile"}}, 78, Reason.CONFIG_ERROR, "secret NO_SUCH"),
        (NOTHING, {"inputs": {"a": Input(url="file:///no/file")}}, 78, Reason.INPUT_MISSING, "is not there"),
        (NOTHING, {"inputs": {"a": Input(url="ftp://host/file")}}, 78, Reason.CONFIG_ERROR, "allowed: file://"),
        (NOTHING, {"inputs": {"a": Input(work="0" * 64, output="x", job="pre")}}, 78, Reason.INPUT_MISSING, "job pre"),
        (NOTHING, {"inputs": {"a": Input(run="pre-000000000000", output="x")}}, 78, Reason.INPUT_MISSING, "is not in"),
        (("sleep", "60"), {"limits": Limits(deadline=0.3, grace=1.0)}, 78, Reason.DEADLINE, "has run for"),
    ],
)  # fmt: skip
def test_reasons(
    tmp_path: Path, command: tuple[str, ...], job: dict[str, Any], code: int, reason: Reason, says: str
) -> None:
    rig = Rig.of(tmp_path, command, **job)
    assert rig.go() == code
    end = rig.exit()
    assert end.reason is reason
    assert says in end.message
    assert "Traceback" not in rig.log().decode()
    assert f"{reason}: {end.message}" in rig.log().decode()
    result = rig.result()
    assert (result is None) == (code == 1)
    if result is not None:
        assert (result.outcome, result.reason) == ("failed", reason)
    assert no_process_left(rig)


@pytest.mark.ci
@pytest.mark.ml
def test_of_torchrun_the_process_that_failed_and_its_words_are_told(tmp_path: Path) -> None:
    """The last line of torchrun's own report is a row of `=`."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1': sys.exit('config: model: there is no folder /nowhere')\n"
        "time.sleep(60)\n"
    )
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))
    rig = Rig.of(tmp_path, command)
    assert rig.go() == 78
    assert rig.exit().message == (
        "the command exited with 1: local rank 1 exited with 1: config: model: there is no folder /nowhere"
    )
    assert no_process_left(rig)


@pytest.mark.nightly  # the rule of the threads is a table in tests/unit/spec/test_threads.py
@pytest.mark.ml
def test_two_processes_of_torchrun_share_the_cpus_and_one_that_exits_with_78_ends_the_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, time\n"
        "import torch\n"
        "print('threads', os.environ['OMP_NUM_THREADS'], torch.get_num_threads(), flush=True)\n"
        "if os.environ['RANK'] == '1':\n"
        "    time.sleep(1)\n"
        "    sys.exit(78)\n"
        "time.sleep(60)\n"
    )
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))
    rig = Rig.of(tmp_path, command, role={"resources": Resources(cpus=2.0)}, limits=Limits(retries=3, grace=2.0))
    rig.environ["OMP_NUM_THREADS"] = str(threads(rig.job.roles["main"]))  # as the local backend does
    assert rig.go() == 78
    assert (rig.exit().reason, rig.exit().code) == (Reason.CONFIG_ERROR, 1)
    assert re.findall(r"^threads .*", rig.log().decode(), re.MULTILINE) == ["threads 1 1"] * 2
    assert no_process_left(rig)


def test_an_input_that_may_not_be_read(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("x")
    file.chmod(0)
    # root reads every file; without the right to trace it may not read this one
    closed = file if os.getuid() else Path("/proc/1/environ")
    with contextlib.suppress(PermissionError):
        closed.read_bytes()
        pytest.skip("everything can be read here")
    rig = Rig.of(tmp_path, ("true",), inputs={"a": Input(url=closed.as_uri())})
    assert rig.go() == 78
    assert (rig.exit().reason, "Permission denied" in rig.exit().message) == (Reason.INPUT_MISSING, True)


def test_an_input_that_can_not_be_read(tmp_path: Path) -> None:
    need_root()  # others may not even open it
    rig = Rig.of(tmp_path, ("true",), inputs={"a": Input(url="file:///proc/self/mem")})
    assert rig.go() == 75
    assert rig.exit().reason is Reason.INFRASTRUCTURE
    assert "Input/output error" in rig.exit().message


def test_an_empty_output_folder_is_there(tmp_path: Path) -> None:
    anew = "cd $SLIPWAY_OUTPUTS; rmdir model && mkdir model"
    rig = Rig.of(tmp_path, ("sh", "-c", anew), outputs={"model": Output()})
    assert rig.go() == 0


def test_an_output_folder_that_was_written_into_and_is_empty_at_the_end_is_there(tmp_path: Path) -> None:
    wrote = "cd $SLIPWAY_OUTPUTS/model; touch x; rm x"
    rig = Rig.of(tmp_path, ("sh", "-ec", wrote), outputs={"model": Output()})
    assert rig.go() == 0
    assert rig.objects("attempts/1/outputs") == ["attempts/1/outputs/model.manifest.json"]


@pytest.mark.parametrize("command", ["true", "mkdir -p $SLIPWAY_OUTPUTS/model"])
def test_an_output_that_nothing_was_put_into_is_missing(tmp_path: Path, command: str) -> None:
    rig = Rig.of(tmp_path, ("sh", "-c", command), outputs=MODEL)
    assert rig.go() == 78
    assert rig.exit().reason is Reason.OUTPUT_MISSING
    assert "the command put nothing into $SLIPWAY_OUTPUTS/model" in rig.exit().message


@pytest.mark.parametrize("sync", ["end", "live"])
def test_the_folders_of_outputs_are_there_before_the_command(tmp_path: Path, sync: Literal["end", "live"]) -> None:
    command = "cd $SLIPWAY_OUTPUTS; echo a > results/a; echo b > ckpt/1.ckpt"
    outputs = {"results": Output(sync=sync), "ckpt": Output(kind="checkpoints", match="*.ckpt")}
    rig = Rig.of(tmp_path, ("sh", "-ec", command), outputs=outputs)
    assert rig.go() == 0
    assert rig.output("results/a") == b"a\n"
    assert [attempt.checkpoints for attempt in rig.view().attempts] == [(1,)]


def test_a_run_that_saved_no_checkpoint_has_done_its_work_all_the_same(tmp_path: Path) -> None:
    outputs = MODEL | {"ckpt": Output(kind="checkpoints", match="*.ckpt")}
    rig = Rig.of(tmp_path, ("sh", "-c", "touch $SLIPWAY_OUTPUTS/model/w"), outputs=outputs)
    assert rig.go() == 0
    assert b"output ckpt: the command saved no checkpoint" in rig.log()


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    code = """
import os
out = os.path.join(os.environ["SLIPWAY_OUTPUTS"], "model")
os.makedirs(out, exist_ok=True)
with open(os.path.join(out, "weights"), "wb") as file:
    for _ in range(100):
        file.write(bytes(1 << 20))
"""

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))

    rig = Rig.of(tmp_path, python(code), outputs={"model": Output()})
    assert rig.go(preexec_fn=small_files) == 78
    assert rig.exit().reason is Reason.USER_ERROR
    assert "File too large" in rig.exit().message


@pytest.mark.s3
@pytest.mark.parametrize("wait", [0, 1])  # the first piece is in the store before the disk is full, or not
def test_no_room_for_the_log(tmp_path: Path, wait: int, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def small_files() -> None:  # files of the runtime; those of the server have room
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    command = ("sh", "-c", f"sleep {wait}; head -c 4000000 /dev/zero; echo end")
    rig = Rig.of(tmp_path, command, store=s3_server.url())
    assert rig.go(preexec_fn=small_files) == 0  # the log is cut, the work is not
    kept, told = rig.log()[: 1 << 20], rig.log()[1 << 20 :]
    assert re.fullmatch(rb"\n\[slipway\] (\d+) bytes of this log are lost: .*\n", told)
    assert len(kept) + rig.exit().lost > 4_000_000


@pytest.mark.parametrize("megabytes", [40, pytest.param(200, marks=pytest.mark.nightly)])
def test_bytes_of_any_kind_in_one_long_line(tmp_path: Path, megabytes: int) -> None:
    block = bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"")
    (tmp_path / "block").write_bytes(block * (1_000_000 // len(block)))
    size = (tmp_path / "block").stat().st_size
    code = f"""
import sys
block = open({str(tmp_path / "block")!r}, "rb").read()
for _ in range({megabytes}):
    sys.stdout.buffer.write(block)
"""
    rig = Rig.of(tmp_path, python(code))
    process = rig.start()
    peak = 0
    while process.poll() is None:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                peak = max(peak, int(line.split()[1]))
        time.sleep(0.02)
    assert process.returncode == 0
    assert 0 < peak < 120_000  # KiB
    spans = sorted(tuple(map(int, Path(key).stem.split("-"))) for key in rig.objects() if "/logs/" in key)
    assert spans[0][0] == 0
    if megabytes * size <= LARGE:  # one object has it all; a line that the runtime writes meanwhile comes after it
        assert spans[0][1] > megabytes * size
    assert all(here[1] == later[0] for here, later in itertools.pairwise(spans))
    log = rig.log()
    first = log.index(block)
    assert log[first : first + megabytes * size] == (tmp_path / "block").read_bytes() * megabytes


def test_secrets_are_masked_everywhere(tmp_path: Path) -> None:
    code = """
import json, os, sys, time
secret = os.environ["TOKEN"]
sys.stdout.write("a " + secret[:5]); sys.stdout.flush(); time.sleep(0.2)
sys.stdout.write(secret[5:] + " b\\n"); sys.stdout.flush()
with open(os.environ["SLIPWAY_METRICS"], "a") as file:
    file.write(json.dumps({"step": 1, "name": secret, "value": 1, "time": 0}) + "\\n")
with open(os.environ["SLIPWAY_PROGRESS"], "a") as file:
    file.write(json.dumps({"step": 1, "message": secret}) + "\\n")
time.sleep(0.4)
sys.exit("failed with " + secret)
"""
    rig = Rig.of(tmp_path, (*python(code), "--token=hf_verysecret"), secrets={"TOKEN": "profile"})
    rig.environ["TOKEN"] = "hf_verysecret"
    assert rig.go() == 78
    assert b"a *** b\n" in rig.log()
    assert rig.exit().message.endswith("failed with ***")
    for key in rig.objects():
        if key != "job.json":  # where this test wrote it, which `launcher` refuses
            assert b"verysecret" not in rig.store.get(rig.keys.prefix + key), key
    assert "verysecret" not in (tmp_path / "main-0.out").read_text()


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A cgroup's list of processes; 150 MB for all of them."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"slipway-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(150 << 20))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        members = group / "cgroup.procs"
        yield members
        until(lambda members=members: not members.read_text())
        group.rmdir()
        return
    lacking("cgroup")


@pytest.mark.parametrize("worker", [False, True])
def test_out_of_memory_is_told_from_a_kill(tmp_path: Path, small_memory: Path, worker: bool) -> None:
    code = "x = bytearray(400 << 20)"
    if worker:
        code = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {code!r}]).returncode != 0)"
    rig = Rig.of(tmp_path, python(code))
    assert rig.go(preexec_fn=lambda: small_memory.write_text(str(os.getpid()))) == 78
    assert rig.exit().reason is Reason.OUT_OF_MEMORY
    assert "because memory ran out" in rig.exit().message


def test_memory_that_belongs_to_no_process_ends_the_command_and_not_its_runtime(
    tmp_path: Path, small_memory: Path
) -> None:
    """Pages of /dev/shm count in the cgroup and in no process: the kernel killed the runtime, the larger process, and
    the attempt was `lost`, again and again."""
    code = """
import os, tempfile
file = tempfile.TemporaryFile(dir="/dev/shm")
for _ in range(400):
    file.write(b"x" * (1 << 20))
"""
    rig = Rig.of(tmp_path, python(code))
    assert rig.go(preexec_fn=lambda: small_memory.write_text(str(os.getpid()))) == 78
    assert rig.exit().reason is Reason.OUT_OF_MEMORY


def test_an_unexpected_fault_of_the_runtime_is_infrastructure(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("true",), config={"a": 1})
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import launcher.runtime.member.command as c\n"
        "def broken(*a): raise RuntimeError('a bug')\nc.write_config = broken\n"
    )
    rig.environ["PYTHONPATH"] = str(site)
    assert rig.go() == 75
    assert rig.exit().reason is Reason.INFRASTRUCTURE
    assert "RuntimeError: a bug" in rig.exit().message
    assert "Traceback" in rig.log().decode()


def test_what_is_wrong_with_its_own_environment_is_told(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("true",))
    rig.environ = {"SLIPWAY_RUN": "test-000000000000", MARK: "x"}
    assert rig.go() == 78
    assert "the job that the backend passed is" in (tmp_path / "main-0.out").read_text()
    rig.environ = {"SLIPWAY_JOB": '{"schema": 99}'}
    assert rig.go() == 78
    assert "too old" in (tmp_path / "main-0.out").read_text()
