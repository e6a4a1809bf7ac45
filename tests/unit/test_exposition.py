"""The text of numbers, and the files of the textfile collector."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from launcher import exposition
from launcher.exposition import MetricFamily


def test_the_text_is_that_of_the_format() -> None:
    """By hand from the format's description: escapes of labels, numbers that are none, no labels."""
    family = [({"run": 'a"\\\nb'}, 1), ({"run": "c"}, None), ({}, math.nan), ({"run": "d"}, math.inf)]
    assert exposition.text([MetricFamily("slipway_run_gpu_ratio", family)]) == (
        "# HELP slipway_run_gpu_ratio Mean use of its GPUs.\n"
        "# TYPE slipway_run_gpu_ratio gauge\n"
        'slipway_run_gpu_ratio{run="a\\"\\\\\\nb"} 1.0\n'
        "slipway_run_gpu_ratio NaN\n"
        'slipway_run_gpu_ratio{run="d"} +Inf\n'
    )


def test_a_name_without_a_meaning_is_refused() -> None:
    with pytest.raises(KeyError):
        exposition.text([MetricFamily("slipway_unheard_of", [])])


def test_a_file_is_whole_readable_by_the_collector_and_goes(tmp_path: Path) -> None:
    exposition.write(tmp_path, "one", [MetricFamily("slipway_supervisor_store_failures_total", [({"queue": "q"}, 3)])])
    (path,) = tmp_path.iterdir()
    assert (path.name, path.stat().st_mode & 0o777) == ("one.prom", 0o644)
    assert exposition.value(tmp_path, "one", "slipway_supervisor_store_failures_total") == 3
    assert exposition.value(tmp_path, "one", "slipway_supervisor") is None
    exposition.remove(tmp_path, "one")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_harms_nobody(tmp_path: Path) -> None:
    exposition.write(tmp_path / "gone", "one", [])
    exposition.remove(tmp_path / "gone", "one")
    assert exposition.value(tmp_path / "gone", "one", "x") is None
    assert exposition.folder({}) is None


def test_every_name_follows_the_conventions_of_prometheus() -> None:
    for name, (kind, meaning, who) in exposition.METRICS.items():
        assert name.startswith("slipway_"), name
        assert (kind == exposition.COUNTER) == name.endswith("_total"), name
        assert meaning.endswith("."), name
        assert who in ("monitor", "supervisor", "runtime", "reaper"), name
