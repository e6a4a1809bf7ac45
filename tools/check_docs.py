"""Checks every Markdown file: links, images and anchors must point to files and headings that exist, paths and names
of code to code. The rooms and layers in docs/explanation/architecture.md must be those that import-linter enforces."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import house

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE_PATH = re.compile(r"`((?:launcher|training|eval|tests|tools)/[\w./-]*(?:\.py|/)|[\w-]+/[\w./-]+\.py)`")
CODE_NAME = re.compile(r"`((?:launcher|training|eval|tests|tools)/[\w./-]*\.py):([a-zA-Z_][\w.]*)`")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """The fragment that GitHub makes from a heading. An underscore within a word is no emphasis, and stays."""
    text = re.sub(r"[`*]|\b_|_\b", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    return {anchor(match) for match in re.findall(r"^#+\s+(.*)$", text, re.MULTILINE)}


def problems(path: Path) -> list[str]:
    found = []
    for target in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        if not other.exists():
            found.append(f"{path}: link to {target}: no such file")
        elif fragment and other.suffix == ".md" and fragment not in headings(other):
            found.append(f"{path}: link to {target}: no such heading")
    return found


def ends(files: list[str]) -> set[str]:
    """The paths of all files and folders, whole and from any folder on."""
    every = {*files, *(f"{folder}/" for name in files for folder in Path(name).parents)}
    return {name.split("/", count)[-1] for name in every for count in range(name.rstrip("/").count("/") + 1)}


def stale_code(path: Path, known: set[str]) -> list[str]:
    """The paths of code in this page that no file or folder has, and the names that such a file does not define."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    found = [f"{path}: {name}: no such file" for name in CODE_PATH.findall(text) if name not in known]
    for name, defined in CODE_NAME.findall(text):
        source = Path(name).read_text(encoding="utf-8") if Path(name).exists() else ""
        if any(not re.search(rf"(?:def|class) {part}\b|^{part}\b", source, re.M) for part in defined.split(".")):
            found.append(f"{path}: {name}: no such function or class: {defined}")
    return found


def house_problems() -> list[str]:
    """The differences between the tables of the house and the enforced rooms and layers."""
    try:
        page = house.page()
    except ValueError as error:
        return [str(error)]
    if house.rooms(house.FILE.read_text(encoding="utf-8")) == house.rooms(page):
        return []
    return [f"{house.FILE.relative_to(house.ROOT)}: other rooms or layers than in pyproject.toml: run `make golden`"]


def main() -> int:
    files = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split()
    names = [name for name in files if name.endswith(".md")]
    faults = [problem for name in names for problem in problems(Path(name))]
    # the changelog names what was; it stays as it was written
    known = ends(files)
    faults += [problem for name in names if name != "CHANGELOG.md" for problem in stale_code(Path(name), known)]
    faults += house_problems()
    print("\n".join(faults) if faults else f"{len(names)} documents: every link holds")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
