"""What a desktop's programs can read of this machine: programs, and nothing that a judge knows.

Canaries stand for what an agent must not find: earlier results of the same task, its configuration, its task file. They
lie where people keep such files, also where no folder was empty on a desktop before.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.config import ConfigError
from eval.desktops import isolation
from eval.desktops.computer import LocalComputer
from eval.desktops.display.running_desktop import ProgramNotStarted
from eval.desktops.isolation import check_shown
from eval.desktops.session import DesktopOptions, DesktopSession
from tests.support.desktops import need_isolation, output, run

PLACES = (
    *("/", "/data", "/home", "/mnt", "/opt/project", "/root", "/scratch", "/srv", "/tmp", "/var/lib", "/var/tmp"),
    *("/etc/slipway", "/usr/local/src", "/usr/src"),  # a pod's jobs; where images keep the code that they run
)
FILES = ("results/e-1/steps.jsonl", "config.yaml", "tasks/chrome/1.json")


@pytest.fixture(autouse=True)
def _isolated(folder: Path) -> None:
    need_isolation()


@pytest.fixture
def canaries(tmp_path: Path) -> Iterator[tuple[str, list[Path]]]:
    """A word, and folders of files that hold it."""
    if os.getuid():
        pytest.skip("without root no folder can be made beside /home")
    word, new, folders = f"canary-{uuid.uuid4().hex}", [], []
    try:
        for place in (*map(Path, PLACES), tmp_path):
            folder = place / word[:14]
            missing = [each for each in (folder, *folder.parents) if not each.exists()]
            new.append(missing[-1])
            for name in FILES:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(word)
            folders.append(folder)
        yield word, folders
    finally:
        for each in new:
            shutil.rmtree(each, ignore_errors=True)


def test_no_canary_is_found_by_any_way(canaries: tuple[str, list[Path]]) -> None:
    word, folders = canaries
    named = " ".join(f"{folder}/{name}" for folder in folders for name in FILES)
    searches = {
        "by name": f"ls -d {named}",
        "by find": f"find / -name '*{word[:14]}*' -not -path '/proc/*'",
        "by grep": f"grep -rlsI {word} /dev/shm /etc /home /run /tmp /usr/local /usr/share/applications /var",
        "by a working folder": f"grep -rls {word} /proc/[0-9]*/cwd/ --exclude-dir=proc --exclude-dir=usr",
        "by a root": f"find /proc/[0-9]*/root/ -maxdepth 3 -name '*{word[:14]}*'",
        "by an open file": "ls -l /proc/[0-9]*/fd | grep -e canary -e results",
        "by the mounts": "grep -e canary -e pytest -e ' /work' -e ' /root' /proc/self/mounts",
        "our package": "find / -type d -path '*/eval/desktops' -not -path '/proc/*'",
        "by a new namespace": "unshare -rm true && echo made",
    }
    found: dict[str, str] = {}

    async def look() -> None:
        async with await DesktopSession.start(DesktopOptions(screen=(800, 600), processes=200)) as session:
            for way, command in searches.items():
                # the shell's own words do not count
                found[way] = await output(session, f"{{ {command}; }} 2>/dev/null | grep -v 'grep -' ; true")
            browser = "chromium --headless --no-sandbox --disable-gpu --user-data-dir=$HOME/c --dump-dom file://"
            file = f"{folders[1]}/{FILES[1]}"
            found["by a browser"] = await output(session, f"{browser}{file} 2>/dev/null | grep -o {word}; true")
            own = await output(session, f"echo its own > $HOME/file.txt; {browser}$HOME/file.txt 2>/dev/null")
            assert "its own" in own

    run(look())
    assert {way: text for way, text in found.items() if text} == {}


def test_the_file_dialog_of_a_program_shows_no_canary(canaries: tuple[str, list[Path]]) -> None:
    """Mousepad, Ctrl+O and a path, as an agent types it: a file of its own is opened, one of earlier results is not."""
    word, folders = canaries
    shown: dict[str, str] = {}

    async def look() -> None:
        async with await DesktopSession.start(DesktopOptions(screen=(1280, 720))) as session:
            (session.place.home / "own.txt").write_text("its own words")
            computer = await LocalComputer.open(session)
            try:
                await session.run(["mousepad"])
                await session.windows(1)
                paths = [f"{folder}/{FILES[0]}" for folder in folders] + [f"{session.place.home_inside}/own.txt"]
                for path in paths:
                    await computer.act([Action(ActionType.HOTKEY, keys=("ctrl", "o"))])
                    await session.windows(2)
                    await computer.act([Action(ActionType.TYPE, text=path)])
                    await computer.act([Action(ActionType.KEY, keys=("enter",))])
                    tree = await computer.accessibility(whole=True)
                    if path == paths[-1]:
                        async with asyncio.timeout(60):
                            while "its own words" not in told(tree):
                                tree = await computer.accessibility(whole=True)
                    shown[path] = told(tree)
                    for _ in range(2):  # the message, and the dialog
                        await computer.act([Action(ActionType.KEY, keys=("esc",))])
            finally:
                await computer.close()

    run(look())
    # what was typed may stand there, also of a dialog before
    rest = {path: re.sub("|".join(map(re.escape, shown)), "", text) for path, text in shown.items()}
    assert {path for path, text in rest.items() if word in text or "steps.jsonl" in text} == set()


def told(tree: Tree) -> str:
    """Every name and text that the programs show."""
    return "\n".join(f"{node.name}\n{node.text or ''}" for node in tree.nodes())


def test_a_user_namespace_is_refused_however_it_is_asked_for() -> None:
    """In one of its own, a program would be root over mounts and networks."""
    script = (
        "import ctypes, os, platform\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "clone = {'x86_64': 56, 'aarch64': 220}[platform.machine()]\n"
        "def code(*call):\n"
        "    done = libc.syscall(*call)\n"
        "    if done == 0 and call[0] == clone: os._exit(0)\n"
        "    return ctypes.get_errno() if done < 0 else 0\n"
        "print(libc.unshare(0x10000000), ctypes.get_errno(), code(clone, 0x10000011, 0, 0, 0, 0), code(435, 0, 0))\n"
        "print(libc.unshare(0x10020000), libc.unshare(0x400))\n"
    )

    async def look() -> None:
        async with await DesktopSession.start(DesktopOptions(screen=(800, 600))) as session:
            told = await output(session, f'python3 -c "{script}"')
            assert told.split("\n") == ["-1 1 1 38", "-1 0"]  # EPERM, EPERM, ENOSYS; and other uses go on
            assert await output(session, "unshare -rmn true 2>/dev/null; echo $?") == "1"

    run(look())


def test_what_is_shown_can_be_read_and_not_written(tmp_path: Path) -> None:
    program = tmp_path / "apps" / "hello"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)

    async def look() -> None:
        async with await DesktopSession.start(DesktopOptions(shown=(str(program.parent),))) as session:
            assert await output(session, str(program)) == "hello"
            assert "Read-only" in await output(session, f"touch {program.parent}/x 2>&1; true")
            assert await output(session, f"ls {tmp_path}") == "apps"

    run(look())


def test_folders_within_each_other_are_shown_in_whatever_order(tmp_path: Path) -> None:
    outer = tmp_path / "apps"
    (outer / "own").mkdir(parents=True)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    (outer / "beside").write_text("beside")

    async def look() -> None:
        for shown in ((str(outer / "own"), str(outer), "/var/lib"), ("/var/lib", str(outer), str(outer / "own"))):
            async with await DesktopSession.start(DesktopOptions(screen=(800, 600), shown=shown)) as session:
                assert await output(session, f"cat {outer}/beside") == "beside"
                assert set((await output(session, "ls /var/lib")).split()) == {
                    p.name for p in Path("/var/lib").iterdir()
                }

    run(look())


def test_our_package_is_not_seen_where_it_lies_among_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed below /usr, or in a folder that is shown for the sake of its programs, as one of conda is."""
    if os.getuid():
        pytest.skip("without root no folder can be made in /usr")
    source, shown = Path(isolation.__file__).parents[1], Path(f"/opt/{uuid.uuid4().hex}")

    async def look(site: Path) -> None:
        monkeypatch.setattr(isolation, "_SOURCES", str(site))
        async with await DesktopSession.start(DesktopOptions(screen=(800, 600), shown=(str(shown),))) as session:
            assert await output(session, f"cat {site}/other/module.py") == "of others"
            assert await output(session, f"find {site}/eval {site}/launcher -name '*.py' | head -3") == ""

    try:
        for site in (Path("/usr/local/lib", shown.name), shown / "lib"):
            (site / "other").mkdir(parents=True)
            (site / "other" / "module.py").write_text("of others")
            shutil.copytree(source, site / "eval", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copytree(source.parent / "launcher" / "results", site / "launcher" / "results")
            run(look(site))
    finally:
        shutil.rmtree(shown, ignore_errors=True)
        shutil.rmtree(f"/usr/local/lib/{shown.name}", ignore_errors=True)


def test_the_published_judges_are_not_seen_where_python_has_them(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("without root no folder can be made in /usr")
    python = Path("/usr/local/lib/python3.99")  # a version that nobody has
    site = python / "dist-packages"
    try:
        for name in ("desktop_env", "others"):
            (site / name).mkdir(parents=True)
            (site / name / "module.py").write_text("its source")

        async def look() -> None:
            async with await DesktopSession.start(DesktopOptions(screen=(800, 600))) as session:
                assert await output(session, f"find {site} -name '*.py'") == f"{site}/others/module.py"

        run(look())
    finally:
        shutil.rmtree(python, ignore_errors=True)


def test_a_program_that_is_not_shown_is_told_with_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "browser"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    async def look() -> None:
        async with await DesktopSession.start(DesktopOptions(screen=(800, 600))) as session:
            with pytest.raises(ProgramNotStarted, match=r"which the desktop does not see: options\.shown: \[/tmp/"):
                await session.run(["browser"])

    run(look())


@pytest.mark.parametrize("path", ["apps", "/", "/home", "/proc/1", "/usr/../data", "/no-such-folder-here"])
def test_a_path_that_cannot_be_shown_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"options\.shown: "):
        check_shown([path], "options.shown")
    with pytest.raises(ConfigError, match="those of a role"):
        check_shown(["/usr"], "options.shown", "desktops")
