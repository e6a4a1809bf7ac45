"""How many modules each verb loads: what a verb does not need comes back one import at a time, and nobody notices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import api
from launcher.store.file import FileStore
from tests.support.fakerun import FakeAttempt, write_run

SCRIPT = """
import sys
bare = set(sys.modules)
from launcher.cli import main
code = main(sys.argv[1:])
sys.stdout.flush()
dear = {"dataclasses", "inspect", "logging", "typing_extensions", "asyncio", "tarfile", "ctypes"}
loaded = [sys.modules[name] for name in sys.modules.keys() - bare]
# a room of ours whose __init__.py says nothing costs nothing
rooms = [each for each in loaded if each and each.__name__.startswith("launcher.") and hasattr(each, "__path__")
         and all(name.startswith("__") or isinstance(value, type(sys)) for name, value in vars(each).items())]
print(code, len(loaded) - len(rooms), *sorted(dear & sys.modules.keys()), file=sys.stderr)
"""
# verb -> the most modules that it may load beyond the interpreter's own (measured, and five more)
MOST = {
    ("--help",): 12,
    ("render", "kubernetes.yaml", "--store", "s3://bucket/x"): 178,
    ("render", "local.yaml"): 184,
    ("status",): 194,
    ("status", "one"): 201,
    ("logs", "one"): 197,
    ("submit", "local.yaml"): 230,
}
LOCAL = "name: one\ncommand: [x]\nresources: {cpus: 1}\n"
KUBERNETES = (
    f"name: one\nbackend: kubernetes\nimage: ghcr.io/o/i@sha256:{'0' * 64}\ncommand: [x]\nlimits: {{deadline: 1h}}\n"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project whose local job has been run."""
    (tmp_path / "local.yaml").write_text(LOCAL)
    (tmp_path / "kubernetes.yaml").write_text(KUBERNETES)
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state, gpus: 0}\n")
    (job,) = api.load("local.yaml", cwd=tmp_path).group.runs
    store = FileStore(tmp_path / "store", sync=False)
    store.make()
    write_run(store, job, [FakeAttempt(logs={"main-0": {0: b"said\n"}})])
    return tmp_path


def test_no_verb_loads_more_than_it_needs(home: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "XDG_", "COV"))}
    for words, most in MOST.items():
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *words],
            cwd=home,
            env={**environ, "HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        code, count, *dear = done.stderr.splitlines()[-1].split()
        print(words, count)
        assert (code, dear) == ("0", []), (words, done.stderr)
        assert int(count) <= most, (words, count)


LOADED = """
import sys
from importlib import import_module
from launcher.msgspec_import import load_msgspec
load_msgspec()
import_module(sys.argv[1])
dear = {"dataclasses", "inspect", "logging", "typing_extensions"}
print(sys.argv[1] in sys.modules, *sorted(dear & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    "module",
    ["launcher.backends.local.supervisor.process", "launcher.runtime.run", "launcher.cli.printing.follow"],
)
def test_what_every_local_run_starts_loads_no_dear_module(module: str) -> None:
    """The supervisor, a run's own process, and who follows it: each is a part of what a hello takes."""
    argv = [sys.executable, "-c", LOADED, module]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"], (module, done.stdout)
