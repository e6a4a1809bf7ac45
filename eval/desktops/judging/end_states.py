"""End states of a task of files: right ones in another way, near ones that are wrong, right ones with something else
spoiled. They are made from the start and one right end, so whoever writes a judge sees what it says of others, on a
folder in the place of a desktop (`FolderStage`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.desktop import NotRunHere, SetupFailed
from eval.desktops.judging.home import TRASH
from eval.desktops.reading import FileEntry, list_files, read_file

EndKind = Literal["right", "wrong", "spoiled"]
Texts = Mapping[str, str | None]  # path -> text; None: the file is gone
OWN: Final = (".config/Thunar/accels.scm", ".cache/thumbnails/a.png", ".local/share/recently-used.xbel")


@dataclass(frozen=True)
class EndState:
    """`make` brings a home from the start to this state."""

    name: str
    kind: EndKind
    make: Callable[[Path], object]


def file_states(start: Mapping[str, str], solved: Texts) -> Iterator[EndState]:
    """The states. `start`: path -> text of the files with which the task begins; `solved`: of those that are other, new
    or gone in the end."""

    def then(change: Callable[[Path], object]) -> Callable[[Path], object]:
        def make(home: Path) -> None:
            put(home, solved)
            change(home)

        return make

    yield EndState("solved", "right", partial(put, texts=solved))
    for path in OWN:
        yield EndState(f"with {path}, as programs write it", "right", then(partial(put, texts={path: "x\n"})))
    yield EndState("nothing done", "wrong", lambda home: None)
    if len(solved) > 1:
        for path in solved:
            others = {other: text for other, text in solved.items() if other != path}
            yield EndState(f"all but {path}", "wrong", partial(put, texts=others))
    for path, text in solved.items():
        found = of_gone(path, start.get(path, "")) if text is None else of_text(path, text, start.get(path))
        for name, kind, change in found:
            yield EndState(f"{path}: {name}", kind, then(change))
    for name, change in around({path: text for path, text in start.items() if path not in solved}):
        yield EndState(name, "spoiled", then(change))


def put(home: Path, texts: Texts) -> None:
    """Writes files, or takes them away."""
    for path, text in texts.items():
        file = home / path
        if text is None:
            file.unlink(missing_ok=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


def of_text(path: str, text: str, before: str | None) -> Iterator[tuple[str, EndKind, Callable[[Path], object]]]:
    """Nearly the file that a solution writes. before: what it was at the start, None for a new file."""

    def at(change: Callable[[Path], object]) -> Callable[[Path], object]:
        return lambda home: change(home / path)

    def saved(other: str) -> Callable[[Path], object]:
        return partial(put, texts={path: other})

    # a file that was changed keeps its permissions; a new one may have these
    yield "only its user may read it", "right" if before is None else "spoiled", at(lambda file: file.chmod(0o600))
    if text.endswith("\n") and (cut := text.removesuffix("\n")) not in ("", before):
        yield "no line break at its end", "right", saved(cut)
    lines = text.splitlines(keepends=True)
    near = {
        "empty": "",
        "without its first letter": text[1:],
        "cut short": text.rstrip("\n")[:-1],
        "in capitals": text.upper(),
        "a line more": f"{text}.\n" if text.endswith("\n") else f"{text}\n.\n",
        "twice": text + text,
        "without its first line": "".join(lines[1:]),
        "its lines in the other order": "".join(reversed(lines)),
        "the start and the end one after the other": f"{before or ''}{text}",
    }
    same = {text, text.removesuffix("\n")}
    told: set[str] = set()
    for name, other in near.items():
        if other not in same and other not in told:
            told.add(other)
            yield name, "wrong", saved(other)
    yield "another name", "wrong", at(lambda file: file.rename(file.with_name(f"{file.name.upper()}-")))
    yield "a folder of its name, with it inside", "wrong", at(_below)
    yield "a link to it", "wrong", at(_linked)
    yield "gone", "wrong", at(Path.unlink)
    yield "a second copy beside it", "spoiled", partial(put, texts={f"{path}.orig": text})
    yield "it may be run", "spoiled", at(lambda file: file.chmod(0o755))
    yield "all may write it", "spoiled", at(lambda file: file.chmod(0o666))


def of_gone(path: str, before: str) -> Iterator[tuple[str, EndKind, Callable[[Path], object]]]:
    """A file that was to go, and lies somewhere else."""
    folder, _, name = path.rpartition("/")
    beside = f"{folder}/" if folder else ""
    yield "in the trash", "right", partial(put, texts={f"{TRASH}/files/{name}": before})
    yield "it stays", "wrong", partial(put, texts={path: before})
    yield "it is empty", "wrong", partial(put, texts={path: ""})
    for where in (f"{beside}.{name}", f"{path}.bak", f"old/{name}", f".cache/{name}"):
        yield f"moved to {where}", "spoiled", partial(put, texts={where: before})


def around(others: Mapping[str, str]) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Something beside the work. others: path -> text of the files that stay as they are."""
    yield "a new file", partial(put, texts={"result.txt": "done\n"})
    yield "a hidden file", partial(put, texts={".notes": "done\n"})
    yield "a new folder", lambda home: (home / "new folder").mkdir()
    yield "a new link", lambda home: (home / "link.txt").symlink_to("/etc/hostname")
    if others:
        path, text = next(iter(others.items()))
        yield f"{path} has a line more", partial(put, texts={path: f"{text}.\n"})
        yield f"{path} is gone", partial(put, texts={path: None})
        yield f"{path} may be run", lambda home: (home / path).chmod(0o755)
        yield f"{path} has another name", lambda home: (home / path).rename(home / f"{path}.old")


def _below(file: Path) -> None:
    content = file.read_bytes()
    file.unlink()
    file.mkdir()
    (file / file.name).write_bytes(content)


def _linked(file: Path) -> None:
    other = file.with_name(f"{file.name}.real")
    file.rename(other)
    file.symlink_to(other.name)


class FolderStage:
    """A DesktopStage over the folder `home`: no programs, no windows, an empty accessibility tree.

    started  programs that were to be started
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.started: list[tuple[str, ...]] = []

    async def write_file(self, path: str, data: bytes) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    async def read_file(self, path: str) -> bytes:
        return read_file(self.home, path)

    async def list_files(self, folder: str) -> dict[str, FileEntry]:
        return list_files(self.home, folder)

    async def start(self, argv: Sequence[str]) -> None:
        self.started.append(tuple(argv))

    async def serve(self, module: str, order: Mapping[str, Any]) -> str:
        raise NotRunHere("missing dependency: a folder has no web applications")

    async def served(self) -> dict[str, Any]:
        raise SetupFailed("no web application runs")

    async def windows(self, count: int) -> None:
        pass

    async def act(self, actions: Sequence[Action]) -> None:
        pass

    async def tree(self) -> Tree:
        return Tree(screen=(1280, 720))
