"""How fast the command line is: `python -m tests.bench.cli` prints a table.

Whole processes are measured in turns with a bare interpreter (`python -c pass`), so that a busy machine slows both. All
figures are the best of several rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = int(os.environ.get("SLIPWAY_BENCH_ROUNDS", "15"))
JOB = """
name: sft-login
image: unsloth-sft
command: [python, -m, training.sft, --config, $SLIPWAY_CONFIG]
config:
  model: {path: $SLIPWAY_INPUTS/model, dtype: bfloat16}
  epochs: 2
  lr: 1e-5
  batch: 8
inputs:
  model: hf://Qwen/Qwen3-VL-2B-Instruct@0123456
  episodes: s3://bucket/episodes/login
outputs:
  results: {sync: live}
  model: {}
  checkpoints: {kind: checkpoints, match: checkpoint-*, keep: 3}
resources: {gpus: 1, gpu: H100, cpus: 8, memory: 64Gi}
env: {LOG_LEVEL: info}
limits: {deadline: 6h, retries: 2}
labels: {team: agents}
"""


def process(command: list[str], folder: Path) -> tuple[float, float, float]:
    """(seconds, CPU seconds, peak MB of resident memory) of one whole process."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    took = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def best(work: Callable[[], object], rounds: int = 5) -> float:
    """CPU seconds of the fastest round: all of it is computing, and others may share the core."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def main() -> None:
    python = sys.executable
    launcher = str(Path(python).with_name("launcher"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.yaml").write_text(JOB)
        commands = {
            "bare": [python, "-c", "pass"],
            "help": [launcher, "--help"],
            "render": [launcher, "render", "job.yaml"],
        }
        runs: dict[str, list[tuple[float, float, float]]] = {key: [] for key in commands}
        for _ in range(ROUNDS):
            for key, command in commands.items():
                runs[key].append(process(command, folder))
        wall, cpu, memory = ({key: min(run[index] for run in many) for key, many in runs.items()} for index in range(3))

        # only now: a child's peak counts from the fork, when it was as large as this process
        from launcher.backends.base import backend
        from launcher.backends.kubernetes.render.manifests import objects, render
        from launcher.spec.profile import LocalSettings, Profile
        from launcher.spec.read.load import load
        from launcher.spec.resolve.group import resolve

        profile = Profile(store="s3://bucket/runs", local=LocalSettings(folder / "state"))
        local = backend("local", profile.backend_options("local"))
        jobs = 300
        many = folder / "many.yaml"
        many.write_text("\n---\n".join(JOB.replace("sft-login", f"sft-{number}") for number in range(jobs)))
        loaded = load(["many.yaml"], cwd=folder)

        def resolved() -> None:
            resolve(loaded, profile, environment="0" * 64)

        group = resolve(loaded, profile, environment="0" * 64)
        load_rate = jobs / best(lambda: load(["many.yaml"], cwd=folder))
        resolve_rate = jobs / best(resolved)
        render_rate = jobs / best(lambda: local.render(group.runs))
        pinned = Profile(
            profile.store, profile.local, "kubernetes", images={"unsloth-sft": f"r.io/x@sha256:{'0' * 64}"}
        )
        pods = resolve(loaded, pinned, environment="").runs
        objects_rate = jobs / best(lambda: objects(pods))
        yaml_rate = jobs / best(lambda: render(pods))
        both = 1 / (1 / resolve_rate + 1 / render_rate)
        text = 1 / (1 / load_rate + 1 / both)

    print("| figure | measured | ratio (of CPU time) | goal |")
    print("|---|---|---|---|")
    print(f"| bare interpreter | {wall['bare'] * 1e3:.0f} ms, {memory['bare']:.0f} MB | 1 (1) | |")
    for key, goal in (("help", "3.5 x, 30 MB"), ("render", "5 x")):
        what = {"help": "`launcher --help`", "render": "`launcher render` of one job"}[key]
        ratio = f"{wall[key] / wall['bare']:.2f} x ({cpu[key] / cpu['bare']:.2f} x)"
        print(f"| {what} | {wall[key] * 1e3:.0f} ms, {memory[key]:.0f} MB | {ratio} | {goal} |")
    print(f"| load, YAML text to checked jobs | {load_rate:,.0f} jobs/s | {load_rate / 600:.1f} x goal | 600/s |")
    print(f"| resolve | {resolve_rate:,.0f} jobs/s | | |")
    print(f"| render (local) | {render_rate:,.0f} jobs/s | | |")
    print(f"| resolve and render | {both:,.0f} jobs/s | {both / 3000:.2f} x goal | 3,000/s |")
    for kind, rate, least in (("objects", objects_rate, 3000), ("YAML", yaml_rate, 600)):
        whole = 1 / (1 / resolve_rate + 1 / rate)
        name = f"resolve and render (Kubernetes, {kind})"
        print(f"| {name} | {whole:,.0f} jobs/s | {whole / least:.2f} x goal | {least:,}/s |")
    print(f"| YAML text to rendered | {text:,.0f} jobs/s | {text / 600:.2f} x goal | 600/s |")


if __name__ == "__main__":
    main()
