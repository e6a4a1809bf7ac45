"""The command in places where output cannot go, where arguments are empty, and where somebody interrupts it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from launcher.cli import VERBS

LAUNCHER = str(Path(sys.executable).with_name("launcher"))
JOB = "name: a\ncommand: [x]\n"
PRINTING = (["--help"], ["--version"], ["schema"], ["render", "job.yaml"], ["render", "--help"], ["status"])


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "slipway.yaml").write_text("store: ./store\n")
    (tmp_path / "store").mkdir()
    return tmp_path


def environ(work: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "XDG_"))}
    return {**kept, "HOME": str(work / "home"), **more}


def run(work: Path, *words: str | bytes, **options: object) -> subprocess.CompletedProcess[str]:
    env = options.pop("env", environ(work))
    done = subprocess.run(
        [LAUNCHER, *words],
        cwd=work,
        env=env,  # type: ignore[arg-type]
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
        **{"stdout": subprocess.PIPE, **options},  # type: ignore[call-overload]
    )
    out = (done.stdout or b"").decode("utf-8", "backslashreplace")
    return subprocess.CompletedProcess(done.args, done.returncode, out, done.stderr.decode("utf-8", "replace"))


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_full_device_is_said_in_one_line(words: Sequence[str], work: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run(work, *words, stdout=full)
    if words == ["status"]:  # an empty store: all that is said stands on standard error
        assert done.returncode == 0
        return
    assert done.returncode == 2, done.stderr
    assert lines(done)[-1].endswith("standard output: No space left on device")
    assert len([line for line in lines(done) if "No space" in line]) == 1


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_closed_standard_output_is_no_fault(words: Sequence[str], work: Path) -> None:
    """`>&-` means that nobody wants to read it; nothing else may get its number."""
    shown = subprocess.run(
        ["bash", "-c", '"$@" >&-', "-", LAUNCHER, *words], cwd=work, env=environ(work), capture_output=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert b"Traceback" not in shown.stderr


def test_with_all_streams_closed_the_command_still_does_its_work(work: Path) -> None:
    shown = subprocess.run(
        ["bash", "-c", '"$@" <&- >&- 2>&-', "-", LAUNCHER, "init", "made.yaml"],
        cwd=work,
        env=environ(work),
        check=False,
    )
    assert shown.returncode == 0
    text = (work / "made.yaml").read_text()
    assert text.startswith("# A job:")
    assert "written. Next" not in text  # what is printed did not land in the file that got number 1


@pytest.mark.parametrize("words", PRINTING[:4], ids=" ".join)
def test_a_reader_that_goes_away_is_no_fault(words: Sequence[str], work: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(work, *words, stdout=writer)
    finally:
        os.close(writer)
    assert done.returncode == 0, done.stderr
    assert lines(done) == []


def test_a_pipe_that_does_not_block_gets_all_of_it(work: Path) -> None:
    """Another program on the same terminal may have set it so."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen([LAUNCHER, "schema"], cwd=work, env=environ(work), stdout=writer) as process:
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            body = stream.read()
    assert process.returncode == 0
    assert len(body) > 8192
    assert json.loads(body)["title"] == "Slipway job"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_is_utf8_whatever_the_locale_says(encoding: str, work: Path) -> None:
    (work / "job.yaml").write_text('name: a\ncommand: [x, "→ ü 漢"]\n', encoding="utf-8")
    plain = run(work, "render", "job.yaml", env=environ(work, PYTHONIOENCODING="utf-8"))
    done = run(work, "render", "job.yaml", env=environ(work, PYTHONIOENCODING=encoding))
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert "→ ü 漢" in done.stdout


