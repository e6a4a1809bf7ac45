"""The checkers. Each was written from the instruction's text alone, which it reads for the names and numbers, and it
looks at the files by other means than the judges: LibreOffice without a screen, tar, Pillow, plain text.

A checker takes the instruction, the state before and the state after, and says whether the task is done.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

from PIL import Image

from tests.bench.apart.state import State, pages, paragraphs, sheets

Checker = Callable[[str, State, State], bool]
CHECKERS: Final[dict[str, Checker]] = {}


def checks(name: str) -> Callable[[Checker], Checker]:
    def enter(checker: Checker) -> Checker:
        CHECKERS[name] = checker
        return checker

    return enter


def words(pattern: str, text: str) -> tuple[str, ...]:
    found = re.search(pattern, text)
    assert found is not None, f"{pattern!r} is not in: {text}"
    return found.groups()


def moved(before: State, after: State, names: dict[str, str | None]) -> bool:
    """Whether exactly these files went to their new paths (None: away), with their content, and all others stay."""
    expected = {path: data for path, data in before.visible.items() if path not in names}
    expected |= {new: before.files[old] for old, new in names.items() if new is not None}
    return expected == after.visible


@checks("mousepad-append")
def _(text: str, before: State, after: State) -> bool:
    name, line = words(r'shows (.+?)\. Add one line at its end, exactly "(.*)", and save', text)
    path = before.place(name)
    return after.lines(path) == [*before.lines(path), line]


@checks("mousepad-delete-line")
def _(text: str, before: State, after: State) -> bool:
    name, first, last = words(r'shows (.+?)\. Delete the lines from "(.*)" to "(.*)", both included, and leave', text)
    path = before.place(name)
    lines = before.lines(path)
    return after.lines(path) == lines[: lines.index(first)] + lines[lines.index(last) + 1 :]


@checks("mousepad-sort")
def _(text: str, before: State, after: State) -> bool:
    path = before.place(words(r"shows (.+?)\. Put", text)[0])
    return after.lines(path) == sorted(before.lines(path))


@checks("mousepad-replace")
def _(text: str, before: State, after: State) -> bool:
    name, old, new = words(r"shows (.+?)\. Replace the name (\w+) by (\w+) in", text)
    path = before.place(name)
    return after.lines(path) == [line.replace(old, new) for line in before.lines(path)]


@checks("mousepad-line-ends")
def _(text: str, before: State, after: State) -> bool:
    old, new, end = words(r"shows (.+?)\. Save .* new name (\S+) in .* \((CR|CR LF)\)", text)
    wanted = before.files[old].replace(b"\n", {"CR": b"\r", "CR LF": b"\r\n"}[end])
    return after.visible == {**before.visible, new: wanted}


@checks("thunar-rename")
def _(text: str, before: State, after: State) -> bool:
    old, new = words(r"file (.+?) of the home folder to (.+)\.$", text)
    return moved(before, after, {old: new})


@checks("thunar-delete-kind")
def _(text: str, before: State, after: State) -> bool:
    kind, folder = words(r"all (\.\w+) files in the folder (\S+) of", text)
    return moved(before, after, {path: None for path in before.below(folder) if path.endswith(kind)})


@checks("thunar-largest")
def _(text: str, before: State, after: State) -> bool:
    old, new = words(r"folder (\w+) into the folder (\w+)\.", text)
    largest = sorted(before.below(old), key=lambda path: -len(before.files[path]))[:2]
    return moved(before, after, {path: f"{new}/{PurePosixPath(path).name}" for path in largest})


@checks("thunar-copy-several")
def _(text: str, before: State, after: State) -> bool:
    old, new, names = words(r"folder (\w+) into the folder (\w+): (.+?)\. Both", text)
    chosen = re.split(r", | and ", names)
    copies = {f"{new}/{name}": before.files[f"{old}/{name}"] for name in chosen}
    return len(chosen) == 3 and after.visible == {**before.visible, **copies}


@checks("thunar-sort-kinds")
def _(text: str, before: State, after: State) -> bool:
    where = dict(re.findall(r"(\.\w+) into (\w+)", text))
    here = [path for path in before.visible if "/" not in path and PurePosixPath(path).suffix in where]
    return len(where) == 3 and moved(before, after, {p: f"{where[PurePosixPath(p).suffix]}/{p}" for p in here})


@checks("xterm-count")
def _(text: str, before: State, after: State) -> bool:
    log, name, out = words(r"lines of (\S+) that name (\w+), and write .* the file (\S+) of", text)
    path = before.place(log)
    count = sum(re.search(rf"\b{name}\b", line) is not None for line in before.lines(path))
    return after.text(out).strip() == str(count)


@checks("xterm-difference")
def _(text: str, before: State, after: State) -> bool:
    one, other, out = words(r"^(\S+) and (\S+) in the home folder .* into (\S+) of the home", text)
    rest = set(before.lines(one))
    return after.lines(out) == [line for line in before.lines(other) if line not in rest]


@checks("xterm-sort-unique")
def _(text: str, before: State, after: State) -> bool:
    one, other, out = words(r"^(\S+) and (\S+) in the home folder .* into (\S+): each", text)
    return after.lines(out) == sorted({*before.lines(one), *before.lines(other)} - {""})


@checks("xterm-table-sums")
def _(text: str, before: State, after: State) -> bool:
    table, out = words(r"line of (\S+) in the home .* into (\S+) of the home", text)
    sums: Counter[str] = Counter()
    for line in before.lines(table):
        _, city, amount = line.split(";")
        sums[city] += int(amount)
    return after.lines(out) == [f"{city} {sums[city]}" for city in sorted(sums)]


@checks("xterm-rename-ending")
def _(text: str, before: State, after: State) -> bool:
    folder, old, new = words(r"folder (\S+) of .* end in (\.\w+): they are to end in (\.\w+)\.", text)
    mine = [path for path in before.below(folder) if path.endswith(old)]
    return moved(before, after, {path: path.removesuffix(old) + new for path in mine})


@checks("xterm-permissions")
def _(text: str, before: State, after: State) -> bool:
    name, other = words(r"permissions of (\S+) so that .* Leave (\S+) alone", text)
    return after.modes.get(name) == 0o700 and after.modes.get(other) == before.modes[other]


@checks("xterm-pack")
def _(text: str, before: State, after: State) -> bool:
    folder, archive = words(r"folder (\w+) of the home folder into the archive (\S+) in", text)
    wanted = {path: data for path, data in before.below(folder).items() if not path.endswith(".tmp")}
    packed = after.files.get(archive, b"")
    listed = subprocess.run(["tar", "-tzf", "-"], input=packed, capture_output=True, check=False)
    names = [name.removeprefix("./") for name in listed.stdout.decode().splitlines() if not name.endswith("/")]
    if listed.returncode or sorted(names) != sorted(wanted) or before.below(folder) != after.below(folder):
        return False
    for name in listed.stdout.decode().splitlines():
        if name.endswith("/"):
            continue
        one = subprocess.run(["tar", "-xzOf", "-", name], input=packed, capture_output=True, check=False)
        if one.stdout != wanted[name.removeprefix("./")]:
            return False
    return True


@checks("calc-sum")
def _(text: str, before: State, after: State) -> bool:
    told = r"^(\S+) is open\. Write a formula into ([A-Z])(\d+) that adds up the (\w+)s \([BC](\d+) to [BC](\d+)\)"
    name, to, row_of, what, first, last = words(told, text)
    path = before.place(name)
    (values,), (typed,) = sheets(after.files[path]).values(), sheets(after.files[path], formulas=True).values()
    (old,) = sheets(before.files[path]).values()
    row, place, column = int(row_of) - 1, ord(to) - ord("A"), old[0].index(what)
    wanted = sum(float(old[number - 1][column]) for number in range(int(first), int(last) + 1))
    others = [each[:place] + each[place + 1 :] if index == row else each for index, each in enumerate(values)]
    same = [[each for each in line if each] for line in others if any(line)] == old
    return same and typed[row][place].startswith("=") and float(values[row][place]) == wanted


@checks("calc-sort")
def _(text: str, before: State, after: State) -> bool:
    told = r"^(\S+) is open\. Sort the rows by the (\w+), the (largest|smallest) first.* Call the sheet (\S+), and"
    name, by, first, title = words(told, text)
    path = before.place(name)
    (old,), ((called, now),) = sheets(before.files[path]).values(), sheets(after.files[path]).items()
    column = old[0].index(by)
    numbers = [float(row[column]) for row in now[1:]]
    kept = now[0] == old[0] and sorted(now[1:]) == sorted(old[1:])
    return called == title and kept and numbers == sorted(numbers, reverse=first == "largest")


@checks("calc-change")
def _(text: str, before: State, after: State) -> bool:
    name, article, price = words(r"^(\S+) is open\. The price of (.+) is (\d+) now", text)
    path = before.place(name)
    (old,), (now,) = sheets(before.files[path]).values(), sheets(after.files[path]).values()
    column = old[0].index("price")
    wanted = [[*row[:column], price, *row[column + 1 :]] if article in row else row for row in old]
    return now == wanted


@checks("calc-remove-row")
def _(text: str, before: State, after: State) -> bool:
    name, *articles = words(r"^(\S+) is open\. Remove the whole rows of (\w+) and (\w+), without", text)
    path = before.place(name)
    (old,), (now,) = sheets(before.files[path]).values(), sheets(after.files[path]).values()
    return now == [row for row in old if row[0] not in articles]


@checks("calc-rename-sheet")
def _(text: str, before: State, after: State) -> bool:
    name, sheet = words(r"^(\S+) is open\. Call its sheet (\S+), and", text)
    path = before.place(name)
    (old,) = sheets(before.files[path]).values()
    return sheets(after.files[path]) == {sheet: old}


@checks("writer-replace")
def _(text: str, before: State, after: State) -> bool:
    name, old, new = words(r"^(\S+) is open\. Replace the word (\w+) by (\S+) everywhere", text)
    path = before.place(name)
    return paragraphs(after.files[path]) == [line.replace(old, new) for line in paragraphs(before.files[path])]


@checks("writer-move")
def _(text: str, before: State, after: State) -> bool:
    name, line, other = words(r'^(\S+) is open\. Move the line "(.+)" directly above the line "(.+)", and', text)
    path = before.place(name)
    wanted = [each for each in paragraphs(before.files[path]) if each != line]
    wanted.insert(wanted.index(other), line)
    return paragraphs(after.files[path]) == wanted


@checks("writer-heading")
def _(text: str, before: State, after: State) -> bool:
    name, line, level = words(r'^(\S+) is open\. Make the line "(.+)" a Heading (\d),', text)
    path = before.place(name)
    headings = re.findall(r"<h(\d)[^>]*>(.*?)</h", pages(after.files[path]), re.DOTALL)
    plain = [(which, " ".join(re.sub(r"<[^>]+>", "", each).split())) for which, each in headings]
    return plain == [(level, line)] and paragraphs(after.files[path]) == paragraphs(before.files[path])


HUES: Final = {"red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255), "yellow": (255, 255, 0)}


def hue_of(data: bytes) -> str | None:
    """The name of a picture's colour by its middle; None for what is no picture."""
    try:
        with Image.open(io.BytesIO(data)) as picture:
            middle = picture.convert("RGB").resize((3, 3), Image.Resampling.BOX).getpixel((1, 1))
    except OSError:
        return None
    assert isinstance(middle, tuple)
    return min(HUES, key=lambda name: sum((a - b) ** 2 for a, b in zip(middle, HUES[name], strict=True)))


