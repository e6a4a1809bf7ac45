"""Completion as a shell does it: real shells, where they are installed, with the names of the local cache."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.cli.verbs.completion import names, verbs
from launcher.cli.verbs.submit import keep_names
from launcher.store.base import Store
from launcher.userdata.cache import Cache
from launcher.verbs.status import STATES
from tests.support.fakerun import fake_job, write_group, write_run
from tests.support.needs import marked

BIN = Path(sys.executable).parent
CLEAR = "\x15"  # ctrl+u: empties the line that is being typed


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_STORE", file_store.url)
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CACHE", "STATE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def runs(file_store: Store, capsys: pytest.CaptureFixture[str]) -> list[str]:
    made = [write_run(file_store, fake_job(name)) for name in ("train", "evaluate", "transform")]
    write_group(file_store, made)
    assert main(["status"]) == 0  # what was seen is what is offered
    assert main(["groups"]) == 0
    capsys.readouterr()
    return made


def bash(line: str) -> list[str]:
    """What bash offers at the end of a line that is being typed."""
    script = f"""
    source <(launcher completion bash)
    compopt() {{ :; }}  # outside of a real completion it is an error
    COMP_LINE={line!r} COMP_WORDS=({line})
    [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
    _launcher
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return _run(["bash", "--norc", "-c", script])


def fish(line: str) -> list[str]:
    script = f"launcher completion fish | source\ncomplete -C {line!r}"
    return [word.split("\t")[0] for word in _run(["fish", "--no-config", "-c", script])]


def _run(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=True, timeout=120)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


SHELLS = [pytest.param(shell, marks=marked(shell.__name__)) for shell in (bash, fish)]


@pytest.mark.parametrize("shell", SHELLS)
def test_verbs_names_states_and_options(runs: list[str], shell) -> None:  # type: ignore[no-untyped-def]
    assert {"status", "groups", "top"} <= set(shell("launcher "))
    assert sorted(shell("launcher logs tra")) == sorted(["train", "transform", runs[0], runs[2]])
    assert shell(f"launcher status {runs[1][:-3]}") == [runs[1]]
    (group,) = [name for name in shell("launcher results group-") if name.startswith("group-")]
    assert re.fullmatch(r"group-[0-9a-f]{12}", group)
    assert shell("launcher status --state qu") == ["queued"]
    assert {"local", "kubernetes"} <= set(shell("launcher submit --backend "))
    assert shell("launcher cost --backend lam") == ["lambda"]
    assert "--watch" in shell("launcher status --w")
    assert set(shell("launcher status -o ")) >= {"json", "wide"}


@pytest.mark.parametrize("shell", SHELLS)
def test_files_where_files_are_meant(runs: list[str], tmp_path: Path, shell) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "train.yaml").write_text("name: train\ncommand: [x]\n")
    if shell is fish:
        assert "train.yaml" in fish("launcher render tra")
        assert {"train.yaml", "train"} <= set(fish("launcher diff tra"))
        assert "train.yaml" not in fish("launcher logs tra")
    else:
        assert bash("launcher render tra") == []  # readline then takes files: `complete -o default`
        assert "-o default" in subprocess.run(["launcher", "completion", "bash"], capture_output=True, text=True).stdout


@marked("zsh")
def test_zsh_reads_its_script(runs: list[str]) -> None:
    """The function is defined and offers names; `compadd` is replaced, because outside a prompt it is an error."""
    script = """
    compdef() { : }
    compadd() { [[ $1 == -a ]] && print -l -- ${(P)2} || { shift; print -l -- "$@" } }
    _describe() { print -l -- ${(P)2} }
    _files() { print FILES }
    source <(launcher completion zsh)
    words=(launcher logs tra) CURRENT=3; _launcher; print -- ---
    words=(launcher status --state q) CURRENT=4; _launcher; print -- ---
    words=(launcher render tra) CURRENT=3; _launcher; print -- ---
    words=(launcher '') CURRENT=2; _launcher
    """
    told = "\n".join(_run(["zsh", "-f", "-c", script])).split("---")
    assert sorted(told[0].split()) == sorted(["train", "transform", runs[0], runs[2]])
    assert told[1].split() == [*STATES]
    assert "FILES" in told[2]
    assert "top:show what running runs use" in told[3]


