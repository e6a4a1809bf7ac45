"""Every command that a message tells a user to type works as it was printed, on the run that the message is about.

A story on the local backend prompts the messages, takes the commands out of what was printed and runs each of them. A
hint in the source that the story does not prompt makes the test red.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.cli import VERBS
from tests.integration.documents.test_run import run
from tests.support.documented import FILLED, hints, tracked

FILES = {
    "slipway.yaml": "store: .slipway/store\nlocal: {state: .slipway/local}\n",
    "good.yaml": 'name: good\ncommand: [sh, -c, "echo hello"]\n',
    "bad.yaml": 'name: bad\ncommand: [sh, -c, "echo no; exit 78"]\n',
    "worse.yaml": 'name: worse\ncommand: [sh, -c, "exit 78"]\n',
    "slow.yaml": 'name: slow\ncommand: [sleep, "600"]\n',
    "secret.yaml": 'name: secret\ncommand: [sh, -c, "true"]\nsecrets: [TOKEN]\n',
    "steps.yaml": (
        "name: first\ncommand: [sh, -c, 'echo 1 > $SLIPWAY_OUTPUTS/data/a']\noutputs: [data]\n---\n"
        "name: second\ncommand: [sh, -c, 'cat $SLIPWAY_INPUTS/data/a; exit 78']\n"
        "inputs: {data: {job: first, output: data}}\n"
    ),
}
# hints of messages that need what is not here, and who prompts them
ELSEWHERE = {
    "launcher wait X": "the Kubernetes backend: tests/integration/kubernetes",
    "launcher logs X --previous": "a pod that is gone: tests/integration/kubernetes",
    "launcher images build X": "a container engine: tests/integration/images",
    "launcher images build X --push REGISTRY": "a container engine and a registry: tests/integration/images",
    "launcher images build X && launcher cluster up --name X --image X --jobset": "kind: tests/integration/k8s_tree",
    "launcher cluster down --name X": "kind: tests/cluster",
    "launcher cluster up --name X --jobset": "kind: tests/integration/k8s_tree",
    "launcher cluster up --name X": "kind, then the option of an addition: tests/integration/k8s_tree",
    "launcher submit X --backend X --follow": "kind, rendered as it stands by tests/integration/k8s_tree",
    "launcher rm X --yes": "an object that ran something else: tests/integration/kubernetes/test_comparing.py",
    "launcher status X": "a session of `launcher dev` that ended: a cluster",
    "launcher reap --backend X": "a machine that outlives its run: tests/integration/lambda_labs/test_paid.py",
    "launcher move X": "a job with two backends: tests/integration/local/test_moving.py",
    "launcher submit --run X --store X": "a submit that was killed: tests/integration/local/test_cut_off.py",
    "launcher rm X": "a run that cannot be read: tests/integration/cli/test_damaged.py",
    "launcher gather X --to DIR --what outputs": "DIR is the reader's: tests/integration/store/test_gather.py",
    "launcher retry X --resume": "other packages: tests/integration/local/test_packages.py types it",
}
_SHOWN = re.compile(rf"(launcher (?:{'|'.join(VERBS)})\b(?: (?:[\w./:=-]+|'[^']*'))+)")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hints") / "project"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    yield folder
    run("launcher local stop --runs", folder)


@pytest.fixture(scope="module")
def shown(project: Path) -> set[str]:
    """Plays the story; the hints that it ran, with X for names and options."""
    played: set[str] = set()

    def prompt(command: str, *expected: str, code: int = 0, typed: str = "", ends: int = 0) -> None:
        """`expected`: the hints that `command` prints, X for a name. Each of them ends with `ends`."""
        done = run(command, project)
        said = done.stdout + done.stderr
        assert done.returncode == code, f"$ {command}\n{said}"
        told = [line for line in dict.fromkeys(_SHOWN.findall(said)) if not line.startswith(f"{command}:")]
        assert {template(line) for line in told} == set(expected), f"$ {command}\n{said}"
        for line in told:
            answer = run(f"{typed}{line}", project)
            assert answer.returncode == ends, f"$ {command}\n{said}\n$ {line}\n{answer.stdout}{answer.stderr}"
            played.add(template(line))

    prompt("launcher init", "launcher submit X --follow")
    prompt("launcher init --example hello", "launcher submit X --backend local --follow")
    prompt("launcher submit good.yaml", "launcher status X --watch", "launcher logs X --follow")
    prompt("launcher submit good.yaml", "launcher results X")
    prompt("launcher status good", "launcher logs X")
    prompt("launcher submit bad.yaml --follow", "launcher logs X", "launcher retry X", code=1)
    run("launcher submit worse.yaml --follow", project)
    prompt("launcher submit worse.yaml", "launcher retry X", code=1)
    prompt("launcher submit secret.yaml", "launcher secrets set X", code=2, typed="echo value | ")
    prompt("launcher submit secret.yaml --follow")
    prompt("launcher run -- sh -c true", "launcher logs X --follow")
    prompt("launcher submit steps.yaml --follow", "launcher logs X", "launcher retry X", code=1)
    run("launcher submit slow.yaml", project)
    prompt("launcher rm slow", "launcher cancel X", code=5)
    return played


def template(line: str) -> str:
    """`launcher logs good-0123456789ab --follow` -> `launcher logs X --follow`"""
    words = line.split()
    named = [word if word.startswith("-") or word in ("set", *VERBS, "launcher") else "X" for word in words]
    return " ".join(named)


def test_every_hint_of_the_launcher_was_run(shown: set[str]) -> None:
    missing = []
    for path in tracked("launcher/*.py"):
        for hint in hints(path):
            for part in re.split(r"\s{2,}", hint.line):
                words = part.rstrip(")").replace(FILLED * 2, FILLED).replace(FILLED * 2, FILLED).split()
                if FILLED not in part or words[0] != "launcher" or words[1] not in VERBS:
                    continue
                line = " ".join("X" if FILLED in word else word for word in words)
                if line not in shown and line not in ELSEWHERE:
                    missing.append(f"{hint.place}: {line}")
    assert not missing
