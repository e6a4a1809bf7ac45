"""What of a document as a whole is other than LibreOffice makes it. The pieces are as LibreOffice 7.4 saves them."""

from __future__ import annotations

import pytest

from eval.benchmarks.linux_desktop.office.document_frame import frame_changes, frozen
from eval.benchmarks.linux_desktop.office.documents import _SPACES

SPACES = " ".join(f'xmlns:{name}="{uri}"' for name, uri in _SPACES.items())
META = 'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:calcext="urn:calcext"'
TABLE = (
    '<table:table table:name="Sheet1" table:style-name="ta1"{more}>{columns}<table:table-row table:style-name="ro1"/>'
    "</table:table>"
)
COLUMN = '<table:table-column table:style-name="{}"/>'
STYLES = (
    '<style:style style:name="ta1" style:family="table" style:master-page-name="Default">'
    '<style:table-properties table:display="{shown}"{tab}/></style:style>'
    '<style:style style:name="ro1" style:family="table-row">'
    '<style:table-row-properties style:use-optimal-row-height="{optimal}"/></style:style>'
    '<style:style style:name="co1" style:family="table-column">'
    '<style:table-column-properties fo:break-before="auto" style:column-width="0.889in"/></style:style>'
    '<style:style style:name="co2" style:family="table-column">'
    '<style:table-column-properties fo:break-before="auto" style:column-width="2in"/></style:style>'
)
CELL = (
    '<table:table-cell table:style-name="ce1"{}/><style:style style:name="ce1" style:family="table-cell">'
    '<style:table-cell-properties {}="{}"/></style:style>'
)
PAGE = (
    '<style:default-style style:family="paragraph"><style:text-properties fo:font-size="12pt"/></style:default-style>'
    '<style:style style:name="Standard" style:family="paragraph">{plain}</style:style>'
    '<style:page-layout style:name="Mpm1"><style:page-layout-properties fo:page-width="{wide}" fo:page-height="11.69in"'
    ' fo:margin-top="0.7874in" fo:margin-left="{left}"{more}>{columns}</style:page-layout-properties>'
    "</style:page-layout>"
    '<style:master-page style:name="Standard" style:page-layout-name="Mpm1">{header}</style:master-page>'
)


def part(text: str) -> bytes:
    return f"<root {SPACES} {META}>{text}</root>".encode()


def sheet(more: str = "", inside: str = "", columns: str = COLUMN.format("co1"), **style: str) -> dict[str, bytes]:
    told = {"shown": "true", "tab": "", "optimal": "true", **style}
    return {"content.xml": part(STYLES.format(**told) + TABLE.format(more=more, columns=columns) + inside)}


def text(**page: str) -> dict[str, bytes]:
    told = {"plain": "", "wide": "8.27in", "left": "2cm", "more": "", "columns": "", "header": "", **page}
    return {"content.xml": part("<text:p>a</text:p>"), "styles.xml": part(PAGE.format(**told))}


@pytest.mark.parametrize(
    ("parts", "changes"),
    [
        (sheet(), []),
        (sheet(columns=COLUMN.format("co1") * 2), []),
        (sheet(more=' table:protected="true"'), ["something is protected"]),
        (sheet(more=' table:print-ranges="Sheet1.A1:B2"'), ["what is printed was chosen"]),
        (sheet(tab=' table:tab-color="#ff0000"'), ["a sheet's tab has a colour"]),
        (sheet(shown="false"), ["a sheet is hidden"]),
        (sheet(optimal="false"), ["a row has another height"]),
        (sheet(columns=COLUMN.format("co1") + COLUMN.format("co2")), ["a column has another width"]),
        (sheet(inside='<table:table-cell table:number-columns-spanned="2"/>'), ["cells are merged"]),
        (sheet(inside='<table:table-cell table:number-columns-spanned="1"/>'), []),
        (sheet(inside='<table:database-range table:display-filter-buttons="true"/>'), ["a filter has buttons"]),
        (sheet(inside="<calcext:conditional-format/>"), ["a condition for the look of cells was added"]),
        (sheet(inside=CELL.format("", "fo:font-weight", "bold")), []),
        (sheet(inside=CELL.format("", "fo:background-color", "#ffff00")), ["empty cells are coloured or framed"]),
        (sheet(inside=CELL.format("", "fo:border-bottom", "1pt solid")), ["empty cells are coloured or framed"]),
        (sheet(inside=CELL.format(' office:value-type="float"', "fo:background-color", "#ffff00")), []),  # `marked`
        ({**sheet(), "meta.xml": part("<dc:date>2026</dc:date>")}, []),
        ({**sheet(), "meta.xml": part("<dc:title>t</dc:title>")}, ["the document has a title of its own"]),
        (text(), []),
        (text(plain='<style:text-properties fo:font-size="12pt"/>'), []),
        (text(plain='<style:text-properties fo:font-size="14pt"/>'), ["the plain style was changed"]),
        (text(wide="16.5in"), ["the page has another shape"]),
        (text(left="5cm"), ["the page has another shape"]),
        (text(left="wide"), ["the page has another shape"]),
        (text(more=' fo:background-color="#ffff00"'), ["the page has another shape"]),
        (text(columns='<style:columns fo:column-count="2"/>'), ["the page has another shape"]),
        (text(header="<style:header/>"), ["the page has a header or a footer"]),
        (text(header='<style:header style:display="false"/>'), []),
        ({"content.xml": part('<style:style style:master-page-name="Landscape"/>')}, ["a page has another style"]),
        ({"content.xml": part('<text:bookmark-start text:name="b"/>')}, ["a bookmark was added"]),
        ({}, []),
    ],
)
def test_what_is_other_than_in_a_plain_document_is_named(parts: dict[str, bytes], changes: list[str]) -> None:
    assert frame_changes(parts) == changes


@pytest.mark.parametrize(
    ("rows", "columns", "found"),
    [("2 1", "0 0", (1, 0)), ("2 1", "2 3", (1, 3)), ("1 400", "0 0", (0, 0)), ("2 x", "2 ", (0, 0))],
)
def test_only_frozen_rows_and_columns_count(rows: str, columns: str, found: tuple[int, int]) -> None:
    items = "".join(
        f'<config:config-item config:name="{way}Split{what}">{value}</config:config-item>'
        for way, told in (("Vertical", rows), ("Horizontal", columns))
        for what, value in zip(("Mode", "Position"), told.split(" "), strict=True)
    )
    assert frozen({"settings.xml": part(items)}) == found
