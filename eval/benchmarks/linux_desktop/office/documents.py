"""Spreadsheets of LibreOffice: small ones are written, and what LibreOffice saved is read (OpenDocument 1.3, an archive
with content.xml). What an agent may have left is read within limits, and without entities."""

from __future__ import annotations

import asyncio
import io
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from eval.desktop import BrokenByAgent
from eval.desktops.reading import read_archive
from eval.desktops.stage import DesktopStage

_SPACES: Final = {
    "office": "urn:oasis:names:tc:opendocument:xmlns:office:1.0",
    "table": "urn:oasis:names:tc:opendocument:xmlns:table:1.0",
    "text": "urn:oasis:names:tc:opendocument:xmlns:text:1.0",
    "style": "urn:oasis:names:tc:opendocument:xmlns:style:1.0",
    "fo": "urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0",
    "draw": "urn:oasis:names:tc:opendocument:xmlns:drawing:1.0",
    "chart": "urn:oasis:names:tc:opendocument:xmlns:chart:1.0",
    "config": "urn:oasis:names:tc:opendocument:xmlns:config:1.0",
    "xlink": "http://www.w3.org/1999/xlink",
}
# a cell in a formula, such as [.$B$2], or the corners of a range, as [.B2:.B6]; before the dot stands the sheet
_CELL: Final = r"[^\[\].:]{0,100}\.\$?([A-Z]{1,3})\$?([0-9]{1,7})"
_REFERENCE: Final = re.compile(rf"\[{_CELL}(?::{_CELL})?\]")
SHEET: Final = "application/vnd.oasis.opendocument.spreadsheet"
CELLS_LIMIT: Final = 20_000  # cells that are read of a sheet
ROWS_LIMIT: Final = 1000
COLUMNS_LIMIT: Final = 200
SAVING: Final = 20  # looks at a document that is being written
SAVING_S: Final = 0.1
REGISTRY: Final = "http://openoffice.org/2001/registry"
PROFILE: Final = ".config/libreoffice/4/user/registrymodifications.xcu"
_SETTING: Final = '<item oor:path="{path}"><prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop></item>'
_SETTINGS: Final = (
    ("/org.openoffice.Office.Common/Misc", "ShowTipOfTheDay", "false"),
    ("/org.openoffice.Office.Common/Misc", "FirstRun", "false"),
    ("/org.openoffice.Setup/Product", "ooSetupLastVersion", "99.9"),
    ("/org.openoffice.Setup/Product", "LastTimeDonateShown", "9999999999"),
    ("/org.openoffice.Setup/Product", "LastTimeGetInvolvedShown", "9999999999"),
)

Cell = str | float


@dataclass(frozen=True)
class SheetCell:
    """A cell as it was saved. `value`: a number, a text or "" for none; `formula`: as OpenFormula writes it, or "";
    `kind`: of the value, such as float or percentage; `style`: the name of its style, also where its column has it;
    `array`: which value of an array formula it shows (column, row, from 0)."""

    value: Cell = ""
    formula: str = ""
    kind: str = field(default="", compare=False)
    style: str = field(default="", compare=False)
    array: tuple[int, int] | None = field(default=None, compare=False)


def profile() -> bytes:
    """The settings of a LibreOffice that asks and tells nothing when it starts."""
    items = "".join(_SETTING.format(path=path, name=name, value=value) for path, name, value in _SETTINGS)
    return f'<?xml version="1.0"?><oor:items xmlns:oor="{REGISTRY}">{items}</oor:items>'.encode()


def sheet_file(rows: Sequence[Sequence[Cell]], name: str = "Sheet1") -> bytes:
    """A spreadsheet with one sheet."""
    return book_file({name: rows})


def book_file(sheets: Mapping[str, Sequence[Sequence[Cell]]]) -> bytes:
    """A spreadsheet with these sheets."""
    tables = "".join(_table(name, rows) for name, rows in sheets.items())
    return package(SHEET, f"<office:spreadsheet>{tables}</office:spreadsheet>")


def _table(name: str, rows: Sequence[Sequence[Cell]]) -> str:
    lines = "".join(f"<table:table-row>{''.join(_cell(cell) for cell in row)}</table:table-row>" for row in rows)
    return f'<table:table table:name="{escape(name)}">{lines}</table:table>'


def _cell(cell: Cell) -> str:
    if cell == "":
        return "<table:table-cell/>"
    kind = "string" if isinstance(cell, str) else f'float" office:value="{cell:g}'
    shown = escape(cell) if isinstance(cell, str) else f"{cell:g}"
    return f'<table:table-cell office:value-type="{kind}"><text:p>{shown}</text:p></table:table-cell>'


def package(kind: str, body: str) -> bytes:
    """An OpenDocument file of a kind with this body."""
    spaces = " ".join(f'xmlns:{name}="{uri}"' for name, uri in _SPACES.items())
    content = (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document-content {spaces} office:version="1.3">'
        f"<office:body>{body}</office:body></office:document-content>"
    )
    manifest = (
        '<?xml version="1.0" encoding="UTF-8"?><manifest:manifest manifest:version="1.3" '
        'xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{kind}"/>'
        '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>'
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in (("mimetype", kind), ("content.xml", content), ("META-INF/manifest.xml", manifest)):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text)
    return out.getvalue()


async def saved_parts(stage: DesktopStage, path: str, start: bytes) -> dict[str, bytes] | None:
    """The parts of a document, by name; None where it is not there, or is still the one of the start.

    LibreOffice writes after the keys for it were pressed, so an old or half document is looked at again for 2 s.
    Raises BrokenByAgent for what is no document.
    """
    for look in range(SAVING):
        try:
            data = await stage.read_file(path)
        except FileNotFoundError:
            return None
        if data != start:
            try:
                parts = read_archive(data)
                parsed(parts)
                return parts
            except BrokenByAgent:
                if look == SAVING - 1:
                    raise
        await asyncio.sleep(SAVING_S)
    return None


