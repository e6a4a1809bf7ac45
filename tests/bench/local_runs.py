"""What whole runs on this machine cost: CPU seconds of every process that they take.

    STAGES=50 OLD=<another checkout> python -m tests.bench.local_runs

`submit --follow` of a hello: the command line, the supervisor, the runtime with its leash, and the job's own command.
No supervisor lives before. The first one of a home and a store, then others of the same project. Then the stages of a
pipeline, each of which reads what the one before it wrote.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from launcher.backends.local.state import StateDir, SupervisorRecord, read

ROUNDS = int(os.environ.get("ROUNDS", "5"))
STAGES = int(os.environ.get("STAGES", "50"))
TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36
SLIPWAY = "backend: local\nstore: {store}\nlocal: {{state: {state}, gpus: 0}}\n"
HELLO = 'name: hello\ncommand: ["true"]\nconfig: {{number: {number}}}\n'


def pipeline(stages: int) -> str:
    """Jobs of which each reads the output of the one before."""
    texts = []
    for number in range(stages):
        read = f"inputs: {{before: {{job: s{number - 1}, output: out}}}}\n" if number else ""
        texts.append(
            f"name: s{number}\ncommand: [sh, -c, 'echo {number} > $SLIPWAY_OUTPUTS/out/n']\n{read}outputs: [out]\n"
            "resources: {cpus: 1}\n"
        )
    return "---\n".join(texts)


def followed(checkout: Path, folder: Path, text: str) -> dict[str, float]:
    """CPU seconds by part, and what the clock says. No supervisor lives before, and none afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    state = StateDir(folder / "queue")
    (folder / "slipway.yaml").write_text(SLIPWAY.format(store=folder / "store", state=state.path))
    (folder / "job.yaml").write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "XDG_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    environ: Mapping[str, str] = {**kept, "PYTHONPATH": str(checkout), "HOME": str(folder)}
    argv = [sys.executable, "-m", "launcher.cli", "submit", "job.yaml", "--follow"]
    began = time.monotonic()
    with (folder / "printed").open("w") as printed:
        child = subprocess.Popen(argv, cwd=folder, env=environ, stdout=printed, stderr=printed)
    child.returncode, submit = waited(child.pid)
    took = time.monotonic() - began
    assert child.returncode == 0, (folder / "printed").read_text()
    record = read(state.who, SupervisorRecord)
    assert record is not None
    while any(path.suffix == ".json" for path in (state.path / "queue").glob("*")):
        time.sleep(0.05)  # the last entry leaves the queue after the result is there
    fields = Path(f"/proc/{record.pid}/stat").read_text().rpartition(")")[2].split()
    own, below = (sum(map(int, fields[at : at + 2])) / TICKS for at in (11, 13))
    os.kill(record.pid, 15)
    waited(record.pid)
    return {"submit": submit, "supervisor": own, "runtimes": below, "all": submit + own + below, "wall": took}


def waited(pid: int) -> tuple[int, float]:
    """(exit code, CPU seconds) of a process below this one."""
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def main() -> int:
    from tests.bench.checkouts import checkouts

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the supervisor becomes a child of this process
    print("| CPU s, median | submit | supervisor | runtime and command | all | wall |\n|---|---:|---:|---:|---:|---:|")
    figures: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        for number in range(ROUNDS + 1):
            for code, checkout in checkouts().items():
                found = followed(checkout, Path(name) / code, HELLO.format(number=number))
                what = "another hello" if number else "the first hello"
                figures.setdefault((what, code), []).append(found)
        for code, checkout in checkouts().items() if STAGES else ():
            found = followed(checkout, Path(name) / f"{code}-stages", pipeline(STAGES))
            each = {part: seconds / STAGES for part, seconds in found.items()}
            figures[f"a stage of {STAGES}", code] = [each]
    for (what, code), rounds in figures.items():
        values = (f"{median(found[part] for found in rounds):.3f}" for part in rounds[0])
        print(f"| {what}, {code} | {' | '.join(values)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
