"""A solution of every template that can be done without its window: files, a saved document, requests to the web
application. The player `commands` leaves it by shell commands, which shows what needs no screen."""

from __future__ import annotations

import base64
import io
import json
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlencode
from xml.sax.saxutils import escape, quoteattr

from eval.benchmarks.linux_desktop.office.documents import _SPACES, SHEET
from eval.benchmarks.linux_desktop.office.writing import TEXT
from eval.benchmarks.linux_desktop.template import Instance
from eval.benchmarks.linux_desktop.templates import (
    calc,
    calc_looks,
    calc_sheets,
    settings,
    thunar,
    thunar_files,
    web_board,
    web_forms,
    web_mail,
    web_pages,
    web_rooms,
    web_shop,
    web_table,
    writer,
    xterm,
)
from eval.benchmarks.linux_desktop.webapps.serving import PORT

HEAD: Final = '<?xml version="1.0" encoding="UTF-8"?>'
MANIFEST: Final = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
FORMULAS: Final = "urn:oasis:names:tc:opendocument:xmlns:of:1.2"  # what `of:` in front of a formula stands for
SPACES: Final = " ".join(f'xmlns:{name}="{uri}"' for name, uri in {**_SPACES, "of": FORMULAS}.items())
PIECE: Final = 12_000  # a multiple of 4: each piece of base64 is decoded alone, and the tool takes 20,000 characters
Post = tuple[str, Mapping[str, object]]  # the address and the fields of a form; a list is a field several times
VIEW: Final = (
    '<config:config-item-set config:name="ooo:view-settings"><config:config-item-map-indexed config:name="Views">'
    '<config:config-item-map-entry><config:config-item-map-named config:name="Tables"><config:config-item-map-entry '
    'config:name="Sheet1">{}</config:config-item-map-entry></config:config-item-map-named></config:config-item-map-entry>'
    "</config:config-item-map-indexed></config:config-item-set>"
)
BOLD: Final = '<style:text-properties fo:font-weight="bold"/>'
ITALIC: Final = '<style:text-properties fo:font-style="italic"/>'
MARKS: Final = {"bold": BOLD, "italic": ITALIC}


