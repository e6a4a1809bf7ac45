"""The plots for a paper: files that stand alone, and say what the tasks say."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from launcher.errors import BadInput
from launcher.report.agents import AgentResults
from launcher.report.plots import COLOURS, write_plots
from launcher.results.read import FailureNote
from tests.unit.report.test_agents import agent, task

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "</text><script>alert(1)</script>&\x00"


def two() -> list[AgentResults]:
    loop = FailureNote("loop", "rule")
    return [
        agent("one", task("a", steps=2, difficulty="easy"), task("b", False, steps=9, difficulty="hard", failure=loop)),
        agent("two", *(task(name, True, steps=4, difficulty="easy") for name in "abcd")),
    ]


def words(path: Path) -> list[str]:
    return [str(node.text) for node in ET.parse(path).iter(f"{SVG}text")]


def test_each_plot_is_a_file_of_its_own(tmp_path: Path) -> None:
    paths = write_plots(two(), tmp_path / "plots")
    assert sorted(path.name for path in paths) == [
        "b-1-difficulty.svg",
        "b-1-failures.svg",
        "b-1-success.svg",
        "b-1-within.svg",
    ]
    for path in paths:
        root = ET.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        assert "href" not in path.read_text()
        assert {"one", "two", "b 1"} <= set(words(path)), path.name
        boxes = [node for node in root.iter(f"{SVG}rect") if node.get("width") != "100%"]
        wide = float(root.get("viewBox", "").split()[2])
        assert all(float(box.get("x", 0)) + float(box.get("width", 0)) <= wide for box in boxes)


def test_bars_have_the_length_of_their_values(tmp_path: Path) -> None:
    (path,) = [path for path in write_plots(two(), tmp_path) if path.name == "b-1-difficulty.svg"]
    bars = [node for node in ET.parse(path).iter(f"{SVG}rect") if "bar" in (node.get("class") or "")]
    assert [round(float(bar.get("width", 0))) for bar in bars] == [234, 234, 0]  # easy 100 and 100 %, hard 0 %
    assert [text for text in words(path) if text.endswith("%") or text == "–"] == ["100 %", "100 %", "0 %", "–"]
    assert all(colour in path.read_text() for colour in COLOURS[:2])


def test_names_of_others_stay_text_and_lead_nowhere_else(tmp_path: Path) -> None:
    evil = [AgentResults(EVIL, "run", f"../../{EVIL}", "1", part.tasks) for part in two()]
    paths = write_plots(evil, tmp_path / "plots")
    assert {path.parent for path in paths} == {tmp_path / "plots"}
    assert len(set(paths)) == len(paths) == 4
    assert not [node for path in paths for node in ET.parse(path).iter(f"{SVG}script")]


def test_two_benchmarks_with_one_name_in_a_path_stay_apart(tmp_path: Path) -> None:
    both = [AgentResults("x", "run", name, "1", two()[0].tasks) for name in ("a/b", "a b")]
    paths = write_plots(both, tmp_path)
    assert len(set(paths)) == len(paths) == 8


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "plots").write_text("a file")
    with pytest.raises(BadInput, match="plots"):
        write_plots(two(), tmp_path / "plots")
    assert write_plots([], tmp_path / "plots") == []