def parsed(parts: Mapping[str, bytes], name: str = "content.xml") -> ElementTree.Element:
    """The root of a part. Raises BrokenByAgent."""
    text = parts.get(name, b"")
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise BrokenByAgent(f"{name} declares entities")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise BrokenByAgent(f"{name} cannot be read: {error}") from None


def qualified(space: str, name: str) -> str:
    """A name as ElementTree writes it."""
    return f"{{{_SPACES[space]}}}{name}"


def sheets(root: ElementTree.Element) -> dict[str, list[list[SheetCell]]]:
    """Each sheet's cells, row by row, by the sheet's name; of repeated cells and rows only those before the last."""
    found = {}
    for table in root.iter(qualified("table", "table")):
        rows: list[list[SheetCell]] = []
        left = CELLS_LIMIT
        styles = _column_styles(table)
        arrays: list[tuple[int, int, int, int]] = []
        for row in table.iter(qualified("table", "table-row")):
            cells = _cells(row, left, styles, arrays, len(rows))
            times = _times(row, "number-rows-repeated")
            for _ in range(times if cells else min(times, ROWS_LIMIT)):
                left -= len(cells) + 1
                if left < 0 or len(rows) >= ROWS_LIMIT:
                    break
                rows.append(cells)
        while rows and not rows[-1]:
            rows.pop()
        _fill_arrays(rows, arrays)
        found[table.get(qualified("table", "name"), "")] = rows
    return found


def _column_styles(table: ElementTree.Element) -> list[str]:
    """The style of each column's cells that have none of their own."""
    styles: list[str] = []
    for column in table.iter(qualified("table", "table-column")):
        style = column.get(qualified("table", "default-cell-style-name"), "")
        styles += [style] * min(_times(column, "number-columns-repeated"), COLUMNS_LIMIT - len(styles))
    return styles


def _fill_arrays(rows: list[list[SheetCell]], arrays: Sequence[tuple[int, int, int, int]]) -> None:
    """Gives the formula of an array, which stands in its first cell, to all its cells."""
    for left, top, wide, high in arrays:
        formula = rows[top][left].formula if top < len(rows) and left < len(rows[top]) else ""
        for y in range(top, min(top + high, len(rows))):
            rows[y] = [
                replace(cell, formula=formula, array=(x - left, y - top)) if left <= x < left + wide else cell
                for x, cell in enumerate(rows[y])
            ]


def _cells(
    row: ElementTree.Element, limit: int, styles: Sequence[str], arrays: list[tuple[int, int, int, int]], number: int
) -> list[SheetCell]:
    """The cells of the row `number`; array formulas in it are added to `arrays` (column, row, columns, rows)."""
    cells: list[SheetCell] = []
    of_row = row.get(qualified("table", "default-cell-style-name"), "")
    for cell in row:
        if cell.tag not in (qualified("table", "table-cell"), qualified("table", "covered-table-cell")):
            continue
        found = SheetCell(
            _value(cell),
            cell.get(qualified("table", "formula"), ""),
            cell.get(qualified("office", "value-type"), ""),
            cell.get(qualified("table", "style-name")) or of_row,
        )
        if cell.get(qualified("table", "number-matrix-rows-spanned")) is not None:
            wide, high = (_times(cell, f"number-matrix-{way}-spanned") for way in ("columns", "rows"))
            arrays.append((len(cells), number, wide, high))
        first, many = len(cells), min(_times(cell, "number-columns-repeated"), limit - len(cells))
        if found.style:
            cells += [found] * many
        else:  # each of the repeated cells looks as its own column says
            of_columns = styles[first : first + many]
            cells += [replace(found, style=style) for style in of_columns] + [found] * (many - len(of_columns))
    while cells and cells[-1] == SheetCell():
        cells.pop()
    return cells


def _times(element: ElementTree.Element, name: str) -> int:
    try:
        return max(1, int(element.get(qualified("table", name), "1")))
    except ValueError:
        raise BrokenByAgent(f"{name} is no number") from None


def _value(cell: ElementTree.Element) -> Cell:
    kind = cell.get(qualified("office", "value-type"))
    if kind in ("float", "currency", "percentage"):
        try:
            return float(cell.get(qualified("office", "value"), ""))
        except ValueError:
            raise BrokenByAgent("a number of the sheet is none") from None
    return "\n".join("".join(line.itertext()) for line in cell.findall(qualified("text", "p"))) if kind else ""


def values(rows: Sequence[Sequence[SheetCell]]) -> list[list[Cell]]:
    return [[cell.value for cell in row] for row in rows]


def at(rows: Sequence[Sequence[SheetCell]], name: str) -> SheetCell:
    """The cell of a name such as B7; an empty one beyond the end."""
    column, row = ord(name[0]) - ord("A"), int(name[1:]) - 1
    return rows[row][column] if row < len(rows) and column < len(rows[row]) else SheetCell()


def refers_to(formula: str, cells: Iterable[str]) -> bool:
    """Whether a formula, as it was saved, names each of these cells (as B2), alone or in a range; of whatever sheet."""
    areas = []
    for left, top, right, bottom in _REFERENCE.findall(formula):
        areas.append((*_place(left, top), *_place(right or left, bottom or top)))
    places = [_place(name.rstrip("0123456789"), name.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")) for name in cells]
    return all(any(a <= x <= c and b <= y <= d for a, b, c, d in areas) for x, y in places)


def _place(column: str, row: str) -> tuple[int, int]:
    number = 0
    for letter in column:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number, int(row)