VERB_ARGUMENTS = {
    "compare": ["", "b"],
    "exec": ["", "--", "true"],
    "forward": ["", "80"],
    "cluster": ["up", "--name", ""],
    "images": ["build", ""],
    "secrets": ["set", ""],
    "local": [""],
    "completion": [""],
    "doctor": ["--store", ""],
    "reap": ["--store", ""],
    "validate": [""],
    "schema": [""],
}


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_an_empty_argument_is_refused_by_every_verb(verb: str, work: Path) -> None:
    """`launcher submit "$FILE"` with an empty FILE submitted the working folder."""
    done = run(work, verb, *VERB_ARGUMENTS.get(verb, [""]))
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "empty" in lines(done)[-1] or "invalid choice" in lines(done)[-1]
    for option in ("--store=", "--profile="):
        done = run(work, verb, option, "x", "y")
        assert done.returncode == 2
        assert "empty" in lines(done)[-1]
    assert not (work / "store" / "runs").exists()


def test_an_argument_that_is_no_text_is_refused(work: Path) -> None:
    for words in (["status", b"\xff"], ["render", b"\xff.yaml"], ["logs", "--store", b"s3://b/\xff", "x"]):
        done = run(work, *words)
        assert done.returncode == 2, done.stderr
        assert len(lines(done)) == 1
        assert "is not UTF-8" in lines(done)[0]


@pytest.mark.parametrize("words", [["render"], ["submit"], ["validate"], ["lint"], ["push"], ["init"]], ids=" ".join)
@pytest.mark.parametrize("path", ["x" * 300, "d/" * 2500 + "x", "job.yaml/x"], ids=["long", "deep", "below a file"])
def test_a_path_that_no_system_takes_is_said_in_one_line(words: Sequence[str], path: str, work: Path) -> None:
    done = run(work, *words, path)
    assert done.returncode in (2, 3), done.stderr
    assert len(lines(done)) == 1


FAULT = """
import launcher.cli.verbs.schema as verb, sys
from launcher.cli import main
def run(args):
    token = "hf_" + "a1B2" * 8
    hidden = "a-value-that-nobody-may-read"
    raise {error}
verb.run = run
sys.argv = ["launcher", "schema"]
sys.exit(main())
"""


def fault(work: Path, error: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FAULT.format(error=error)],
        cwd=work,
        env=environ(work, **more),
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_nobody_thought_of_ends_in_one_line_and_a_report(work: Path) -> None:
    done = fault(
        work,
        'KeyError(f"no {token} at s3://KEY:SECRET@bucket and p4ssw0rd-of-mine")',
        MY_PASSWORD="p4ssw0rd-of-mine",
    )
    assert done.returncode == 70
    assert len(lines(done)) == 1
    report = Path(done.stderr.rpartition(" ")[2].strip())
    assert report.is_relative_to(work / "home")
    text = report.read_text()
    assert "Traceback (most recent call last)" in text
    assert "KeyError" in text
    for part in (text, done.stderr):
        assert "hf_a1B2" not in part
        assert "KEY:SECRET" not in part
        assert "p4ssw0rd" not in part
        assert "a-value-that-nobody-may-read" not in part.replace('hidden = "a-value-that-nobody-may-read"', "")
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert stat.S_IMODE(report.parent.stat().st_mode) == 0o700


def test_secrets_of_this_machine_are_masked_in_the_report(work: Path) -> None:
    set_ = [LAUNCHER, "secrets", "set", "SOME_NAME"]
    subprocess.run(set_, cwd=work, env=environ(work), input=b"neither-token-nor-name\n", check=True)
    done = fault(work, 'ValueError("it was neither-token-nor-name")')
    report = Path(done.stderr.rpartition(" ")[2].strip())
    assert "neither-token-nor-name" not in report.read_text() + done.stderr
    assert "it was ***" in report.read_text()


@pytest.mark.parametrize("error", ["RecursionError('deep')", "MemoryError()", "AssertionError()", "OSError('x')"])
def test_every_kind_of_fault_is_caught(error: str, work: Path) -> None:
    done = fault(work, error)
    assert done.returncode == 70
    assert len(lines(done)) == 1


