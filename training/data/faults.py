"""Handles samples that cannot be used: fails at the first, or skips each, counts it by reason and reports it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final, Literal

from eval.config import ConfigError
from eval.config.progress import metric

Policy = Literal["fail", "skip"]
EXAMPLES: Final = 5  # examples in a report, per reason


class BadSample(Exception):
    """A sample (step, episode, pair) that cannot be used: `reason` is a short name to count, `detail` for people."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class Faults:
    """Collects bad samples. Policy `fail` raises ConfigError (exit 78) at the first; `skip` counts them."""

    def __init__(self, policy: Policy = "fail") -> None:
        self.policy = policy
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def bad(self, where: str, fault: BadSample) -> None:
        """Counts a bad sample at `where` (file:line, or a folder). Raises ConfigError under `fail`."""
        if self.policy == "fail":
            raise ConfigError(f"{where}: {fault}; on_bad_sample: skip would leave it out and count it")
        self.counts[fault.reason] += 1
        named = self.examples.setdefault(fault.reason, [])
        if len(named) < EXAMPLES:
            named.append(f"{where}: {fault.detail}" if fault.detail else where)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def report(self) -> dict[str, Any]:
        """{"total", "by_reason": {reason: count}, "examples": {reason: [where: detail]}}, reasons sorted."""
        return {
            "total": self.total,
            "by_reason": dict(sorted(self.counts.items())),
            "examples": {reason: self.examples[reason] for reason in sorted(self.examples)},
        }


def is_file(path: Path) -> bool:
    """Whether the file is there. A name that no file can have, as one that is too long, is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_file_or_folder(path: Path) -> bool:
    """As `is_file`, also of a folder."""
    try:
        return path.exists()
    except OSError:
        return False


def write_faults(faults: Faults, results: Path) -> None:
    """Writes results/bad_samples.json if samples were skipped."""
    if faults.policy != "skip":
        return
    results.mkdir(parents=True, exist_ok=True)
    (results / "bad_samples.json").write_text(json.dumps(faults.report(), indent=1) + "\n", encoding="utf-8")
    metric(0, "data/bad_samples", faults.total)
    print(f"bad samples: {faults.report()['by_reason'] or 'none'}", flush=True)
