"""The memory estimate: counts equal transformers' modules, peaks equal measured ones, and every setting counts."""

from __future__ import annotations

import importlib

import pytest

from tests.bench.memory import CASES, OVER, UNDER, measured


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.parametrize("name", ["Qwen2.5-VL, checkpointing"])  # all of them nightly, below
def test_a_measured_peak_lies_in_the_promised_band(name: str) -> None:
    stay, peak = measured(name)
    kept, moved = CASES[name].estimate()
    assert kept == pytest.approx(stay, rel=0.01)
    assert UNDER <= (kept + moved) / (stay + peak) <= OVER
    assert 0.85 <= moved / peak <= 1.2


@pytest.mark.ml
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("figure", ["memory", "memory_trainers"])
def test_all_measured_peaks_lie_in_the_promised_band(figure: str) -> None:
    """Prints the figure's table (-s)."""
    assert importlib.import_module(f"tests.bench.{figure}").main([]) == 0