def test_a_report_that_cannot_be_written_is_said(work: Path) -> None:
    (work / "home").mkdir()
    (work / "home" / ".local").write_text("a file, where a folder should be made")
    done = fault(work, "KeyError('x')")
    assert done.returncode == 70
    assert len(lines(done)) == 1
    assert "no report" in done.stderr


def test_a_store_whose_connection_breaks_is_no_reader_that_went_away(work: Path) -> None:
    """BrokenPipeError of a socket ended with exit code 0."""
    assert fault(work, "BrokenPipeError(32, 'Broken pipe')").returncode != 0


def interrupted(command: list[str], work: Path, when: Callable[[subprocess.Popen[bytes]], None]) -> tuple[int, str]:
    process = subprocess.Popen(
        command, cwd=work, env=environ(work), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    when(process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return process.returncode, said.decode()


# stands before the launcher in sys.path: stops the process at the n-th import after the launcher's first line, so that
# a test meets every moment and not those that a clock happens to hit
AT_IMPORT = """
import os, signal, sys
class Stop:
    left = {number}
    def find_spec(self, name, path=None, target=None):
        Stop.left -= 1
        if Stop.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return None
from launcher.cli import main
sys.meta_path.insert(0, Stop())
sys.argv = ["launcher", *{words}]
code = main()
print("imports left", Stop.left, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("words", [["status"], ["render", "job.yaml"]], ids=" ".join)
def test_an_interrupt_at_any_import_prints_no_traceback(words: list[str], work: Path) -> None:
    number, ended = 1, False
    while not ended:
        done = subprocess.run(
            [sys.executable, "-c", AT_IMPORT.format(number=number, words=words)],
            cwd=work,
            env=environ(work),
            capture_output=True,
            text=True,
            check=False,
        )
        ended = "imports left" in done.stderr and int(done.stderr.rpartition(" ")[2]) > 0
        assert "Traceback" not in done.stderr, (number, done.stderr)
        assert "Exception ignored" not in done.stderr, (number, done.stderr)
        assert ended or done.returncode in (-signal.SIGINT, 130), (number, done.returncode, done.stderr)
        number += 7
    assert number > 40


def test_hardly_anything_loads_before_an_interrupt_is_quiet() -> None:
    """`main` begins with it; what loads before are modules of C, and the two packages around it."""
    program = "import sys; before = set(sys.modules); import launcher.cli; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    others = {name for name in loaded if name not in sys.builtin_module_names}
    assert others - {"__future__", "select"} == {"launcher", "launcher.cli", "launcher.cli.process"}


def test_an_interrupt_in_the_first_moments_prints_no_traceback(work: Path) -> None:
    """From `main` on. Before it the interpreter sets itself up, some 10 ms in which only it could answer: with a
    traceback, or, before the first line of Python, with the bare name and exit code 1, or a fatal error of its own."""
    met = step = 0
    while step < 40 or not met:  # on a busy machine `main` begins late
        code, said = interrupted([LAUNCHER, "status"], work, lambda _, step=step: time.sleep(step * 0.005))  # type: ignore[misc]
        if re.search("Traceback|^Fatal Python error: init_", said) or (code, said) == (1, "KeyboardInterrupt\n"):
            assert not re.search(r"launcher/cli/.*, in main", said), (step, said)
        else:
            met += 1
            assert code in (-signal.SIGINT, 130, 0), (step, code, said)
        step += 1


LATE = """
import _thread, sys, threading
from launcher.cli import process
started = _thread.start_new_thread

def late(function, arguments):
    # as on a machine that has no time for it: it begins when the verb has ended
    return started(lambda: (ended.wait(), print("began", flush=True), function(*arguments)), ())

def run():
    ended.set()
    return 0

ended = threading.Event()
_thread.start_new_thread = late
process.begin()
process.verb(run)
print("over", flush=True)
"""


def test_a_verb_waits_until_its_thread_has_begun() -> None:
    """One that begins while the interpreter ends is a crash: seen once, of `local stop` at a load of 25."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.split() == ["began", "over"]
