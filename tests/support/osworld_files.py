"""Makes the documents of our tasks in OSWorld's format: `python osworld_files.py FOLDER`, in `make osworld-env`."""

import sys
from pathlib import Path

from docx import Document
from openpyxl import Workbook
from openpyxl.styles import Font

SALES = [("month", "shop", "web"), ("January", 120, 80), ("February", 95, 110), ("March", 143, 132)]
LETTER = ["Minutes of the meeting", "Present were Ada, Grace and Edsger.", "The roof is to be mended before winter."]


def sheet(rows: list[tuple], *, bold: bool = False) -> Workbook:
    book = Workbook()
    for row in rows:
        book.active.append(row)
    if bold:
        for cell in book.active[1]:
            cell.font = Font(bold=True)
    return book


def letter(paragraphs: list[str]) -> Document:
    document = Document()
    for text in paragraphs:
        document.add_paragraph(text)
    return document


def main(folder: Path) -> None:
    sheets = {
        "sales.xlsx": sheet(SALES),
        "total.gold.xlsx": sheet([*SALES, ("total", 358, 322)]),
        "april.gold.xlsx": sheet([*SALES, ("April", 101, 99)]),
        "header.gold.xlsx": sheet(SALES, bold=True),
    }
    letters = {"minutes.docx": letter(LETTER), "minutes.gold.docx": letter([*LETTER, "The next meeting is on Monday."])}
    for name, document in {**sheets, **letters}.items():
        document.save(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
