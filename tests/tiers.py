"""The tiers of the tests: what `make quick`, `make test`, `make ci-test` and `make cluster-test` run.

    python -m tests.tiers TIER [TIER ...] [--measure]
    python -m tests.tiers TIER [TIER ...] --check

`quick` is a part of `test`; `.ci/run` runs `test`, `ci` and `cluster`; the rest is nightly (tests/nightly.py).
A tier prints at its end what it took, and per folder what its tests took, out of build/tiers/TIER.jsonl. `--measure`
looks first whether the machine is quiet. `--check` runs nothing: it reads what the tiers took, and is an error when a
folder used more than 1.5 times its budget (tests/budgets.yaml) of core-seconds. The table counts the core-seconds of a
quiet machine: what was measured, divided by how much slower a fixed loop was meanwhile (tests.support.outcomes.loop).
Seconds of the clock have no limit: a machine may be busy.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from tests.support import needs, outcomes

ROOT: Final = Path(__file__).resolve().parents[1]
BUDGETS: Final = ROOT / "tests/budgets.yaml"
OVER: Final = 1.5


class Phase(NamedTuple):
    """One run of pytest: the folders and marks of its tests, and how many of them run at a time. No folders: those that
    hold tests of CI alone."""

    folders: tuple[str, ...]
    marks: str
    workers: int


# What only CI runs, beside single tests that carry the mark `ci`: what needs root, an engine or many programs, and what
# is long. tests/conftest.py marks it.
_CI_ONLY: Final = {
    "tests": "images",
    "tests/integration": """agentnet/test_pipeline.py android campaigns desktops docker environment/test_contract.py
        gtk_forms gtk_login images installed k8s_tree/test_health.py linux_desktop moving osworld own_parts
        own_recordings postgresql tracing view""",
    "tests/integration/azureml": "test_storm.py",
    "tests/integration/backend": "test_docker.py test_submit.py",
    "tests/integration/documents": "test_golden.py test_hints.py test_run.py test_shown.py",
    "tests/integration/lambda_labs": "test_renewal.py test_storm.py test_venv.py",
    "tests/integration/local": "test_canary.py test_moving.py test_storm.py",
    # in a browser
    "tests/integration/monitor": """test_blind.py test_browser.py test_live_desktop.py test_odd_records.py
        test_trainings.py test_tutorial.py test_updates.py""",
    "tests/integration/rl": """test_asynchronous.py test_collapse.py test_example.py test_finished_rollouts.py
        test_gate.py test_gate_waits.py test_one_update.py test_ppo.py test_ranks.py test_recorder.py test_reference.py
        test_roles.py test_sdpo.py test_step_metrics.py test_success_replay.py test_thousand.py test_training.py
        test_trajectory_rows.py test_tutorial.py test_vllm""",
    "tests/integration/runtime": "test_storm.py test_store_storm.py",
    "tests/integration/training": """test_colocate.py test_data_scale.py test_data_stream.py test_demonstrations.py
        test_dpo.py test_export_vllm.py test_grpo.py test_grpo_two_processes.py test_learning_dpo.py
        test_learning_grpo.py test_learning_reward.py test_learning_sft.py test_memory.py test_preference_processes.py
        test_reward.py test_reward_episodes.py test_seeds.py test_two_processes.py test_validation_loss.py
        test_vllm.py""",
}
# Minutes of waiting, test by test: begun last, they would run by themselves at the end
FIRST: Final = ("tests/integration/serve/test_attacks.py",)
CI_ONLY: Final = tuple(f"{folder}/{name}" for folder, names in _CI_ONLY.items() for name in names.split())
UNIT: Final = ("tests/unit", "tests/contract", "tests/smoke")
TIERS: Final[dict[str, tuple[Phase, ...]]] = {
    "quick": (Phase(UNIT, "not nightly and not cluster and not ci", 2),),
    "test": (Phase(("tests",), "not nightly and not cluster and not ci", 4),),
    "ci": (Phase((), "ci and not nightly and not cluster", 5),),
    "cluster": (Phase(("tests/cluster", "tests/integration/backend"), "cluster and not nightly", 2),),
}


def recorded(tier: str) -> Path:
    """How the tier's tests ended, the last time that it ran here."""
    return ROOT / f"build/tiers/{tier}.jsonl"


def of_ci() -> list[str]:
    """The folders and files with tests that only CI runs, in the order in which these begin. To import all the others
    would cost each process a quarter of a minute."""
    found = {str(one.relative_to(ROOT)) for path in CI_ONLY for one in ROOT.glob(f"{path}*")}
    for file in (ROOT / "tests").glob("*/**/*.py"):
        if "pytest.mark.ci" in file.read_text(encoding="utf-8"):
            found.add(str((file.parent if file.name == "conftest.py" else file).relative_to(ROOT)))
    return sorted(found, key=lambda path: (path not in FIRST, path))


def paths(phase: Phase) -> Sequence[str]:
    return phase.folders or of_ci()


def command(phase: Phase, *more: str) -> list[str]:
    """pytest's command line for a phase."""
    how = ("-n", str(phase.workers), "--dist", "worksteal")
    # the marks leave them out as well, but only after their imports, in every worker
    left = [f"--ignore-glob={path}*" for path in CI_ONLY if "not ci" in phase.marks]
    return [sys.executable, "-m", "pytest", "-q", *how, "-m", phase.marks, *left, *more, *paths(phase)]


