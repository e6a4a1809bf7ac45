"""What the judges let through until a second author's states showed it, and its sisters."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlencode

import pytest

from eval.benchmarks.linux_desktop import solutions
from eval.benchmarks.linux_desktop.all_templates import instance
from eval.benchmarks.linux_desktop.environment import InstanceScene
from eval.benchmarks.linux_desktop.templates import calc_looks, settings, web_rooms, writer
from eval.benchmarks.linux_desktop.webapps.serving import answer
from eval.desktop import Score
from tests.support.folder_stage import FolderStage
from tests.support.judged_homes import score_now, without_programs
from tests.unit.linux_desktop.solutions import solve

SEED = 1_000_000
SIZE = '<style:text-properties fo:font-size="30pt"/>'


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_programs(monkeypatch)


def solved(template: str, home: Path) -> FolderStage:
    """The home of a task that was solved."""
    stage = FolderStage(home)
    task = instance(template, "test", SEED)
    asyncio.run(stage.begin(InstanceScene(task)))
    asyncio.run(solve(task, stage))
    return stage


def judged(stage: FolderStage) -> Score:
    return asyncio.run(score_now(stage))


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("", True),
        ("show-line-marks=false", True),  # as it was
        ("insert-spaces=true", False),
        ("word-wrap=true", False),
        ("font-name='Sans 12'", False),
        ("[org/xfce/mousepad/preferences/file]\nmake-backup=true", False),
        ("[org/xfce/mousepad/state/window]\nwidth=800", True),  # the editor's own
    ],
)
def test_another_setting_of_the_editor_is_seen(line: str, right: bool, tmp_path: Path) -> None:
    stage = solved("mousepad-settings", tmp_path)
    store = tmp_path / settings.STORE
    store.write_text(f"{store.read_text().rstrip()}\n{line}\n")
    assert judged(stage).success == right


@pytest.mark.parametrize("template", ["mousepad-indent", "thunar-rename", "thunar-move", "gpicview-thunar-names"])
@pytest.mark.parametrize(("mode", "right"), [(0o644, True), (0o664, True), (0o600, False), (0o444, False)])
def test_what_is_changed_or_moved_keeps_its_permissions(template: str, mode: int, right: bool, tmp_path: Path) -> None:
    """644 and 664 are what programs give a file that they write anew."""
    stage = solved(template, tmp_path)
    for path in instance(template, "test", SEED).allowed().paths:
        if (tmp_path / path).is_file():
            (tmp_path / path).chmod(mode)
    assert judged(stage).success == right


def test_a_new_file_may_have_the_permissions_that_its_writer_gives_it(tmp_path: Path) -> None:
    stage = solved("xterm-count", tmp_path)
    for path in instance("xterm-count", "test", SEED).allowed().paths:
        (tmp_path / path).chmod(0o600)
    assert judged(stage).success


@pytest.mark.parametrize(
    ("name", "parent", "right"),
    [
        ("Heading_20_{mine}", "", True),
        ("P1", "Heading_20_{mine}", True),  # with properties of its own
        ("", "", False),
        ("P1", "Standard", False),
        ("P1", "Heading_20_{other}", False),
    ],
)
def test_a_heading_has_its_style(name: str, parent: str, right: bool, tmp_path: Path) -> None:
    stage = solved("writer-heading", tmp_path)
    task = instance("writer-heading", "test", SEED)
    assert isinstance(task, writer.Heading)
    name, parent = (each.format(mine=task.level, other=task.level % 5 + 1) for each in (name, parent))
    told = f' text:style-name="{name}"' if name else ""
    heading = f'<text:h{told} text:outline-level="{task.level}">{task.line}</text:h>'
    lines = [heading if line == task.line else solutions.paragraph(line) for line in task.lines]
    styles = solutions.style(name, "paragraph", "", parent) if parent else ""
    (tmp_path / task.file).write_bytes(solutions.text(lines, styles))
    assert judged(stage).success == right


@pytest.mark.parametrize("where", ["paragraph", "text"])
@pytest.mark.parametrize(
    ("properties", "right"),
    [
        ("", True),
        (solutions.BOLD, True),  # as the style is
        ('<style:text-properties fo:font-style="italic"/>', False),
        ('<style:text-properties fo:color="#ff0000"/>', False),
        (SIZE, False),
    ],
)
def test_a_heading_looks_as_its_style(properties: str, right: bool, where: str, tmp_path: Path) -> None:
    stage = solved("writer-heading", tmp_path)
    task = instance("writer-heading", "test", SEED)
    assert isinstance(task, writer.Heading)
    of_paragraph, of_span = (properties, "") if where == "paragraph" else ("", properties)
    named = f"Heading_20_{task.level}"
    styles = (
        solutions.style(named, "paragraph", f"{SIZE.replace('30', '18')}{solutions.BOLD}")
        + solutions.style("P1", "paragraph", of_paragraph, named)
        + solutions.style("T1", "text", of_span)
    )
    words = f'<text:span text:style-name="T1">{task.line}</text:span>'
    heading = f'<text:h text:style-name="P1" text:outline-level="{task.level}">{words}</text:h>'
    lines = [heading if line == task.line else solutions.paragraph(line) for line in task.lines]
    (tmp_path / task.file).write_bytes(solutions.text(lines, styles))
    assert judged(stage).success == right


@pytest.mark.parametrize(
    ("properties", "right"),
    [
        ("", True),
        ('<style:paragraph-properties fo:text-align="start" fo:margin-left="0in"/>', True),
        ('<style:paragraph-properties fo:text-align="center"/>', False),
        ('<style:paragraph-properties fo:margin-left="1cm"/>', False),
        ('<style:paragraph-properties fo:break-before="page"/>', False),
        ('<style:text-properties fo:font-size="20pt"/>', False),
        ('<style:text-properties fo:text-transform="uppercase"/>', False),
    ],
)
@pytest.mark.parametrize("mine", [True, False])
def test_a_paragraph_keeps_its_shape(properties: str, right: bool, mine: bool, tmp_path: Path) -> None:
    stage = solved("writer-bold", tmp_path)
    task = instance("writer-bold", "test", SEED)
    assert isinstance(task, writer.BoldWord)
    marked = task.line.replace(task.word, f'<text:span text:style-name="T1">{task.word}</text:span>')
    styles = solutions.style("T1", "text", solutions.MARKS[task.mark]) + solutions.style("P1", "paragraph", properties)
    lines = [
        solutions.paragraph(marked if line == task.line else line, "P1" if (line == task.line) == mine else "")
        for line in task.lines
    ]
    (tmp_path / task.file).write_bytes(solutions.text(lines, styles))
    assert judged(stage).success == right


@pytest.mark.parametrize(
    ("properties", "right"),
    [
        ("", True),
        ('<style:text-properties fo:font-size="20pt"/>', False),
        ('<style:table-cell-properties fo:border="0.5pt solid #000000"/>', False),
        ('<style:paragraph-properties fo:text-align="center"/>', False),
    ],
)
def test_a_cell_keeps_its_shape(properties: str, right: bool, tmp_path: Path) -> None:
    stage = solved("calc-bold", tmp_path)
    task = instance("calc-bold", "test", SEED)
    assert isinstance(task, calc_looks.BoldCells)
    styles = solutions.style("ce1", "table-cell", solutions.BOLD + properties)
    (tmp_path / task.file).write_bytes(solutions.marked_sheet(task, styles))
    assert judged(stage).success == right


def test_a_style_that_the_plain_one_has_too_changes_nothing(tmp_path: Path) -> None:
    """Where the document's plain style has a size of its own, a copy of it is no other look."""
    size = '<style:text-properties fo:font-size="10pt"/>'
    stage = solved("calc-bold", tmp_path)
    task = instance("calc-bold", "test", SEED)
    assert isinstance(task, calc_looks.BoldCells)
    styles = solutions.style("ce1", "table-cell", size + solutions.BOLD, "Default")
    named = solutions.style("Default", "table-cell", size)
    (tmp_path / task.file).write_bytes(solutions.marked_sheet(task, styles, named))
    assert judged(stage).success


def test_a_booking_changes_its_title_alone(tmp_path: Path) -> None:
    """It is not in its own way; the judge of another task sees the change."""
    stage = solved("web-rooms-book", tmp_path)
    task = instance("web-rooms-book", "test", SEED)
    assert isinstance(task, web_rooms.BookRoom)
    one = task.bookings[0]
    form = {**vars(one), "title": "another", "people": "1"}
    assert stage.app is not None
    assert answer(stage.app, "POST", "/book", urlencode(form).encode()).status == 303
    assert not judged(stage).success