@checks("gpicview-thunar-colour")
def _(text: str, before: State, after: State) -> bool:
    old, hue, new = words(r"folder (\w+) of the home folder are (\w+) all over\. .* the folder (\w+), which", text)
    mine = [path for path, data in before.below(old).items() if hue_of(data) == hue]
    return len(mine) == 2 and moved(before, after, {p: f"{old}/{new}/{PurePosixPath(p).name}" for p in mine})


@checks("galculator-to-editor")
def _(text: str, before: State, after: State) -> bool:
    path = before.place(words(r"^(\S+) in the editor has a price", text)[0])
    prices = [int(re.findall(r"\d+", line)[-1]) for line in before.lines(path)]
    return after.lines(path) == [*before.lines(path), f"total {sum(prices)}"]


@checks("thunar-editor-rename")
def _(text: str, before: State, after: State) -> bool:
    folder, name = words(r"in the folder (\w+) of the home folder were written by (\w+):", text)
    mine = [path for path, data in before.below(folder).items() if re.search(rb"\b%b\b" % name.encode(), data)]
    return len(mine) == 2 and moved(before, after, {p: f"{folder}/{name} {PurePosixPath(p).name}" for p in mine})


@checks("xterm-thunar-count")
def _(text: str, before: State, after: State) -> bool:
    one, other, folder = words(r"lines of (\S+) and of (\S+) in the folder (\w+) of", text)
    names: dict[str, str | None] = {}
    for name in (one, other):
        path, place = f"{folder}/{name}", PurePosixPath(name)
        names[path] = f"{folder}/{place.stem} {len(before.lines(path))}{place.suffix}"
    return moved(before, after, names)


