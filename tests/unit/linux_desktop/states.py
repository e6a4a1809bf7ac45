"""End states of tasks: right ones by unusual ways, near ones that are wrong, right ones with something spoiled. They
are written from what is asked and the start state alone."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from eval.benchmarks.linux_desktop.template import Instance
from eval.benchmarks.linux_desktop.templates import (
    editor_documents,
    mousepad,
    settings,
    thunar,
    thunar_files,
    together_terminal,
    web_pages,
    xterm,
    xterm_files,
)
from eval.benchmarks.linux_desktop.templates.web import WebTask
from tests.support.folder_stage import FolderStage
from tests.unit.linux_desktop.solutions import solve
from tests.unit.linux_desktop.state import (
    TRASHED,
    Change,
    Kind,
    State,
    after_solving,
    changed_mode,
    saved_at,
    written,
)
from tests.unit.linux_desktop.states_office import of_sheets, of_texts
from tests.unit.linux_desktop.states_web import of_web


def states(task: Instance, start: dict[str, bytes]) -> Iterator[State]:
    """The states of a task. `start`: its visible files at the start."""
    yield from around(task, start)
    yield from of_removed(task)
    yield from of_targets(task, start)
    yield from of_web(task)
    yield from of_sheets(task)
    yield from of_texts(task)
    yield from of_others(task)


def around(task: Instance, start: dict[str, bytes]) -> Iterator[State]:
    """A solution, and something beside it."""
    own = [".config/Thunar/accels.scm", ".cache/thumbnails/normal/a.png", ".local/share/recently-used.xbel"]
    for path in own:
        yield State(f"with {path}", "right", after_solving(task, lambda stage, path=path: written(stage, path)))
    lock = ".~lock.x.ods#"
    yield State("with a lock file", "right", after_solving(task, lambda stage: written(stage, lock)))
    target = next((path for path in task.targets()), "notes.txt")
    folder = str(Path(target).parent)
    spoil: dict[str, Callable[[FolderStage], object]] = {
        "a new file in the home": lambda stage: written(stage, "result.txt"),
        "a new file beside the work": lambda stage: written(stage, f"{folder}/copy of it.txt"),
        "a hidden file in the home": lambda stage: written(stage, ".notes"),
        "a new folder": lambda stage: (stage.home / "new folder").mkdir(),
        "a link": lambda stage: (stage.home / "link.txt").symlink_to("/etc/hostname"),
        "a link to the home": lambda stage: (stage.home / "here").symlink_to("."),
        "a pipe": lambda stage: os.mkfifo(stage.home / "pipe"),
    }
    others = sorted(path for path in start if path not in task.targets() and path not in task.removed())
    if isinstance(task, (thunar_files.FilePermissions, xterm.ScriptPermissions)):
        others = [path for path in others if path not in task.allowed().modes]
    others = [path for path in others if not path.endswith((".ods", ".odt"))]
    if others:
        other = others[0]
        spoil["another file has one byte more"] = lambda stage: written(stage, other, start[other] + b".")
        spoil["another file is empty"] = lambda stage: written(stage, other, b"")
        spoil["another file is gone"] = lambda stage: (stage.home / other).unlink()
        spoil["another file may be run"] = lambda stage: (stage.home / other).chmod(0o755)
        spoil["another file has another name"] = lambda stage: (stage.home / other).rename(stage.home / "other")
    for name, more in spoil.items():
        yield State(name, "spoiled", after_solving(task, more))


def of_removed(task: Instance) -> Iterator[State]:
    """Where files are to go, they are put somewhere else."""
    gone = task.removed()
    if not gone:
        return

    def put(where: str) -> Change:
        async def make(stage: FolderStage) -> None:
            contents = {path: (stage.home / path).read_bytes() for path in gone}
            await solve(task, stage)
            for path, content in contents.items():
                written(stage, where.format(name=Path(path).name, folder=Path(path).parent), content)

        return make

    yield State("in the trash", "right", put(f"{TRASHED}/{{name}}"))
    for where in (
        "{folder}/.{name}",
        "{folder}/{name}~",
        "old/{name}",
        ".cache/{name}",
        ".config/Thunar/{name}",
        "{name}.bak",
    ):
        yield State(f"moved to {where}", "spoiled", put(where))

    async def some(stage: FolderStage) -> None:
        content = (stage.home / gone[0]).read_bytes()
        await solve(task, stage)
        written(stage, gone[0], content)

    yield State("one of them stays", "wrong", some)


def of_targets(task: Instance, start: dict[str, bytes]) -> Iterator[State]:
    """Files that a solution writes, and nearly those."""
    targets = {path: content for path, content in task.targets().items() if not path.endswith((".ods", ".odt"))}
    if not targets or isinstance(task, WebTask):
        return
    plain = {
        path
        for path, content in targets.items()
        if content.endswith(b"\n") and not content.startswith((b"PK", b"\x1f"))
    }
    path = next(iter(targets))
    # what is moved, copied or downloaded is the same to the last byte; the editor may save a text without the last one
    same = [] if isinstance(task, mousepad.SaveCopy) else list(start.values())
    to_the_byte = (editor_documents.LineEnds, web_pages.Download, thunar_files.HiddenFile, xterm_files.UnpackOne)
    if isinstance(task, to_the_byte):
        same += targets.values()

    def change(how: Callable[[FolderStage, Path], object]) -> Change:
        return after_solving(task, lambda stage: how(stage, stage.home / path))

    # what was there keeps its permissions, also when it was moved; what is new may have those of its writer
    hidden = path.startswith(".") or isinstance(task, thunar_files.HiddenFile)  # `start` has none of these
    old = hidden or path in start or targets[path] in [start[gone] for gone in task.removed() if gone in start]
    yield State("rights of the user alone", "spoiled" if old else "right", change(lambda s, file: file.chmod(0o600)))
    if path not in task.removed():
        yield State("it may be run", "spoiled", change(lambda stage, file: file.chmod(0o755)))
        yield State("all may write it", "spoiled", change(lambda stage, file: file.chmod(0o666)))
    yield State(
        "its name in capitals", "wrong", change(lambda stage, file: file.rename(file.with_name(file.name.upper())))
    )
    yield State("in a folder below", "wrong", change(lambda stage, file: put_below(file)))
    yield State("a link to it", "wrong", change(lambda stage, file: link_to(file)))
    yield State(
        "a second copy", "spoiled", change(lambda stage, file: written(stage, f"{path}.orig", file.read_bytes()))
    )
    if path in plain:
        yield State(
            "no line break at the end",
            "wrong" if targets[path] in same else "right",
            change(lambda stage, file: file.write_bytes(file.read_bytes()[:-1])),
        )
        yield State("a line more", "wrong", change(lambda stage, file: file.write_bytes(file.read_bytes() + b"\n.\n")))
        yield State(
            "without the first letter", "wrong", change(lambda stage, file: file.write_bytes(file.read_bytes()[1:]))
        )
        yield State(
            "with a mark for UTF-8",
            "wrong",
            change(lambda s, file: file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())),
        )
    yield State("empty", "wrong", change(lambda stage, file: file.write_bytes(b"")))
    yield State("cut short", "wrong", change(lambda stage, file: file.write_bytes(file.read_bytes()[:-2])))
    yield State("a copy for every number", "spoiled", change(lambda stage, file: scatter(file)))


def put_below(file: Path) -> None:
    content = file.read_bytes()
    file.unlink()
    file.mkdir()
    (file / file.name).write_bytes(content)


def link_to(file: Path) -> None:
    other = file.with_name(f"{file.name}.real")
    file.rename(other)
    file.symlink_to(other.name)


def scatter(file: Path) -> None:
    content = file.read_bytes()
    for number in range(60, 90):
        other = file.with_name(f"{file.stem.split(' ')[0]} {number}{file.suffix}")
        if other != file:
            other.write_bytes(content)


def of_others(task: Instance) -> Iterator[State]:
    """What only some templates have."""
    if isinstance(task, xterm_files.PackFolder):
        for name, kind, content in packages(task):
            yield State(f"an archive with {name}", kind, saved_at(task.archive, content))
    if isinstance(task, settings.TabWidth):
        other = next(name for name in settings.SWITCHES if name != task.switch)
        store = f"[{settings.GROUP}]\ntab-width={task.width}\n{task.switch}=true\n{other}="
        yield State("another switch too", "spoiled", saved_at(settings.STORE, f"{store}true\n".encode()))
        yield State("another switch on and off again", "right", saved_at(settings.STORE, f"{store}false\n".encode()))
    if isinstance(task, thunar.NewFolder):
        path = f"{task.inside}/{task.name}"
        yield State("with a file in it", "spoiled", after_solving(task, lambda stage: written(stage, f"{path}/x.txt")))
        yield State(
            "with a folder in it", "spoiled", after_solving(task, lambda stage: (stage.home / path / "x").mkdir())
        )
        yield State("a file of its name", "wrong", saved_at(path, b""))
    if isinstance(task, thunar_files.FilePermissions):
        right = 0o700 | task.group_mode
        for mode in (right, right | 0o010, right | 0o011):
            yield State(f"{mode:o}", "right", lambda s, mode=mode: changed_mode(s, task.file, mode))
        others = {0o700 | group for group in (0, 0o020, 0o040, 0o060)} - {right}
        for mode in (right | 0o004, right | 0o002, right & ~0o100, *sorted(others)):
            yield State(f"{mode:o}", "wrong", lambda s, mode=mode: changed_mode(s, task.file, mode))
    if isinstance(task, xterm.ScriptPermissions):
        for mode in (0o770, 0o755, 0o600, 0o4700, 0o711):
            yield State(f"{mode:o}", "wrong", lambda s, mode=mode: changed_mode(s, task.script, mode))
    if isinstance(task, together_terminal.CountIntoName):

        async def every_number(stage: FolderStage) -> None:
            for old, _ in task.pairs:
                content = (stage.home / task.folder / old).read_bytes()
                (stage.home / task.folder / old).unlink()
                for number in range(60, 401):
                    written(stage, f"{task.folder}/{old.removesuffix('.log')} {number}.log", content)

        yield State("a copy for every number from 60 to 400", "spoiled", every_number)


def packages(task: xterm_files.PackFolder) -> Iterator[tuple[str, Kind, bytes]]:
    def packed(change: Callable[[tarfile.TarInfo], tarfile.TarInfo], below: str = "", folder: bool = False) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            if folder:
                member = tarfile.TarInfo(task.folder)
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
            for name, content in task.wanted.items():
                member = tarfile.TarInfo(below + name)
                member.size = len(content)
                member = change(member)
                archive.addfile(member, io.BytesIO(content) if member.isfile() else None)
        return out.getvalue()

    def link(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.type, member.size, member.linkname = tarfile.SYMTYPE, 0, "/home/user/" + member.name
        return member

    yield "folders in it", "right", packed(lambda member: member, folder=True)
    yield "./ in front of the names", "right", packed(lambda member: member, "./")
    yield "links in the place of files", "wrong", packed(link)
    first = next(iter(task.wanted))
    yield "one link in the place of a file", "wrong", packed(lambda each: link(each) if each.name == first else each)
    yield "whole paths", "wrong", packed(lambda member: member, "home/user/")
    yield "a link more", "spoiled", with_link(task)


def with_link(task: xterm_files.PackFolder) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in task.wanted.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        more = tarfile.TarInfo(f"{task.folder}/more.txt")
        more.type, more.linkname = tarfile.SYMTYPE, "a.txt"
        archive.addfile(more)
    return out.getvalue()
