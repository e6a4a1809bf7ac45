"""The distributions that this interpreter can import, read from their *.dist-info folders (Debian's, and what setup.py
installed, have *.egg-info, a folder or a file), and which of them are tools.

A tool (a linter, a test runner) must not rename a training when it is installed. A distribution is left out if it is a
tool by name, or one that a local project asks for in an extra such as `dev`, or brought by these alone. It counts as
soon as something else needs it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

TOOLS: Final = frozenset(
    (
        *("autoflake", "autopep8", "bandit", "basedpyright", "black", "build", "codespell", "commitizen", "coverage"),
        *("debugpy", "flake8", "hatch", "hypothesis", "icecream", "ipdb", "ipykernel", "ipython", "isort", "jupyter"),
        *("jupyter-client", "jupyter-server", "jupyterlab", "line-profiler", "memray", "mkdocs", "mypy", "notebook"),
        *("nox", "pdm", "pip", "pip-audit", "pip-tools", "pipx", "poetry", "pre-commit", "ptpython", "pudb", "py-spy"),
        *("pylint", "pyright", "pytest", "pytest-asyncio", "pytest-cov", "pytest-mock", "pytest-timeout"),
        *("pytest-xdist", "ruff", "scalene", "setuptools", "snakeviz", "sphinx", "tox", "twine", "ty", "uv"),
        *("virtualenv", "wheel", "yapf"),
    )
)
RULES: Final = 1  # raised with TOOLS and with what `left_out` decides: answers of before do not count
_OF_TOOLS: Final = re.compile(r"dev|develop|development|test|tests|testing|lint|linting|typing|doc|docs|quality")
_INFO: Final = re.compile(r"(.+?)(?:-([^-]+?))?(?:\.dist-info|(?:-py\d[\d.]*)?\.egg-info)")
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.py|\.[\w.-]*so|\.pyd)?")
_REQUIRES: Final = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?([^;]*)(?:;(.*))?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_PLATFORM: Final = re.compile(r"""(sys_platform|platform_system|os_name)\s*==\s*['"]([^'"]+)['"]""")
_HERE: Final = {"sys_platform": sys.platform, "platform_system": os.uname().sysname, "os_name": os.name}
_KEY: Final = b"Requires-Dist:"
_BLOCK: Final = 16 << 10  # bytes

Node = tuple[str, str]  # a distribution and one of its extras; "" for what it always needs


class Distribution(NamedTuple):
    """info: the path of its *.dist-info or *.egg-info; origin: direct_url.json, for what did not come from an index;
    else empty."""

    name: str
    version: str
    info: str
    origin: Mapping[str, object]

    @property
    def local(self) -> bool:
        """Whether it came from a folder or a file of this machine."""
        return str(self.origin.get("url", "")).startswith("file:")

    @property
    def editable(self) -> bool:
        told = self.origin.get("dir_info")
        return isinstance(told, dict) and bool(told.get("editable"))

    @property
    def metadata(self) -> str:
        """The path of the file whose headers say what it is."""
        if self.info.endswith(".dist-info"):
            return f"{self.info}/METADATA"
        return f"{self.info}/PKG-INFO" if os.path.isdir(self.info) else self.info  # noqa: PTH112

    def requirements(self) -> Iterator[str]:
        """What it needs, as in Requires-Dist."""
        for header in _head(self.metadata).split(b"\n"):
            if header.startswith(_KEY):
                yield header[len(_KEY) :].decode("utf-8", "replace")
        if self.info.endswith(".egg-info"):
            try:
                lines = Path(self.info, "requires.txt").read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                return
            extra = ""
            for line in map(str.strip, lines):
                if line.startswith("["):
                    extra = line.strip("[]").partition(":")[0]
                elif line:
                    yield f'{line}; extra == "{extra}"' if extra else line

    def extras(self) -> dict[str, list[str]]:
        """Its extras -> the names of the distributions that each needs on this system."""
        return {extra: [name for name, _ in nodes] for extra, nodes in _needs(self).items() if extra}

    def top_names(self) -> set[str]:
        """What it brought into its folder of distributions: modules, and folders of them."""
        names = {self.name.replace("-", "_")}  # Debian deletes the list of files
        for path in (f"{self.info}/RECORD", f"{self.info}/top_level.txt"):
            try:
                with open(path, "rb") as stream:  # noqa: PTH123 - hundreds of them
                    lines = stream.read().split(b"\n")
            except OSError:
                continue
            names |= {os.fsdecode(line.partition(b"/")[0].partition(b",")[0].strip()) for line in lines}
        return names

    def files(self) -> Iterator[Path]:
        """Its installed files, as RECORD lists them."""
        try:
            import csv  # what has not changed is not read again

            rows = csv.reader(Path(self.info, "RECORD").read_text(encoding="utf-8").splitlines())
            yield from (Path(self.info).parent / row[0] for row in rows if row)
        except OSError:
            return


def plain_name(name: str) -> str:
    """A distribution's name as every installer compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(folders: Iterable[str]) -> dict[str, Distribution]:
    """The distributions in these folders, which are in the order of imports: of two versions the first counts."""
    found: dict[str, Distribution] = {}
    for folder in folders:
        try:
            entries = sorted(os.listdir(folder))  # noqa: PTH208 - names
        except OSError:
            continue
        for entry in entries:
            if (match := _INFO.fullmatch(entry)) is not None and (name := plain_name(match[1])) not in found:
                info = f"{folder}/{entry}"
                one = Distribution(name, match[2] or "", info, _origin(info))
                found[name] = one if one.version else one._replace(version=_told_version(one))
    return found