@checks("mousepad-two-tabs")
def _(text: str, before: State, after: State) -> bool:
    start, old, new = words(r"begin with (\w+) from (\S+) to the end of (\S+), in", text)
    from_, to = before.place(old), before.place(new)
    mine = [line for line in before.lines(from_) if line.startswith(start)]
    rest = [line for line in before.lines(from_) if not line.startswith(start)]
    return after.lines(from_) == rest and after.lines(to) == before.lines(to) + mine


@checks("web-bookmark")
def _(text: str, before: State, after: State) -> bool:
    page, name = words(r'Go to the page (\w+), and bookmark it with the name "(.+)"\.', text)
    found = []
    for path, data in after.files.items():
        if PurePosixPath(path).name == "Bookmarks":
            left = [*json.loads(data)["roots"].values()]
            while left:
                node = left.pop()
                left += node.get("children", [])
                found += [(node["name"], node["url"])] if node.get("type") == "url" else []
    return [each for each, _ in found] == [name] and page in found[0][1]


@checks("web-settings")
def _(text: str, before: State, after: State) -> bool:
    city, language, switch = words(r'city to (\w+) and the language to (\w+), and switch on: "(.+)"\. Save', text)
    shown = {"Send me news": "news", "Mail me when somebody replies": "replies", "Weekly summary": "weekly"}
    on = sorted({*before.site["on"], shown[switch]})
    return dict(after.site) == {**before.site, "city": city, "language": language, "on": on}
