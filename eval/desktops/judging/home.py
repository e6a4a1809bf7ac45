"""What a task may change: in the end the whole home is compared with what it was at the start."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from eval.desktop import BrokenByAgent, Score, SetupFailed
from eval.desktops.reading import FileEntry
from eval.desktops.stage import DesktopStage

# what an instruction says at its end, where the whole home is judged
REST: Final = "Leave everything else as it is: in the end, no other file or folder may be new, changed or gone."
TRASH: Final = ".local/share/Trash"
# What programs write on their own, measured with oracles of all programs (docs/howto/benchmark.md). A pattern
# stands for a file, or for a folder with all that is in it.
OWN: Final = (
    ".cache",
    ".config/Mousepad",
    ".config/Thunar",
    ".config/chromium",
    ".config/dconf",
    ".config/galculator",
    ".config/glib-2.0",
    ".config/gpicview",
    ".config/gtk-*",
    ".config/libreoffice",
    ".config/mimeapps.list",
    ".config/pulse",
    ".config/xfce4",
    ".dbus",
    ".local/share/Mousepad",
    ".local/share/gvfs-metadata",
    ".local/share/recently-used.xbel*",
    ".local/state",
    ".pki",
    TRASH,
    ".bash_history",
    ".lesshst",
    ".python_history",
    ".viminfo",
    ".~lock.*#",  # of LibreOffice, beside the document that is open
)
STRANGE: Final = 0o7113  # rights that a file gets in no usual way: to run it, as its owner, or all may write
STRANGE_OF_FOLDER: Final = 0o7002
ANEW: Final = (0o644, 0o664)  # what programs give to files that they write anew: one for the other is no change


@dataclass(frozen=True)
class Home:
    """A home. `contents`: of its plain files, but for those that programs write on their own."""

    entries: Mapping[str, FileEntry]
    contents: Mapping[str, bytes]


@dataclass(frozen=True)
class Allowed:
    """What may change. Folders above a path may be new, too.

    paths  of files and folders that may be new, changed or gone
    modes  of those whose permissions may change, too
    """

    paths: Collection[str]
    modes: Collection[str] = ()


async def read_home(stage: DesktopStage) -> Home:
    """The home as it is now, before anybody has acted. Raises SetupFailed."""
    try:
        entries = await stage.list_files("")
        contents = {}
        for path in [path for path, entry in entries.items() if entry.kind == "file" and not is_own(path)]:
            try:
                contents[path] = await stage.read_file(path)
            except FileNotFoundError:  # a program took it away meanwhile
                del entries[path]
    except BrokenByAgent as error:
        raise SetupFailed(str(error)) from None
    return Home(entries, contents)


def is_own(path: str) -> bool:
    """Whether programs write there on their own."""
    parts = PurePosixPath(path).parts
    starts = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    # a folder above what programs write is theirs too, as .config
    above = any(pattern.startswith(f"{path}/") for pattern in OWN)
    lock = fnmatch.fnmatchcase(parts[-1], ".~lock.*#")
    return above or lock or any(fnmatch.fnmatchcase(start, pattern) for start in starts for pattern in OWN)


async def judged(stage: DesktopStage, start: Home, allowed: Allowed, score: Score) -> Score:
    """The score, or 0 where something else was changed, with the detail `spoiled`. Raises BrokenByAgent."""
    lines = await spoiled(stage, start, allowed)
    return Score(0.0, False, {**score.detail, "spoiled": lines}) if lines else score


async def spoiled(stage: DesktopStage, start: Home, allowed: Allowed) -> list[str]:
    """A line for each thing that is not as it was and was not to change. Raises BrokenByAgent."""
    now = await stage.list_files("")
    above = {str(folder) for path in allowed.paths for folder in PurePosixPath(path).parents}
    found = []
    for path in sorted({*start.entries, *now}):
        was, entry = start.entries.get(path), now.get(path)
        if path in allowed.paths:
            before = [was] if was is not None else await _moved_here(stage, start, now, path)
            found += _rights(path, before, entry, path in allowed.modes)
        elif is_own(path) or (was is None and path in above and entry is not None and entry.kind == "folder"):
            continue
        elif was is None or entry is None or was.kind != entry.kind:
            found.append(f"{path} is {'new' if was is None else 'gone' if entry is None else f'a {entry.kind}'}")
        elif was.mode != entry.mode and path not in allowed.modes:
            found.append(f"the permissions of {path} were changed")
        elif was.kind == "file" and await _differs(stage, path, start.contents[path]):
            found.append(f"{path} was changed")
    return found + await _moved(stage, start, now, allowed)


def _rights(path: str, before: Collection[FileEntry], entry: FileEntry | None, free: bool) -> list[str]:
    """What is wrong with the kind and the permissions of something that may change. before: what it was, or may have
    been before it was moved; nothing where it is new."""
    if entry is None:
        return []
    if entry.kind not in ("file", "folder"):
        return [f"{path} is a {entry.kind}"]
    if before:
        kept = any(was.mode == entry.mode or {was.mode, entry.mode} <= {*ANEW} for was in before)
    else:
        kept = not entry.mode & (STRANGE if entry.kind == "file" else STRANGE_OF_FOLDER)
    return [] if free or kept else [f"the permissions of {path} were changed"]


async def _moved_here(stage: DesktopStage, start: Home, now: Mapping[str, FileEntry], path: str) -> list[FileEntry]:
    """The files of the start that are gone, and whose content a new file has."""
    entry = now.get(path)
    if entry is None or entry.kind != "file" or not entry.size:
        return []
    gone = [old for old, content in start.contents.items() if old not in now and len(content) == entry.size]
    return [start.entries[old] for old in gone if not await _differs(stage, path, start.contents[old])]


async def _differs(stage: DesktopStage, path: str, content: bytes) -> bool:
    try:
        return await stage.read_file(path) != content
    except (FileNotFoundError, BrokenByAgent):
        return True


async def _moved(stage: DesktopStage, start: Home, now: Mapping[str, FileEntry], allowed: Allowed) -> list[str]:
    """Files that were to go, and lie where programs write: only the trash is a way to delete."""
    gone = {path: start.contents[path] for path in start.contents if path not in now and start.contents[path]}
    sizes = {len(content) for content in gone.values()}
    found = []
    for path, entry in now.items():
        new = path not in start.entries and path not in allowed.paths and not path.startswith(f"{TRASH}/")
        if new and entry.kind == "file" and entry.size in sizes:
            found += [f"{old} was moved to {path}" for old in gone if not await _differs(stage, path, gone[old])]
    return found
