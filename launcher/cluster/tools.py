"""Runs kind, kubectl and docker as programs. Each call has a time limit; an error contains the program's last lines."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final, NamedTuple

from launcher.errors import BadInput, Unreachable

# program -> how to get it
INSTALL: Final = {
    "docker": "https://docs.docker.com/engine/install, or Debian's package docker.io",
    "kind": "go install sigs.k8s.io/kind@v0.30.0, or https://kind.sigs.k8s.io/docs/user/quick-start/#installation",
    "kubectl": "https://kubernetes.io/docs/tasks/tools/#kubectl, or your system's package kubectl",
}
MINUTES: Final = 10
LINES: Final = 16
TELLING: Final = re.compile(
    r"^\s*(ERROR|error:|Error|\[ERROR|fatal)|error execution phase|failed to (pull|create)|not healthy|unhealthy"
)


class ProgramOutput(NamedTuple):
    """The output of a program and its exit code."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What its error output says went wrong, in at most `LINES` lines: those that name an error, and the last ones.
        kind prints a cause first and then a hundred lines of kubeadm's."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        telling = [number for number, line in enumerate(lines) if TELLING.search(line)]
        last = range(max(0, len(lines) - LINES), len(lines))
        if not telling or len(lines) <= LINES:
            return "\n".join(lines[-LINES:])
        shown = sorted({*telling[: LINES // 2], *list(last)[-LINES // 2 :]})
        text: list[str] = []
        for before, number in zip([shown[0] - 1, *shown], shown, strict=False):
            text += ["..."] if number != before + 1 else []
            text.append(lines[number])
        return "\n".join(text)


def require(names: Sequence[str]) -> None:
    """Raises BadInput that lists every missing program and how to install it."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        lines = [f"not on the PATH: {', '.join(missing)}", *(f"  {name}: {INSTALL[name]}" for name in missing)]
        raise BadInput("\n".join(lines))


def ask(argv: Sequence[str], *, text: str | None = None, minutes: float = MINUTES) -> ProgramOutput:
    """Runs a program; any exit code is allowed. Raises Unreachable when it does not end in time, BadInput when it is
    missing.

    KUBECONFIG is removed from its environment: only the command line selects the cluster.
    """
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    try:
        done = subprocess.run(
            list(argv),
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=minutes * 60,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"`{_shown(argv)}` did not end within {minutes:g} minutes") from None
    except OSError as error:
        raise BadInput(f"`{argv[0]}` cannot be run: {error.strerror}") from None
    return ProgramOutput(done.returncode, done.stdout, done.stderr)


def run(argv: Sequence[str], *, text: str | None = None, minutes: float = MINUTES) -> str:
    """Runs a program and returns its output. Raises Unreachable with its last lines when it fails."""
    answer = ask(argv, text=text, minutes=minutes)
    if answer.code:
        raise Unreachable(f"`{_shown(argv)}` failed ({answer.code}):\n{answer.words}")
    return answer.out


def _shown(argv: Sequence[str]) -> str:
    """The command as a user would type it, without the options that select the cluster."""
    shown, skip = [], False
    for part in argv:
        if skip or part in ("--kubeconfig", "--context"):
            skip = not skip
            continue
        shown.append(part)
    return " ".join(shown)