def of_none(site: str, found: Mapping[str, Distribution]) -> list[str]:
    """The modules in a folder of distributions that none of these brought there: somebody copied them."""
    known = {name.partition(".")[0] for one in found.values() for name in one.top_names()}
    names = [name for name in sorted(os.listdir(site)) if name.partition(".")[0] not in known]  # noqa: PTH208 - names
    return [name for name in names if _MODULE.fullmatch(name) and name != "__pycache__"]


def _told_version(one: Distribution) -> str:
    """Of one whose name has none, as Debian writes some."""
    told = (line for line in _head(one.metadata).split(b"\n") if line.startswith(b"Version:"))
    return next(told, b"Version:").partition(b":")[2].decode("utf-8", "replace").strip()


def _origin(info: str) -> Mapping[str, object]:
    if not os.access(f"{info}/direct_url.json", os.R_OK):  # of hundreds few have one, and an exception costs more
        return {}
    try:
        with open(f"{info}/direct_url.json", "rb") as stream:  # noqa: PTH123 - hundreds of them, and few are there
            told = json.load(stream)
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def left_out(found: Mapping[str, Distribution], ignore: Collection[str]) -> set[str]:
    """The names of the tools among these distributions. `ignore`: more names that the user calls tools."""
    needs = {name: _needs(one) for name, one in found.items()}
    local = {name for name, one in found.items() if one.local}
    starts = {(name, "") for name in {*TOOLS, *map(plain_name, ignore)} if name in found}
    asked: set[Node] = set()  # by local projects, for what is no tool's work
    for name in local:
        for extra, nodes in needs[name].items():
            (starts if _OF_TOOLS.fullmatch(extra) else asked).update(nodes)
    candidates = {name for name, _ in _reached(starts, needs)} - local
    # what the others need counts, whoever else brings it; nobody knows which of their extras were asked for
    roots = {(name, "") for name in found if name not in candidates} | asked
    named = {plain_name(name) for name in ignore}
    needed = {name for name, _ in _reached({node for node in roots if node[0] not in named}, needs)}
    return (candidates - needed) | (named & found.keys())


def _reached(starts: Iterable[Node], needs: Mapping[str, Mapping[str, list[Node]]]) -> set[Node]:
    seen: set[Node] = set()
    left = [node for node in starts if node[0] in needs]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            name, extra = node
            left += [other for other in needs[name].get(extra, ()) if other[0] in needs]
            if extra:
                left.append((name, ""))
    return seen


def _needs(one: Distribution) -> dict[str, list[Node]]:
    """What a distribution needs, by its extras."""
    needs: dict[str, list[Node]] = {"": []}
    for text in one.requirements():
        if (match := _REQUIRES.match(text)) is not None:
            marker = match[4] or ""
            if " or " not in marker and any(_HERE[of] != value for of, value in _PLATFORM.findall(marker)):
                continue  # for another system
            extra = _EXTRA.search(marker) if "extra" in marker else None
            name = plain_name(match[1])
            nodes = needs.setdefault(extra[1] if extra else "", [])
            nodes.append((name, ""))
            if match[2]:
                nodes += [(name, part.strip()) for part in match[2].split(",") if part.strip()]
    return needs


def _head(path: str) -> bytes:
    """The headers of a METADATA file, without the description that follows them. Empty if it cannot be read."""
    head = b""
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - hundreds of them
            while block := stream.read(_BLOCK):
                head += block
                if (end := max(head.find(b"\n\n"), head.find(b"\n\r\n"))) >= 0:
                    return head[:end]
    except OSError:
        return b""
    return head
