"""A copy of a commit in which faults are tried, with an environment of its own that imports the product from there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.faults.patches import Fault, Wrong, patched
from tests.support import outcomes

# As the Makefile sets them
ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
# They read the patches themselves, and would fail with each
OWN: Final = ("tests/unit/faults", "tests/integration/faults")


class Tree:
    def __init__(self, root: Path, commit: str) -> None:
        self._root, self._commit = root, commit
        self.path = root / "build/faults/tree"
        if not (self.path / ".git").exists():
            shutil.rmtree(self.path, ignore_errors=True)
            self._git(root, "worktree", "prune")
            self._git(root, "worktree", "add", "--force", "--detach", str(self.path), commit)
        self._git(self.path, "reset", "-q", "--hard")
        self._git(self.path, "checkout", "-q", "--detach", commit)
        self.reset()
        self._link()
        self._python = self._made()
        self._check()

    def reset(self) -> None:
        changed = self._git(self.path, "diff", "--name-only", "HEAD").splitlines()
        self._git(self.path, "reset", "-q", "--hard")
        self._git(self.path, "clean", "-fdq", "-e", ".venv*", "-e", ".tools")
        shutil.rmtree(self.path / ".hypothesis", ignore_errors=True)  # failures of the fault before
        self._forget(changed)

    def apply(self, fault: Fault) -> None:
        patched(fault, self.path)  # what is wrong is told
        done = subprocess.run(["git", "apply", str(fault.file)], cwd=self.path, capture_output=True, text=True)
        if done.returncode:
            raise Wrong(f"{fault.file}: it does not apply: {done.stderr.strip()}")
        self._forget(list(fault.hunks))

    def pytest(self, marks: str, tests: Sequence[str], *options: str) -> tuple[list[outcomes.Outcome], str]:
        """How each test ended. The text is what went wrong before any test could run, or "" ."""
        if not tests:
            return [], ""
        file = self.path.with_name(f"outcomes-{os.getpid()}.jsonl")
        file.unlink(missing_ok=True)
        command = [self._python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.support.outcomes"]
        command += ["--outcomes", str(file), "-m", marks, *options, *(f"--ignore={own}" for own in OWN), *tests]
        done = subprocess.run(command, cwd=self.path, env=_environment(), capture_output=True, text=True)
        ended = list(outcomes.read(file).values())
        file.unlink(missing_ok=True)
        wrong = done.returncode not in (0, 1, 5) or (done.returncode == 1 and not ended)
        # xdist ends a run that -x stopped as if it was interrupted
        wrong = wrong and not any(outcome.how == "failed" for outcome in ended)
        return ended, "\n".join((done.stdout + done.stderr).splitlines()[-15:]) if wrong else ""

    def _git(self, folder: Path, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise Wrong(f"git {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _forget(self, changed: Sequence[str]) -> None:
        """Deletes what was compiled of the changed files: Python takes it for theirs when size and second agree."""
        for file in (self.path / name for name in changed if name.endswith(".py")):
            for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
                compiled.unlink()

    def _link(self) -> None:
        for tool in (*self._root.glob(".venv-*"), self._root / ".tools"):
            link = self.path / tool.name
            if tool.exists() and not link.exists():
                link.symlink_to(tool)

    def _made(self) -> str:
        """A virtual environment with the packages of ours, in which the tree comes before the editable install. A
        variable would not do: tests start processes with a PYTHONPATH of their own."""
        ours, venv = Path(sys.prefix), self.path / ".venv"
        python = venv / "bin/python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = ours / "lib" / version / "site-packages"
        lines = f"{self.path}\nimport site; site.addsitedir({str(packages)!r})\n"
        (venv / "lib" / version / "site-packages/faults.pth").write_text(lines, encoding="utf-8")
        for script in (ours / "bin").iterdir():
            copy = venv / "bin" / script.name
            if copy.exists() or copy.is_symlink():
                continue
            if script.read_bytes()[:2] == b"#!":
                copy.write_bytes(script.read_bytes().replace(os.fsencode(ours), os.fsencode(venv)))
                copy.chmod(0o755)
            else:
                copy.symlink_to(script)
        return str(python)

    def _check(self) -> None:
        """The product is imported from the tree, from any folder."""
        for package in ("launcher", "training", "eval"):
            if (self.path / package).is_dir():
                program = f"import {package}; print({package}.__file__)"
                command = [self._python, "-c", program]
                done = subprocess.run(command, cwd="/", env=_environment(), capture_output=True, text=True)
                if not done.stdout.startswith(f"{self.path}/"):
                    raise Wrong(f"{package} is not imported from {self.path}: {done.stdout}{done.stderr}")


def _environment() -> dict[str, str]:
    """Without PYTHONPATH, which may lead to the clone."""
    return {**ENVIRONMENT, **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}}
