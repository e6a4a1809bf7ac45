"""Files for tests.bench.waa_states, by the interpreter that has the libraries (`make osworld-env`): two of each kind,
`right` with everything that a metric looks for, and `other` with something else.

    .venv-osworld/bin/python tests/bench/apart/waa_files.py FOLDER
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any


def document(path: Path, right: bool) -> None:
    """First line centred, page number below, Times New Roman, italic of 14 points, a struck last paragraph, subscript,
    a highlight, tabulators after three words, a table."""
    import docx
    from docx.enum.text import WD_ALIGN_PARAGRAPH, WD_COLOR_INDEX, WD_TAB_ALIGNMENT
    from docx.shared import Inches, Pt

    made = docx.Document()
    if not right:
        made.add_paragraph("Nothing of it.").runs[0].font.name = "Arial"
        made.add_paragraph("Nor here.").runs[0].font.name = "Arial"
        made.save(str(path))
        return
    first = made.add_paragraph()
    first.alignment = WD_ALIGN_PARAGRAPH.CENTER
    first.add_run("A first line")
    made.sections[0].footer.paragraphs[0].add_run("1")
    below = made.add_paragraph()
    below.add_run("one two three").italic = True
    below.runs[0].font.size = Pt(14)
    below.add_run("\t2").font.subscript = True
    below.paragraph_format.tab_stops.add_tab_stop(Inches(6), WD_TAB_ALIGNMENT.RIGHT)
    below.add_run(" marked").font.highlight_color = WD_COLOR_INDEX.YELLOW
    below.paragraph_format.line_spacing = 2.0
    cells = made.add_table(1, 2).rows[0].cells
    cells[0].text, cells[1].text = "a", "b"
    made.add_paragraph().add_run("The last paragraph.").font.strike = True
    for paragraph in made.paragraphs:
        for run in paragraph.runs:
            run.font.name = "Times New Roman"
    made.save(str(path))


def sheets(path: Path, right: bool) -> None:
    import openpyxl
    from openpyxl.chart import BarChart, Reference

    book = openpyxl.Workbook()
    for number in range(5):
        sheet = book.create_sheet(f"Sheet{number}") if number else book.active
        for row in range(1, 5):
            sheet.append([row, row * number, "right" if right else "other"])
        if right:
            chart = BarChart()
            chart.title = "Chart"
            chart.add_data(Reference(sheet, min_col=1, min_row=1, max_row=4))
            sheet.add_chart(chart, "E2")
    book.save(str(path))


def picture(path: Path, right: bool) -> None:
    """A red circle on white, 800 by 600; or blue, 400 by 300."""
    from PIL import Image, ImageDraw

    made = Image.new("RGB", (800, 600) if right else (400, 300), "white" if right else "blue")
    if right:
        ImageDraw.Draw(made).ellipse((300, 200, 500, 400), outline="red", width=3)
    made.save(path)


def pages(path: Path, right: bool) -> None:
    import fitz

    made: Any = fitz.open()
    made.new_page().insert_text((72, 72), "What the page says, in full" if right else "zzzz")
    made.save(str(path))


def archives(folder: Path, name: str, right: bool) -> None:
    import py7zr

    with zipfile.ZipFile(folder / f"{name}.zip", "w") as packed:
        packed.writestr("right.txt" if right else "other.txt", name)
    with py7zr.SevenZipFile(folder / f"{name}.7z", "w", password="12345" if right else None) as packed:
        packed.writestr(name, "OldProjects/example.txt")


def sound(path: Path, source: str, *more: str) -> None:
    command = ["ffmpeg", "-loglevel", "error", "-y", "-f", "lavfi", "-i", source, "-t", "2", *more, str(path)]
    subprocess.run(command, check=True)


def main() -> None:
    folder = Path(sys.argv[1])
    for name, right in (("right", True), ("other", False)):
        for make, ending in ((document, "docx"), (sheets, "xlsx"), (picture, "png"), (pages, "pdf")):
            make(folder / f"{name}.{ending}", right)
        archives(folder, name, right)
        for ending in ("txt", "py"):
            (folder / f"{name}.{ending}").write_text(f"{name} = 1\n")
        sound(folder / f"{name}.mp3", f"sine=frequency={440 if right else 3000}")
        sound(folder / f"{name}.mp4", f"{'testsrc' if right else 'mandelbrot'}=size=160x120:rate=5")
        font = "Times New Roman" if right else "Arial"
        where = 'oor:path="/org.openoffice.Office.Writer/DefaultFont"'
        item = f'<item {where}><prop oor:name="Standard"><value>{font}</value></prop></item>'
        (folder / f"{name}.xcu").write_text(f'<items xmlns:oor="http://openoffice.org/2001/registry">{item}</items>')
    document_of_text(folder)


def document_of_text(folder: Path) -> None:
    """For check_highlighted_words: without and with a highlight."""
    from odf.opendocument import OpenDocumentText
    from odf.style import Style, TextProperties
    from odf.text import P, Span

    for name, colour in (("right", None), ("other", "#ffff00")):
        made = OpenDocumentText()
        style = Style(name="marked", family="text")
        style.addElement(TextProperties(**({} if colour is None else {"backgroundcolor": colour})))
        made.automaticstyles.addElement(style)
        paragraph = P()
        paragraph.addElement(Span(stylename=style, text="some words"))
        made.text.addElement(paragraph)
        made.save(str(folder / f"{name}.odt"))


if __name__ == "__main__":
    main()
