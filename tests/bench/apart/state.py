"""The state of a desktop as these checkers see it: its files, copied out, and what its web application holds."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from eval.desktop import BrokenByAgent
from eval.desktops.stage import DesktopStage

# comma, quotes, UTF-8, from the first row, values as they are stored (not as shown), formulas or values, no spaces
# removed, every sheet in a file of its own: token by token what LibreOffice's help calls "Filter Options for CSV"
CSV = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false,{formulas},false,-1"


@dataclass
class State:
    """`files` by path from the home, hidden ones too; `modes` their permissions; `site`: what the application holds."""

    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    site: Mapping[str, Any] = field(default_factory=dict)

    @property
    def visible(self) -> dict[str, bytes]:
        return {
            path: data
            for path, data in self.files.items()
            if not any(part.startswith(".") for part in PurePosixPath(path).parts)
        }

    def text(self, path: str) -> str:
        """A text file; a replacement character stands for what is no UTF-8, nothing for a file that is not there."""
        return self.files.get(path, b"").decode(errors="replace")

    def lines(self, path: str) -> list[str]:
        """Its lines; whether the last one has an end makes no difference."""
        return self.text(path).removesuffix("\n").split("\n")

    def place(self, name: str) -> str:
        """The path of the one file of this name. Raises LookupError."""
        found = [path for path in self.visible if PurePosixPath(path).name == name]
        if len(found) != 1:
            raise LookupError(f"{name}: {found}")
        return found[0]

    def below(self, folder: str) -> dict[str, bytes]:
        return {path: data for path, data in self.files.items() if path.startswith(f"{folder}/")}


async def seen(stage: DesktopStage, *, site: bool) -> State:
    """Everything of a desktop's home but caches."""
    state = State(site=await stage.served() if site else {})
    for path, entry in (await stage.list_files("")).items():
        state.modes[path] = entry.mode
        if entry.kind == "folder":
            state.folders.add(path)
        elif entry.kind == "file" and entry.size < 8 << 20 and "ache" not in path:
            try:
                state.files[path] = await stage.read_file(path)
            except (FileNotFoundError, BrokenByAgent):
                continue  # gone meanwhile
    return state


def converted(data: bytes, suffix: str, to: str) -> dict[str, bytes]:
    """What LibreOffice without a screen makes of a document, by file; {} where it takes it for none."""
    if not data.startswith(b"PK"):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / f"given{suffix}", Path(folder) / "out"
        source.write_bytes(data)
        subprocess.run(
            ["soffice", f"-env:UserInstallation=file://{folder}/profile", "--headless", "--norestore",
             "--convert-to", to, "--outdir", str(out), str(source)],
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        return {each.name: each.read_bytes() for each in out.iterdir()} if out.is_dir() else {}


def sheets(data: bytes, *, formulas: bool = False) -> dict[str, list[list[str]]]:
    """The rows of each sheet, by its name, without empty rows at the end."""
    found = {}
    for name, content in converted(data, ".ods", CSV.format(formulas=str(formulas).lower())).items():
        rows = [[*row] for row in csv.reader(io.StringIO(content.decode()))]
        while rows and not any(rows[-1]):
            rows.pop()
        found[name.removeprefix("given-").removesuffix(".csv")] = rows
    return found


def paragraphs(data: bytes) -> list[str]:
    text = "".join(each.decode("utf-8-sig") for each in converted(data, ".odt", "txt:Text (encoded):UTF8").values())
    return [line for line in re.split(r"\r?\n", text) if line]


def pages(data: bytes) -> str:
    return "".join(each.decode() for each in converted(data, ".odt", "html:HTML (StarWriter)").values())