def quiet() -> str:
    """The load, and how long ten core-seconds take here: below .3 and 10.5 s the machine is quiet."""
    load, began = os.getloadavg()[0], time.monotonic()
    end = time.process_time() + 10
    while time.process_time() < end:
        pass
    took = time.monotonic() - began
    verdict = "quiet" if load < 0.3 and took <= 10.5 else "NOT quiet"
    return f"1-minute load {load:.2f}; ten core-seconds took {took:.1f} s: {verdict}"


class Folder(NamedTuple):
    name: str
    tests: int
    seconds: float
    cpu: float
    budget: float | None


def folders(results: Sequence[outcomes.Outcome]) -> list[Folder]:
    """One for each folder of tests, the most core-seconds first."""
    budgets = yaml.safe_load(BUDGETS.read_text(encoding="utf-8"))
    groups: dict[str, list[outcomes.Outcome]] = {}
    for result in results:
        groups.setdefault("/".join(result.test.partition("::")[0].split("/")[1:-1][:2]), []).append(result)
    found = [
        Folder(name, len(group), sum(one.seconds for one in group), sum(one.cpu for one in group), budgets.get(name))
        for name, group in groups.items()
    ]
    return sorted(found, key=lambda folder: -folder.cpu)


def on_a_quiet_machine(results: Sequence[outcomes.Outcome]) -> list[outcomes.Outcome]:
    """The outcomes of one run with the core-seconds that they would have taken there, as budgets count them."""
    slowness = outcomes.slowness(results)
    return [replace(one, cpu=one.cpu / slowness) for one in results]


def table(found: Sequence[Folder]) -> Iterator[str]:
    yield f"{'folder':34} {'tests':>6} {'seconds':>8} {'core-s':>7} {'budget':>7}"
    total = Folder("all", sum(f.tests for f in found), sum(f.seconds for f in found), sum(f.cpu for f in found), None)
    for folder in (*found, total):
        budget = "" if folder.budget is None else f"{folder.budget:7.0f}"
        yield f"{folder.name:34} {folder.tests:6} {folder.seconds:8.0f} {folder.cpu:7.1f} {budget}".rstrip()


def over(found: Sequence[Folder]) -> list[str]:
    """A line for each folder that is over its budget, or has none."""
    lines = []
    for folder in found:
        if folder.budget is None:
            lines.append(f"{folder.name}: {folder.cpu:.0f} core-seconds, and no budget in tests/budgets.yaml")
        elif folder.cpu > OVER * folder.budget:
            lines.append(
                f"{folder.name}: {folder.cpu:.0f} core-seconds, {OVER} times the budget is {OVER * folder.budget:.0f}"
            )
    return lines


def run(tier: str) -> int:
    """Runs a tier and prints what it took. The worst exit code of its phases."""
    file = recorded(tier)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    began, codes = time.monotonic(), []
    for phase in TIERS[tier]:
        line = command(phase, "-p", "tests.support.outcomes", "--outcomes", str(file))
        codes.append(subprocess.run(line, check=False, cwd=ROOT).returncode)
    results = list(outcomes.read(file).values())
    found = folders(on_a_quiet_machine(results))
    collecting = outcomes.collecting(file)
    before, memory = sum(one.cpu for one in collecting), max((one.megabytes for one in collecting), default=0)
    skips = needs.lines(one.why for one in results if one.how == "skipped")
    print(*table(found), *skips, sep="\n")
    print(
        f"{tier}: {time.monotonic() - began:.0f} s, {before + sum(one.cpu for one in results):.0f} core-seconds, "
        f"{before:.0f} of them collecting (at most {memory} MB a process); the table counts those of a quiet machine, "
        f"where a fixed loop is {outcomes.slowness(results):.2f} times as fast; "
        f"load {os.getloadavg()[0]:.1f} at the end",
        flush=True,
    )
    return max(codes)


def check(tiers: Sequence[str]) -> int:
    """Compares what the tiers took with the budgets."""
    if missing := [tier for tier in tiers if not recorded(tier).exists()]:
        print(f"not run here yet: {', '.join(missing)}")
        return 2
    runs = [list(outcomes.read(recorded(tier)).values()) for tier in tiers]
    found = folders([result for run in runs for result in on_a_quiet_machine(run)])
    print(*table(found), sep="\n")
    if lines := over(found):
        print("over budget:", *lines, sep="\n  ")
    return int(bool(lines))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run tiers of the tests, or compare what they took with the budgets.")
    parser.add_argument("tiers", nargs="+", choices=TIERS, metavar="TIER", help=", ".join(TIERS))
    parser.add_argument("--measure", action="store_true", help="say first whether the machine is quiet")
    parser.add_argument("--check", action="store_true", help="run nothing: compare with tests/budgets.yaml")
    args = parser.parse_args(argv)
    if args.check:
        return check(args.tiers)
    if args.measure:
        print(quiet(), flush=True)
    return max([run(tier) for tier in args.tiers])


if __name__ == "__main__":
    sys.exit(main())
