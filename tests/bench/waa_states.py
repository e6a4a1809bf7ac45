"""Whether Windows Agent Arena's own evaluators, of a clone, give 1 for a right end state and 0 for an untouched one.

    python -m tests.bench.waa_states CLONE TASKS [--markdown FILE] [--only WORDS]

CLONE has the package `desktop_env`, TASKS the task files, DOMAIN/ID.json. The states are ours: a stand-in for the guest
serves them (tests.support.windows_guest), and for getters that ask a browser a real one runs here. Files that a judge
would download to compare with cannot be had here: files of ours with every kind of content stand for them, so what
such a task shows is that its getter and metric run, not that their file is right.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import json
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from eval.benchmarks.osworld.guest_browser import GuestBrowserPort
from eval.benchmarks.osworld.judging import PublicJudge, PublicVerdict
from eval.benchmarks.osworld.machine import JUDGE, package_in
from eval.benchmarks.osworld.steps import open_pages
from eval.benchmarks.osworld.tasks import PublicTask, load
from eval.desktop import InfraError
from tests.support.windows_browser import guest_browser
from tests.support.windows_guest import HOME, WindowsGuest

CHROME: Final = rf"{HOME}\AppData\Local\Google\Chrome\User Data"
EDGE: Final = rf"{HOME}\AppData\Local\Microsoft\Edge\User Data"
VLC: Final = rf"{HOME}\AppData\Roaming\vlc\vlcrc"
NIGHT: Final = r"default$windows.data.bluelightreduction.settings\windows.data.bluelightreduction.settings"
SCHEDULE: Final = (0,) * 24 + (1, 0, 0, 0, 19, 0, 0, 0, 0, 7, 0, 0, 0)  # on; from hour 19 to hour 7
HKCU: Final = r"HKCU:\Software\Microsoft\Windows\CurrentVersion"

Change = Callable[[WindowsGuest], None]


def preferences(folder: str, name: str = r"Default\Preferences", **values: Any) -> Change:
    def change(guest: WindowsGuest) -> None:
        guest.files[rf"{folder}\{name}"] = json.dumps(values).encode()

    return change


def files(*pairs: tuple[str, bytes]) -> Change:
    return lambda guest: guest.files.update(dict(pairs))


def kept(folder: str, name: str, data: bytes) -> Change:
    return files((rf"{folder}\{name}", data))


def yes(route: str, words: str) -> Change:
    return lambda guest: guest.yes.append((route, words))


def registry(key: str, name: str, value: str) -> Change:
    return lambda guest: guest.registry.update({(key, name): value})


def prints(command: str, output: str) -> Change:
    return lambda guest: guest.commands.update({command: output})


def several(*changes: Change) -> Change:
    def change(guest: WindowsGuest) -> None:
        for each in changes:
            each(guest)

    return change


def set_to(**fields: Any) -> Change:
    def change(guest: WindowsGuest) -> None:
        for name, value in fields.items():
            setattr(guest, name, value)

    return change


def database(table: str, *rows: tuple[str, ...]) -> bytes:
    """A database of a browser: `urls` (url, title, time) or `cookies` (time, host)."""
    columns = {"urls": "url, title, last_visit_time", "cookies": "creation_utc, host_key"}[table]
    with tempfile.NamedTemporaryFile() as file, contextlib.closing(sqlite3.connect(file.name)) as base:
        base.execute(f"CREATE TABLE {table} ({columns})")
        base.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns.split(',')))})", rows)
        base.commit()
        return Path(file.name).read_bytes()


def shortcut(description: str) -> bytes:
    """A shortcut of Windows with nothing but a description ([MS-SHLLINK]: HasName, IsUnicode)."""
    kind = bytes.fromhex("0114020000000000c000000000000046")
    head = struct.pack("<I16sII24xIIIH10x", 0x4C, kind, 0x4 | 0x80, 0, 0, 0, 1, 0)
    return head + struct.pack("<H", len(description)) + description.encode("utf-16-le") + bytes(4)


def bookmarks(*urls: str) -> bytes:
    children = [{"type": "url", "name": url, "url": url} for url in urls]
    return json.dumps({"roots": {"bookmark_bar": {"children": children}}}).encode()


def address_bar(text: str) -> Change:
    """The tree of a browser whose address bar shows a text."""
    value = "uri:deskat:value.at-spi.gnome.org"
    bar = f'<edit xmlns:v="{value}" name="Address and search bar" v:value="{text.replace("&", "&amp;")}"/>'
    return set_to(tree=f"<desktop><chrome_widgetwin_1>{bar}</chrome_widgetwin_1></desktop>")


def next_monday() -> str:
    return (datetime.now() + timedelta(days=7 - datetime.now().weekday())).strftime("%Y-%m-%d")


UNCHANGED: Final = several()


@dataclass(frozen=True)
class EndState:
    """What a solution changes, and the state that the task begins with. `pages`: the tabs of a browser before and
    after it; `web`: what each page shows."""

    right: Change
    before: Change = UNCHANGED
    pages: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    web: tuple[str, str] = ("", "")


PICTURES: Final = rf"{HOME}\Pictures"
PAGE: Final = "What the page says, in full"  # as the right PDF of tests/bench/apart/waa_files.py
BOOK: Final = "https://jalammar.github.io/illustrated-transformer/"
COOKIE_FILE: Final = r"Default\Network\Cookies"
NO_COOKIES, COOKIES = database("cookies", ("1", "other.example")), database("cookies", ("1", ".amazon.com"))
NO_HISTORY = database("urls", ("https://other.example/", "Other", "1"))
HISTORY = database("urls", ("https://www.youtube.com/watch", "A film", "1"))
TABS: Final = ("https://www.lonelyplanet.com", "https://www.airbnb.com", "https://www.tripadvisor.com")
FLIGHTS: Final = "qatarairways.com/x?fromStation=BOM&toStation=STO&departing="

# of files that are not there before the task is done
NEW: Final = {"compare_text_file", "compare_zip_files", "zipped_folder_in_desktop"}
RECORDED: Final = "8ba5ae7a-5ae5-4eab-9fcc-5dd4fe3abf89"
VOLUME: Final = "9195653c-f4aa-453d-aa95-787f6ccfaae9"
# VLC's settings as it writes them: what nobody changed stands behind a #
VLC_SETTINGS: Final = (
    b"#qt-bgcone=1\n#qt-max-volume=125\n#qt-minimal-view=0\n#qt-video-autoresize=1\n#global-key-play-pause=\n"
)

# the beginning of a task's id, or the type of its result's getter -> the states
STATES: Final[dict[str, EndState]] = {
    "enable_do_not_track": EndState(preferences(CHROME, enable_do_not_track=True)),
    "profile_name": EndState(preferences(CHROME, profile={"name": "Thomas"})),
    "shortcuts_on_desktop": EndState(
        files((rf"{HOME}\Desktop\2048.lnk", shortcut("Play Puzzle Game 2048. Use your arrow keys to move the tiles."))),
        files((rf"{HOME}\Desktop\Other.lnk", shortcut("Something else"))),
    ),
    "history": EndState(kept(CHROME, "Default/History", NO_HISTORY), kept(CHROME, "Default/History", HISTORY)),
    "enabled_experiments": EndState(
        preferences(CHROME, "Local State", browser={"enabled_labs_experiments": ["show-performance-metrics-hud@1"]}),
        preferences(CHROME, "Local State", browser={}),
    ),
    "bookmarks": EndState(files((rf"{CHROME}\Default\Bookmarks", bookmarks(BOOK)))),
    "cookie_data": EndState(kept(CHROME, COOKIE_FILE, NO_COOKIES), kept(CHROME, COOKIE_FILE, COOKIES)),
    "enable_enhanced_safety_browsing": EndState(preferences(CHROME, safebrowsing={"enhanced": True})),
    "data_delete_automacally": EndState(
        preferences(CHROME, profile={"default_content_setting_values": {"cookies": 4}}), preferences(CHROME, profile={})
    ),
    "chrome_font_size": EndState(preferences(CHROME, webkit={"webprefs": {"default_font_size": 24}})),
    "default_search_engine": EndState(
        preferences(CHROME, default_search_provider={"guid": "485bf7d3-0215-45af-87dc-538868000003"})
    ),
    "active_tab_url_parse": EndState(
        lambda guest: address_bar(FLIGHTS + next_monday())(guest), address_bar("qatarairways.com/")
    ),
    "url_dashPart": EndState(address_bar("drugs.com/tamiflu.html#side-effects"), address_bar("drugs.com/")),
    "open_tabs_info": EndState(several(), pages=((TABS[0],), TABS)),
    "page_info": EndState(several(), pages=((), ()), web=("Your cart is empty", "The Dota 2 Official Soundtrack")),
    "active_tab_info": EndState(
        address_bar("discussions.flightaware.com/t/the-banter-thread/4412"),
        address_bar("www.flightaware.com/"),
        pages=((), ()),
    ),
    "check_if_timer_started": EndState(several(*(yes("/check_if_timer_started", f'"hours": {n}') for n in (0, 3)))),
    "check_if_world_clock_exists": EndState(
        several(*(yes("/check_if_world_clock_exists", city) for city in ("Kyoto", "Munich")))
    ),
    "all_png_file_names": EndState(
        files((rf"{PICTURES}\png_files.txt", b"a.png\nb.png\n")),
        files((rf"{PICTURES}\a.png", b"1"), (rf"{PICTURES}\b.png", b"1"), (rf"{PICTURES}\c.jpg", b"1")),
    ),
    "is_all_docx_in_archive": EndState(
        set_to(files={rf"{HOME}\Documents\Archive\Doc01.docx": b"1", rf"{HOME}\Documents\Archive\Doc02.docx": b"1"}),
        files((rf"{HOME}\Documents\Doc01.docx", b"1"), (rf"{HOME}\Documents\Doc02.docx", b"1")),
    ),
    "vm_folder_exists_in_documents": EndState(set_to(folders=[rf"{HOME}\Documents\MyFolder"])),
    "are_all_images_tagged": EndState(yes("/are_all_images_tagged", "2023Vacation")),
    "vm_active_window_title": EndState(set_to(title="Documents")),
    "2d292a2d": EndState(files((rf"{HOME}\Desktop\report.txt", b"testing.bin is the largest"))),
    "is_details_view": EndState(yes("/is_details_view", "Documents")),
    "vm_library_folders": EndState(
        set_to(
            told={
                "/library_folders": {
                    "status": "success",
                    "output": [rf"{HOME}\Downloads\Arena {name}" for name in ("Code", "Data", "Docs")],
                }
            }
        )
    ),
    "5316686e": EndState(prints("Explorer\\Advanced /v Hidden", "    Hidden    REG_DWORD    0x1\n")),
    "vm_file_exists_in_desktop": EndState(files((rf"{HOME}\Desktop\Projects - Shortcut.lnk", shortcut("x")))),
    "are_files_sorted_by_modified_time": EndState(yes("/are_files_sorted_by_modified_time", "Documents")),
    "is_files_moved_downloads": EndState(
        set_to(
            files={
                rf"{HOME}\OldDownloads\Test\example.txt": b"1",
                rf"{HOME}\Downloads\desktop.ini": b"1",
            }
        ),
        set_to(files={rf"{HOME}\Downloads\Test\example.txt": b"1", rf"{HOME}\OldDownloads\desktop.ini": b"1"}),
    ),
    "is_directory_read_only_for_user": EndState(yes("/is_directory_read_only_for_user", "TestAccount")),
    "b12b2d3a": EndState(
        prints("dir C:", "desktop.ini\n"),
        prints("dir C:", "ToDoLists\n"),
    ),
    "is_file_hidden": EndState(
        set_to(hidden=[rf"{HOME}\Documents\secret.txt"]), files((rf"{HOME}\Documents\secret.txt", b"1"))
    ),
    "is_file_desktop": EndState(files((rf"{HOME}\Desktop\example.txt", b"1"))),
    "3544ac9a": EndState(files((rf"{HOME}\Downloads\circle.png", b"1"))),
    "enable_do_not_track_from_edge": EndState(preferences(EDGE, enable_do_not_track=True)),
    "favorites": EndState(files((rf"{EDGE}\Default\Bookmarks", bookmarks(BOOK)))),
    "history_for_edge": EndState(kept(EDGE, "Default/History", NO_HISTORY), kept(EDGE, "Default/History", HISTORY)),
    "profile_name_from_edge": EndState(preferences(EDGE, profile={"name": "Thomas"})),
    "data_delete_automacally_from_edge": EndState(
        preferences(
            EDGE,
            browser={
                "clear_data_on_exit": {
                    **dict.fromkeys(("browsing_history", "cache", "cookies", "download_history", "form_data"), True),
                    "hosted_apps_data": False,
                    **dict.fromkeys(("passwords", "site_settings"), True),
                }
            },
        )
    ),
    "edge_font_size": EndState(preferences(EDGE, webkit={"webprefs": {"default_font_size": 24}})),
    "cookie_data_for_edge": EndState(kept(EDGE, COOKIE_FILE, NO_COOKIES), kept(EDGE, COOKIE_FILE, COOKIES)),
    "edge_default_download_folder": EndState(preferences(EDGE, download={"default_directory": "C:\\"})),
    "default_search_engine_from_edge": EndState(
        preferences(EDGE, default_search_provider={"synced_guid": "485bf7d3-0215-45af-87dc-538868000092"})
    ),
    "enable_enhanced_safety_browsing_from_edge": EndState(
        preferences(EDGE, edge={"super_duper_secure_mode": {"enabled": True}})
    ),
    "validate_pwa_installed": EndState(
        prints("Get-AppxPackage", '[{"Name": "Some.PWABuilder"}]'), prints("Get-AppxPackage", '[{"Name": "Other"}]')
    ),
    "url_shortcuts_on_desktop": EndState(
        files((rf"{HOME}\Desktop\2048.url", b"[InternetShortcut]\nURL=https://www.mathsisfun.com/games/2048.html\n")),
        files((rf"{HOME}\Desktop\a.url", b"[InternetShortcut]\nURL=https://other.example/\n")),
    ),
    "edge_home_page": EndState(
        preferences(EDGE, r"Default\Secure Preferences", homepage="https://www.wikipedia.org/"),
        preferences(EDGE, r"Default\Secure Preferences", homepage=""),
    ),
    "system_notifications": EndState(registry(HKCU.replace(":\\", ":") + r"\PushNotifications", "ToastEnabled", "0\n")),
    "night_light_state": EndState(
        registry(rf"{HKCU}\CloudStore\Store\DefaultAccount\Current\{NIGHT}", "Data", "\n".join(map(str, SCHEDULE))),
        registry(rf"{HKCU}\CloudStore\Store\DefaultAccount\Current\{NIGHT}", "Data", "\n".join(["0"] * 40)),
    ),
    "system_timezone": EndState(
        prints(
            "Get-TimeZone",
            '{"DisplayName": "(UTC-08:00) Pacific Time (US & Canada)", "StandardName": "Pacific Standard Time"}',
        ),
        prints("Get-TimeZone", '{"DisplayName": "(UTC) Coordinated Universal Time", "StandardName": "UTC"}'),
    ),
    "desktop_background": EndState(
        registry(r"HKCU:Control Panel\Desktop", "WallPaper", "\n"),
        registry(r"HKCU:Control Panel\Desktop", "WallPaper", "C:\\Windows\\img0.jpg\n"),
    ),
    "storage_sense_run_frequency": EndState(
        several(
            registry(rf"{HKCU}\StorageSense\Parameters\StoragePolicy", "01", "1\n"),
            registry(rf"{HKCU}\StorageSense\Parameters\StoragePolicy", "2048", "7\n"),
        )
    ),
    "215dfd39": EndState(files((VLC, b"qt-bgcone=0\n"))),
    "386dbd0e": EndState(files((VLC, b"global-key-play-pause=Ctrl+p\n"))),
    f"{RECORDED}-2": EndState(files((VLC, rf"input-record-path={HOME}\Downloads".encode()))),
    f"{RECORDED}-W": EndState(files((VLC, rf"input-record-path={HOME}\Desktop".encode()))),
    f"{VOLUME}-2": EndState(files((VLC, b"qt-max-volume=100\n"))),
    f"{VOLUME}-W": EndState(files((VLC, b"qt-max-volume=200\n"))),
    "a5bbbcd5": EndState(files((VLC, b"qt-minimal-view=1\n"))),
    "d06f0d4d": EndState(files((VLC, b"qt-slider-colours=10;20;10;20;10;20;10;20;10;20;10;20\n"))),
    "f3977615": EndState(files((VLC, b"one-instance-when-started-from-file=0\n"))),
    "fcd3d211": EndState(files((VLC, b"qt-video-autoresize=0\n"))),
    "4e60007a": EndState(
        several(*(prints(name, f"{name}\n") for name in ("ms-python.vscode-pylance", "njpwerner.autodocstring")))
    ),
    "57242fad": EndState(prints("test.py", "test.py\n")),
    "5e2d93d8": EndState(prints("project.code-workspace", "project.code-workspace\n")),
    "eabc805a": EndState(prints("ms-python.python", "ms-python.python\n")),
    "28b91a24": EndState(
        files(
            (rf"{HOME}\Desktop\numdays.txt", b"230 days, 585 days"),
            (rf"{HOME}\Desktop\Differences.txt", b"43 years, 9 months, 3 weeks, 4 days"),
        )
    ),
}


def state_of(task: PublicTask, made: Path) -> EndState | None:
    """The states of a task: the first key that its id begins with, that of its result's getter, or for a task whose
    files are compared, files of `made` in the place of both."""
    ident = task.task_id.split("/")[1]
    for key, state in STATES.items():
        if ident.startswith(key):
            return state
    found = [check.result["type"] for check in task.checks if check.result is not None]
    if any(check.expected is not None and check.expected["type"] == "pdf_from_url" for check in task.checks):
        compared = of_files(task, made)
        return compared and replace(compared, pages=((), ()), web=(PAGE, PAGE))
    if found and (known := STATES.get(found[0])) is not None:
        return known
    return of_files(task, made)


def of_files(task: PublicTask, made: Path) -> EndState | None:
    changes: dict[str, list[Change]] = {"right": [], "other": []}
    for check in task.checks:
        result, expected = check.result, check.expected
        rules = expected.get("rules", {}) if expected is not None else {}
        assert result is not None
        path = str(result.get("path") or result.get("filepath") or result.get("filename") or "")
        if result["type"] == "vm_file_exists_in_vm_folder":
            path = f"{result['folder_name']}\\{result['file_name']}"
        ending = Path(path).suffix
        for name in changes:
            data = None
            if "settings" in check.metric or "keybindings" in check.metric:
                value = rules["expected"] if name == "right" else {}
                data = json.dumps([value] if "keybindings" in check.metric else value).encode()
            elif result["type"] == "vm_wallpaper":
                changes[name].append(set_to(wallpaper=(made / f"{name}.png").read_bytes()))
                continue
            elif (kept := made / f"{name}{ending}").is_file():
                data = kept.read_bytes()
            if data is None:
                return None
            if name == "right" or not NEW & {check.metric, result["type"]}:
                changes[name].append(files((path, data)))
            if expected is not None and expected["type"] == "vm_file":
                changes[name].append(files((str(expected["path"]), (made / f"right{ending}").read_bytes())))
    return EndState(several(*changes["right"]), several(*changes["other"]))


def base() -> WindowsGuest:
    """A guest on which nothing was done: browsers with their first settings, a desktop with one file."""
    guest = WindowsGuest(folders=[rf"{HOME}\{name}" for name in ("Desktop", "Documents", "Downloads", "Pictures")])
    for folder in (CHROME, EDGE):
        guest.files[rf"{folder}\Default\Preferences"] = b'{"profile": {"name": "Person 1"}, "browser": {}, "edge": {}}'
        guest.files[rf"{folder}\Default\Bookmarks"] = bookmarks()
    guest.files[rf"{HOME}\Desktop\desktop.ini"] = b"[x]"
    guest.files[VLC] = VLC_SETTINGS
    return guest


def cached(task: PublicTask, cache: Path, made: Path) -> None:
    """Puts our right files where the judge looks for those that it would download."""
    for check in task.checks:
        if check.expected is None or check.expected["type"] != "cloud_file":
            continue
        names = check.expected["dest"]
        for name in names if isinstance(names, list) else [names]:
            kept = made / f"right{Path(name).suffix}"
            if kept.is_file():
                shutil.copyfile(kept, cache / name)


async def judged(task: PublicTask, guest: WindowsGuest, judge: PublicJudge, made: Path, browser: Any) -> PublicVerdict:
    cache = Path(tempfile.mkdtemp(prefix="waa-states-", dir="/tmp"))
    try:
        cached(task, cache, made)
        with guest.serving() as address:
            return await judge.judge(
                task.evaluator, address=address, token=None, cache=cache, screen=(1920, 1080), browser=browser
            )
    finally:
        shutil.rmtree(cache, ignore_errors=True)


async def one(task: PublicTask, state: EndState, judge: PublicJudge, made: Path, right: bool) -> float | str:
    """The score, or why there is none."""
    guest = base()
    state.before(guest)
    if right:
        state.right(guest)
    try:
        if state.pages is None:
            return (await judged(task, guest, judge, made, None)).score or 0.0
        with guest_browser(state.web[right]) as port:
            browser = GuestBrowserPort(f"127.0.0.1:{port}")
            for url in state.pages[right]:
                await browser.ask("Target.createTarget", url=url)
            first = [page["targetId"] for page in await open_pages(browser) if page["url"] == "about:blank"]
            for target in first if state.pages[right] else []:
                await browser.ask("Target.closeTarget", targetId=target)
            await browser.close()
            return (await judged(task, guest, judge, made, browser)).score or 0.0
    except InfraError as error:
        return f"{type(error).__name__}: {error}"[:300]


@dataclass(frozen=True)
class JudgedTask:
    task: str
    getters: tuple[str, ...]
    metrics: tuple[str, ...]
    untouched: float | str
    right: float | str

    @property
    def sound(self) -> bool:
        return self.untouched == 0.0 and self.right == 1.0


def measured(clone: Path, folder: Path, only: str) -> Iterator[JudgedTask]:
    package = package_in(clone)
    if package is None:
        raise SystemExit(f"{clone} has no package desktop_env")
    judge = PublicJudge(Path(JUDGE).absolute(), package)
    made = Path(tempfile.mkdtemp(prefix="waa-files-", dir="/tmp"))
    made.chmod(0o755)
    try:
        subprocess.run([JUDGE, "-W", "ignore", "tests/bench/apart/waa_files.py", str(made)], check=True)
        for task in load(folder, None).tasks:
            if task.infeasible or only not in task.task_id:
                continue
            kinds = tuple(str(check.result["type"]) for check in task.checks if check.result is not None)
            metrics = tuple(check.metric for check in task.checks)
            if (state := state_of(task, made)) is None:
                yield JudgedTask(task.task_id, kinds, metrics, "no state of ours", "no state of ours")
                continue
            found = [asyncio.run(one(task, copy.copy(state), judge, made, right)) for right in (False, True)]
            yield JudgedTask(task.task_id, kinds, metrics, *found)
    finally:
        shutil.rmtree(made)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.waa_states", description=__doc__.split("\n")[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--only", default="", metavar="WORDS", help="tasks whose id has these words")
    given = parser.parse_args(argv)
    rows = []
    for row in measured(given.clone, given.tasks, given.only):
        rows.append(row)
        word = "sound" if row.sound else "FAULT"
        print(
            f"{word}  {row.task}  {'+'.join(row.getters)} {'+'.join(row.metrics)}: {row.untouched}, {row.right}",
            flush=True,
        )
    kinds = {kind for row in rows for kind in row.getters}
    sound = {kind for row in rows if row.sound for kind in row.getters}
    print(f"\n{sum(row.sound for row in rows)} of {len(rows)} tasks: 0 untouched, 1 right")
    print(
        f"{len(sound)} of {len(kinds)} getters have such a task; the others:",
        ", ".join(sorted(kinds - sound)) or "none",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
