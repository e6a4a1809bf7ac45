"""What it takes to start verbs: CPU milliseconds of the whole process, beside a bare interpreter.

    OLD=<another checkout> python -m tests.bench.starts

Each round calls every verb once with this checkout and once with OLD, so that a busy machine slows both.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROUNDS = int(os.environ.get("ROUNDS", "7"))
HERE, OLD = Path(__file__).parents[2], os.environ.get("OLD", "")
KUBERNETES = (
    f"name: hello\nbackend: kubernetes\nimage: ghcr.io/o/i@sha256:{'0' * 64}\ncommand: [x]\nlimits: {{deadline: 1h}}\n"
)
VERBS = {
    "a bare interpreter": ["-c", "pass"],
    "`render` for Kubernetes": ["-m", "launcher.cli", "render", "k.yaml", "--store", "s3://bucket/x"],
    "`render` for local": ["-m", "launcher.cli", "render", "job.yaml"],
    "`status`": ["-m", "launcher.cli", "status"],
    "`logs`": ["-m", "launcher.cli", "logs", "hello"],
    "`submit` of what has been run": ["-m", "launcher.cli", "submit", "job.yaml"],
    "`training.sft` with more steps of warm-up than of training": [
        "-m",
        "training.sft",
        "--config",
        "w.yaml",
        "--out",
        "out",
    ],
}


def cpu(checkout: Path, words: list[str], folder: Path) -> float:
    """CPU milliseconds of one process and of all that it waited for."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "XDG_"))}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**environ, "PYTHONPATH": str(checkout), "HOME": str(folder)},
        capture_output=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == (78 if "w.yaml" in words else 0), done.stderr
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> int:
    checkouts = {"now": HERE} | ({"before": Path(OLD)} if OLD else {})
    with tempfile.TemporaryDirectory() as name:
        figures: dict[tuple[str, str], list[float]] = {}
        for code, checkout in checkouts.items():
            folder = Path(name) / code
            folder.mkdir()
            (folder / "slipway.yaml").write_text("store: store\nlocal: {state: state, gpus: 0}\n")
            (folder / "job.yaml").write_text('name: hello\ncommand: ["true"]\n')
            (folder / "k.yaml").write_text(KUBERNETES)
            (folder / "w.yaml").write_text(f"{{model: {folder}, episodes: {folder}, steps: 8, warmup_steps: 9}}")
            cpu(checkout, ["-m", "launcher.cli", "submit", "job.yaml", "--follow"], folder)
        for _ in range(ROUNDS):
            for verb, words in VERBS.items():
                for code, checkout in checkouts.items():
                    figures.setdefault((verb, code), []).append(cpu(checkout, words, Path(name) / code))
    print(f"| CPU ms, best and median of {ROUNDS} | {' | '.join(checkouts)} |")
    print("|---|" + "---:|" * len(checkouts))
    for verb in VERBS:
        both = (f"{min(figures[verb, code]):.0f}, {median(figures[verb, code]):.0f}" for code in checkouts)
        print(f"| {verb} | {' | '.join(both)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