def document(kind: str, body: str, styles: str = "", named: str = "", settings_xml: str = "") -> bytes:
    """A document with automatic styles and named ones."""
    parts = {
        "content.xml": f"<office:automatic-styles>{styles}</office:automatic-styles><office:body>{body}</office:body>",
        "styles.xml": f"<office:styles>{named}</office:styles>",
        **({"settings.xml": f"<office:settings>{settings_xml}</office:settings>"} if settings_xml else {}),
    }
    entries = "".join(
        f'<manifest:file-entry manifest:full-path="{name}" manifest:media-type="text/xml"/>' for name in parts
    )
    manifest = (
        f'{HEAD}<manifest:manifest manifest:version="1.3" xmlns:manifest="{MANIFEST}"><manifest:file-entry '
        f'manifest:full-path="/" manifest:media-type="{kind}"/>{entries}</manifest:manifest>'
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", kind)
        for name, content in parts.items():
            root = f"office:document-{name.removesuffix('.xml')}"
            archive.writestr(name, f'{HEAD}<{root} {SPACES} office:version="1.3">{content}</{root}>')
        archive.writestr("META-INF/manifest.xml", manifest)
    return out.getvalue()


def style(name: str, family: str, properties: str, parent: str = "") -> str:
    above = f" style:parent-style-name={quoteattr(parent)}" if parent else ""
    return (
        f"<style:style style:name={quoteattr(name)} style:family={quoteattr(family)}{above}>{properties}</style:style>"
    )


def cell(value: str | float, **more: str) -> str:
    """A cell; `more`: attributes of table, as formula or style_name, and `kind`."""
    kind = more.pop("kind", "string" if isinstance(value, str) else "float")
    told = "".join(f" table:{name.replace('_', '-')}={quoteattr(text)}" for name, text in more.items())
    if value == "":
        return f"<table:table-cell{told}/>"
    number = "" if isinstance(value, str) else f' office:value="{value:g}"'
    shown = escape(value) if isinstance(value, str) else f"{value:g}"
    return f'<table:table-cell{told} office:value-type="{kind}"{number}><text:p>{shown}</text:p></table:table-cell>'


def table(rows: Sequence[Sequence[str]], name: str = "Sheet1", columns: str = "") -> str:
    # LibreOffice passes over a row without any cell
    lines = "".join(f"<table:table-row>{''.join(row) or cell('')}</table:table-row>" for row in rows)
    return f"<table:table table:name={quoteattr(name)}>{columns}{lines}</table:table>"


def book(*tables: str, styles: str = "", named: str = "", ranges: str = "", settings_xml: str = "") -> bytes:
    told = f"<table:named-expressions>{ranges}</table:named-expressions>" if ranges else ""
    body = f"<office:spreadsheet>{''.join(tables)}{told}</office:spreadsheet>"
    return document(SHEET, body, styles, named, settings_xml)


def cells(rows: Sequence[Sequence[str | float]]) -> list[list[str]]:
    return [[cell(value) for value in row] for row in rows]


def set_cell(grid: list[list[str]], name: str, text: str) -> None:
    """Puts a cell into rows, which grow as they need."""
    column, row = ord(name[0]) - ord("A"), int(name[1:]) - 1
    while len(grid) <= row:
        grid.append([])
    while len(grid[row]) <= column:
        grid[row].append(cell(""))
    grid[row][column] = text


def text(lines: Sequence[str], styles: str = "", named: str = "") -> bytes:
    """A text whose paragraphs are XML."""
    return document(TEXT, f"<office:text>{''.join(lines)}</office:text>", styles, named)


def paragraph(content: str, style_name: str = "") -> str:
    told = f" text:style-name={quoteattr(style_name)}" if style_name else ""
    return f"<text:p{told}>{content}</text:p>"


def sum_sheet(task: calc.SumFormula, formula: str, **more: str) -> bytes:
    grid = cells(task.rows)
    set_cell(grid, task.cell, cell(float(sum(task.numbers)), formula=formula))
    return book(table(grid), **more)


def cost_sheet(task: calc.NewColumn, formulas: Sequence[str | None]) -> bytes:
    grid = cells(task.rows)
    set_cell(grid, f"{task.column}1", cell(task.heading))
    for row, formula in enumerate(formulas, 2):
        value = float(task.amounts[row - 2] * task.prices[row - 2])
        set_cell(grid, f"{task.column}{row}", cell(value, formula=formula) if formula else cell(value))
    return book(table(grid))


def marked_sheet(task: calc_looks.BoldCells, styles: str, named: str = "", used: str = "ce1", also: str = "") -> bytes:
    """The cells of the task, and `also` another, have the style `used`."""
    grid = cells(task.rows)
    for name in (*task.cells, *([also] if also else [])):
        value = task.rows[int(name[1]) - 1]["ABC".index(name[0])]
        set_cell(grid, name, cell(value, style_name=used))
    return book(table(grid), styles=styles, named=named)


def frozen_sheet(task: calc.SheetTask, rows: int, columns: int) -> bytes:
    item = '<config:config-item config:name="{}" config:type="{}">{}</config:config-item>'
    told = ""
    for way, after, many in (("Vertical", "Bottom", rows), ("Horizontal", "Right", columns)):
        if many:
            told += item.format(f"{way}SplitMode", "short", 2) + item.format(f"{way}SplitPosition", "int", many)
            told += item.format(f"Position{after}", "int", many)
    return book(table(cells(task.rows)), settings_xml=VIEW.format(told))


def office(task: Instance) -> bytes | None:
    """The saved document of a solution."""
    if isinstance(task, calc.SumFormula):
        return sum_sheet(task, f"of:=SUM([.{task.column}2:.{task.column}6])")
    if isinstance(task, calc.NewColumn):
        return cost_sheet(task, [f"of:=[.B{row}]*[.C{row}]" for row in range(2, 7)])
    if isinstance(task, calc_looks.BoldCells):
        return marked_sheet(task, style("ce1", "table-cell", BOLD))
    if isinstance(task, calc_looks.FreezeCells):
        return frozen_sheet(task, *task.may_freeze)
    if isinstance(task, calc_looks.AddSheets):
        one, two, new = task.names
        total = cell(float(sum(task.numbers)), formula=f"of:=[${one}.A2]+[${two}.A2]")
        return book(*(table(cells(rows), name) for name, rows in task.tables.items()), table([[total]], new))
    if isinstance(task, calc_sheets.CopyRows):
        grid = cells(task.rows)
        for row, values in enumerate(task.wanted, 1):
            for column, value in zip("EFG", values, strict=True):
                set_cell(grid, f"{column}{row}", cell(value))
        return book(table(grid))
    if isinstance(task, calc_sheets.Percent):
        grid = cells(task.rows)
        for name, number in task.numbers.items():
            set_cell(grid, name, cell(number, kind="percentage"))
        return book(table(grid))
    if isinstance(task, writer.Heading):
        lines = [
            f'<text:h text:style-name="Heading_20_{task.level}" text:outline-level="{task.level}">{line}</text:h>'
            if line == task.line
            else paragraph(line)
            for line in task.lines
        ]
        return text(lines)
    if isinstance(task, writer.BoldWord):
        return marked_word(task, "T1", styles=style("T1", "text", MARKS[task.mark]))
    if isinstance(task, writer.BulletList):
        return text([listed(line) if line in task.some else paragraph(line) for line in task.lines])
    return None


def listed(line: str) -> str:
    return f"<text:list><text:list-item>{paragraph(line)}</text:list-item></text:list>"


def marked_word(task: writer.BoldWord, name: str, styles: str = "", named: str = "") -> bytes:
    span = f'<text:span text:style-name="{name}">{task.word}</text:span>'
    mine = task.line.replace(task.word, span)
    return text([paragraph(mine if line == task.line else line) for line in task.lines], styles, named)


def posts(task: Instance) -> list[Post]:
    """The forms of a solution; none where the task is not one of a web application."""
    made: list[Post] = []
    if isinstance(task, web_shop.PlaceOrder):
        made.append(_post("/cart/add", id=task.article.id, amount=task.amount))
        made.append(_post("/order", name=task.buyer, city=task.city, delivery=task.delivery, payment=task.payment))
    elif isinstance(task, web_shop.MendCart):
        change, remove, *_ = task.chosen
        held = {each.id: amount for each, amount in zip(task.chosen, task.amounts, strict=True)}
        held[change.id] = task.amount
        made.append(_post("/cart", remove=remove.id, **{f"amount-{key}": amount for key, amount in held.items()}))
    elif isinstance(task, web_shop.BestBuy):
        made.append(_post("/cart/add", id=task.best.id, amount=1))
    elif isinstance(task, web_mail.AnswerQuestion):
        made.append(mail(task.asking, "Re: A question", task.amount, web_mail.MESSAGES + 1))
    elif isinstance(task, web_mail.SortMail):
        made.append(_post("/move", id=[each.id for each in task.some], folder=task.folder))
    elif isinstance(task, web_mail.MailFromFile):
        thing, amount = task.lines[task.line].split(": ")
        made.append(mail(task.to.sender, thing, amount))
    elif isinstance(task, web_pages.ThreePages):
        made.append(_post("/answer", answer=task.right))
    elif isinstance(task, web_board.Triage):
        number = task.start + task.place
        made.append(
            _post("/change", number=number, state="open", assignee=task.people[task.person], priority=task.priority)
        )
    elif isinstance(task, web_board.Duplicate):
        number = task.start + task.newer
        issue = task.at_start()[str(number)]
        made.append(
            _post("/change", number=number, state="closed", assignee=issue["assignee"], priority=issue["priority"])
        )
        made.append(_post("/comment", number=number, text=f"#{task.start + task.older}"))
    elif isinstance(task, web_forms.AccountSettings):
        made.append(_post("/", name=task.name, city=task.new_city))
        made.append(_post("/display", language=task.new_language, size="25"))
        made.append(_post("/messages", on=sorted({*task.on} ^ {task.switch})))
    elif isinstance(task, web_forms.Register):
        made.append(_post("/", name=task.person, city=task.city))
        made.append(_post("/course", course=task.courses[task.course], day=task.days[task.day]))
        made.append(_post("/extras", meal=task.meal, extras=task.extras))
        made.append(_post("/confirm", sure="on"))
    elif isinstance(task, web_forms.DamageReport):
        building = task.buildings[task.building]
        made.append(_post("/", building=building, kind=task.kind, day=task.date, urgency=task.urgency, text=task.text))
    elif isinstance(task, web_rooms.BookRoom):
        times = {"begin": web_rooms.hour(task.begin), "end": web_rooms.hour(task.begin + 1)}
        made.append(
            _post("/book", title=task.title, room=task.free, day=task.days[task.day], people=task.people, **times)
        )
    elif isinstance(task, web_rooms.MoveBooking):
        told = {**vars(task.one), "day": task.days[task.day], "people": task.people}
        made.append(_post("/book", **told))
    elif isinstance(task, web_table.ArchiveRows):
        made.append(_post("/archive", id=[each.id for each in task.largest]))
    return made


def _post(where: str, **fields: object) -> Post:
    return where, fields


def mail(to: str, subject: str, words: str, reply: object = "") -> Post:
    return _post("/send", to=f"{to.lower()}@example.org", subject=subject, text=words, reply=reply)


def bookmarks(*marks: tuple[str, str]) -> bytes:
    """The browser's store of bookmarks (name, address)."""
    bar = {"children": [{"type": "url", "name": name, "url": url} for name, url in marks], "type": "folder"}
    return json.dumps({"roots": {"bookmark_bar": bar}, "version": 1}).encode()


def files(task: Instance) -> dict[str, bytes]:
    """The files of a solution that are new or changed, by their paths."""
    content = office(task)
    if content is not None:
        return {task.file: content}  # type: ignore[attr-defined]
    if isinstance(task, settings.TabWidth):
        store = f"[{settings.GROUP}]\ntab-width={task.width}\n{task.switch}=true\n"
        return {settings.STORE: store.encode()}
    if isinstance(task, web_pages.Bookmark):
        url = f"http://127.0.0.1:{PORT}/{task.topics[task.topic]}"
        return {web_pages.BOOKMARKS: bookmarks((task.name, url))}
    return dict(task.targets())


def modes(task: Instance) -> dict[str, int]:
    """The files whose permissions a solution changes."""
    if isinstance(task, thunar_files.FilePermissions):
        return {task.file: 0o700 | task.group_mode}
    return {task.script: 0o700} if isinstance(task, xterm.ScriptPermissions) else {}


def folders(task: Instance) -> list[str]:
    """The folders that a solution makes."""
    return [f"{task.inside}/{task.name}"] if isinstance(task, thunar.NewFolder) else []


def commands(task: Instance) -> list[str]:
    """The solution as shell commands in the home; a command holds PIECE characters of a file's content."""
    out = []
    for path, content in files(task).items():
        name, folder = shlex.quote(path), shlex.quote(str(PurePosixPath(path).parent))
        out.append(f"mkdir -p {folder} && : > {name}")
        text = base64.b64encode(content).decode()
        pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))
        out += [f"printf %s {piece} | base64 -d >> {name}" for piece in pieces]
        if task.removed() and path not in task.removed():  # what was moved keeps its permissions
            out.append(f"chmod --reference={shlex.quote(task.removed()[0])} {name}")
    out += [f"rm -rf {shlex.quote(path)}" for path in task.removed()]
    out += [f"mkdir {shlex.quote(path)}" for path in folders(task)]
    out += [f"chmod {mode:o} {shlex.quote(path)}" for path, mode in modes(task).items()]
    for where, fields in posts(task):
        program = (
            "import urllib.request as r; "
            f"r.urlopen('http://127.0.0.1:{PORT}{where}', {urlencode(fields, doseq=True).encode()!r}).read()"
        )
        out.append(f"python3 -c {shlex.quote(program)}")
    return out