class Prompt:
    """A shell at a terminal: types keys and reads the screen until a text is there."""

    def __init__(self, command: list[str], begin: str) -> None:
        pid, self.screen = pty.fork()
        if pid == 0:
            os.execvpe(command[0], command, {**os.environ, "TERM": "xterm", "INPUTRC": "/dev/null"})
        self.pid = pid
        self.type(begin + " && echo read''y\n", until="ready\r\n")

    def type(self, keys: str, until: str) -> str:
        """What the shell wrote meanwhile, without the terminal's codes."""
        os.write(self.screen, keys.encode())
        written, text = b"", ""
        while until not in text:
            if not select.select([self.screen], [], [], 120)[0]:
                raise AssertionError(f"{until!r} did not come: {text!r}")
            written += os.read(self.screen, 65536)
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x07", "", written.decode(errors="replace"))
        return text

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.screen)


PROMPTS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(launcher completion bash)"),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; source <(launcher completion zsh)"),
}


@pytest.mark.parametrize(
    "shell",
    [pytest.param(name, marks=marked(name)) for name in PROMPTS],
)
def test_the_tab_key_at_a_prompt(runs: list[str], tmp_path: Path, shell: str) -> None:
    """The script as a person loads it, and the key that a person presses."""
    (tmp_path / "train.yaml").write_text("name: train\ncommand: [x]\n")
    prompt = Prompt(*PROMPTS[shell])
    try:
        for typed, completed in (
            ("launcher gro", "launcher groups "),
            ("launcher logs eval", "launcher logs evaluate"),
            ("launcher status --state qu", "launcher status --state queued "),
            ("launcher status --wat", "launcher status --watch "),
            ("launcher render trai", "launcher render train.yaml "),
        ):
            prompt.type(f"{CLEAR}{typed}\t", until=completed)
    finally:
        prompt.end()


def test_no_store_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens there, and what listens next to it never answers: completion does not even connect."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"s3://bucket/x?endpoint=http://127.0.0.1:{server.getsockname()[1]}&region=us-east-1"
        monkeypatch.setenv("SLIPWAY_STORE", url)
        with Cache() as cache:
            cache.see(url, "run", ["far-0123456789ab"])
        assert bash("launcher logs f") == ["far", "far-0123456789ab"]
        with pytest.raises(BlockingIOError):
            server.accept()


def test_the_store_and_profile_that_were_typed_count(runs: list[str], tmp_path: Path) -> None:
    other = (tmp_path / "other").as_uri()
    with Cache() as cache:
        cache.see(other, "run", ["elsewhere-0123456789ab"])
    assert names(["logs", "--store", other, "e"]) == ["elsewhere", "elsewhere-0123456789ab"]
    assert names(["logs", "e"]) == ["evaluate", runs[1]]
    assert names(["logs", "--profile", "nobody", "e"]) == []


def test_what_was_just_submitted_is_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_names((tmp_path / "store").as_uri(), "group-0123456789ab", ["fresh-0123456789ab"])
    assert names(["logs", "fr"]) == ["fresh", "fresh-0123456789ab"]


def test_of_thousands_of_runs_only_jobs_and_groups(file_store: Store) -> None:
    with Cache() as cache:
        cache.see(file_store.url, "run", [f"many-{k:012x}" for k in range(5000)])
    assert names(["logs", ""]) == ["many"]
    assert len(names(["logs", "many-00000000000"])) == 16


def test_every_verb_that_takes_names_offers_them() -> None:
    """A new verb with an argument that names runs calls it as the others do, or says so in NAMES."""
    offering = {verb for verb, one in verbs().items() if one.names}
    assert offering >= {
        *("status", "wait", "logs", "exec", "forward", "cancel", "retry", "gather", "results", "compare", "report"),
        *("top", "diff", "rm"),
    }
