"""Tasks of ours in OSWorld's format, with files of ours, and what solves each: actions of mouse and keyboard."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from eval.actions import Action, ActionType
from tests.support.http_thread import answering


def keys(*names: str) -> Action:
    return Action(ActionType.HOTKEY, keys=names) if len(names) > 1 else Action(ActionType.KEY, keys=names)


def text(what: str) -> Action:
    return Action(ActionType.TYPE, text=what)


DONE = Action(ActionType.DONE)
FAIL = Action(ActionType.FAIL)


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"type": kind, "parameters": parameters}


def rule(expected: Any, **more: Any) -> dict[str, Any]:
    return {"type": "rule", "rules": {"expected": expected, **more}}


@dataclass(frozen=True)
class OwnTask:
    """One task. `evaluator` and `config` may hold FILES, the address of the folder with `files`.

    oracle  the actions that solve it, without the last one
    files   what is served, by name; those with `.gold` before their ending are for the evaluators
    saves   the file that the oracle writes, in the home: what waits for it knows when it is written
    """

    name: str
    instruction: str
    config: Sequence[Mapping[str, Any]]
    evaluator: Mapping[str, Any]
    oracle: Sequence[Action]
    files: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    apps: Sequence[str] = ("os",)
    saves: str | None = None

    @property
    def domain(self) -> str:
        return self.name.split("/")[0]

    @property
    def infeasible(self) -> bool:
        return self.evaluator["func"] == "infeasible"


def written(folder: Path, tasks: Sequence[OwnTask], address: str = "http://127.0.0.1:9") -> Path:
    """Writes the task files below `folder`, as OSWorld has them."""
    for task in tasks:
        path = folder / f"{task.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "id": path.stem,
            "snapshot": task.domain,
            "instruction": task.instruction,
            "source": "",
            "config": task.config,
            "trajectory": "trajectories/",
            "related_apps": task.apps,
            "evaluator": task.evaluator,
            "proxy": False,
        }
        path.write_text(json.dumps(data, indent=1).replace("FILES", address), encoding="utf-8")
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Nothing is printed."""


@contextlib.contextmanager
def serving(folder: Path, tasks: Sequence[OwnTask]) -> Iterator[str]:
    """Writes the tasks' files into `folder` and serves it; gives its address."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        for name, make in task.files.items():
            (folder / name).write_bytes(make())
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    with answering(server) as port:
        yield f"http://127.0.0.1:{port}"


def download(name: str, path: str) -> dict[str, Any]:
    return step("download", files=[{"url": f"FILES/{name}", "path": path}])


def cloud(name: str) -> dict[str, Any]:
    return {"type": "cloud_file", "path": f"FILES/{name}", "dest": name}


def vm_file(path: str, dest: str) -> dict[str, Any]:
    return {"type": "vm_file", "path": path, "dest": dest}


def printed(command: str) -> dict[str, Any]:
    return {"type": "vm_command_line", "command": command, "shell": True}


TERMINAL = step("launch", command=["xterm", "-geometry", "100x30"])
EDITOR = step("launch", command=["mousepad", "/home/user/notes.txt"])
NOTES = b"buy milk\nwater the plants\n"
# A profile of LibreOffice without the questions of its first start and of formats that are not its own
SETTINGS = {
    "Office.Common/Misc": {"ShowTipOfTheDay": "false", "FirstRun": "false"},
    "Office.Common/Save/Document": {"WarnAlienFormat": "false"},
    "Setup/Product": {"ooSetupLastVersion": "99.9"},
}
PROFILE = "/home/user/.config/libreoffice/4/user/registrymodifications.xcu"


def profile() -> bytes:
    items = [
        f'<item oor:path="/org.openoffice.{path}"><prop oor:name="{name}" oor:op="fuse"><value>{value}</value>'
        "</prop></item>"
        for path, settings in SETTINGS.items()
        for name, value in settings.items()
    ]
    space = 'xmlns:oor="http://openoffice.org/2001/registry"'
    return f'<?xml version="1.0"?><oor:items {space}>{"".join(items)}</oor:items>'.encode()


def office(name: str) -> list[dict[str, Any]]:
    """A document of ours, opened: a set-up by `download` and `open`."""
    path = f"/home/user/{name}"
    return [
        download("profile.xcu", PROFILE),
        download(name, path),
        step("open", path=path),
        step("activate_window", window_name=name),
    ]


def table(gold: str, *rules: dict[str, Any], dest: str = "sales.xlsx") -> dict[str, Any]:
    return {
        "func": "compare_table",
        "result": vm_file(f"/home/user/{dest}", dest),
        "expected": cloud(gold),
        "options": {"rules": [{"sheet_idx0": 0, "sheet_idx1": "EI0", **rule} for rule in rules]},
    }


OS = (
    OwnTask(
        "os/append-line",
        "The editor shows notes.txt. Write the line `call the plumber` at its end and save the file.",
        [download("notes.txt", "/home/user/notes.txt"), EDITOR],
        {
            "func": "compare_text_file",
            "result": vm_file("/home/user/notes.txt", "result.txt"),
            "expected": cloud("notes.gold.txt"),
        },
        [keys("ctrl", "end"), text("call the plumber\n"), keys("ctrl", "s")],
        {"notes.txt": lambda: NOTES, "notes.gold.txt": lambda: NOTES + b"call the plumber\n"},
        saves="notes.txt",
    ),
    # the agent leaves the file unsaved: the steps before judging save it, as many a task of OSWorld does
    OwnTask(
        "os/shout",
        "The editor shows notes.txt. Write a first line `URGENT`.",
        [
            step("execute", command="printf 'buy milk\\n' > notes.txt", shell=True),
            EDITOR,
            step("activate_window", window_name="notes.txt"),
        ],
        {
            "postconfig": [
                step("activate_window", window_name="notes.txt"),
                step("execute", command=["python", "-c", "import pyautogui; pyautogui.hotkey('ctrl', 's');"]),
                step("command", command="head -n 1 notes.txt", shell=True, stdout="first.txt"),
            ],
            "func": ["exact_match", "check_include_exclude"],
            "conj": "and",
            "result": [printed("cat ~/notes.txt"), printed("head -n 1 ~/notes.txt")],
            "expected": [
                rule("URGENT\nbuy milk\n"),
                {"type": "rule", "rules": {"include": ["URGENT"], "exclude": ["milk"]}},
            ],
            "options": [None, {}],
        },
        [keys("ctrl", "home"), text("URGENT\n")],
    ),
    OwnTask(
        "os/make-folders",
        "In the terminal, make the folder reports in your home, and in it the folders 2024 and 2025.",
        [TERMINAL],
        {
            "func": "exact_match",
            "result": printed("ls ~/reports 2>/dev/null | tr '\\n' ' '"),
            "expected": rule("2024 2025 "),
        },
        [text("mkdir -p reports/2024 reports/2025\n")],
        saves="reports/2025",
    ),
    OwnTask(
        "os/move-pictures",
        "In the terminal, move the .jpg files of the folder inbox, and nothing else, to the folder pictures.",
        [
            step(
                "execute",
                command="mkdir inbox pictures; touch inbox/sea.jpg inbox/hill.jpg inbox/list.txt",
                shell=True,
            ),
            TERMINAL,
        ],
        {
            "func": "check_moved_jpgs",
            "result": {"type": "list_directory", "path": "/home/user/pictures"},
            "expected": rule(["sea.jpg", "hill.jpg"]),
        },
        [text("mv inbox/*.jpg pictures\n")],
        saves="pictures/sea.jpg",
    ),
    OwnTask(
        "os/either-name",
        "In the terminal, copy the file plan.txt in your home to plan.bak or to plan.old.",
        [step("execute", command="printf 'dig\\n' > plan.txt", shell=True), TERMINAL],
        {
            "func": ["exact_match", "exact_match"],
            "conj": "or",
            "result": [printed("cat ~/plan.bak 2>/dev/null"), printed("cat ~/plan.old 2>/dev/null")],
            "expected": [rule("dig\n"), rule("dig\n")],
        },
        [text("cp plan.txt plan.old\n")],
        saves="plan.old",
    ),
    OwnTask(
        "os/sum-shown",
        "Compute 17 + 25 in the calculator and leave the result on its display.",
        [step("launch", command=["galculator"])],
        {
            "func": "check_accessibility_tree",
            "result": {"type": "accessibility_tree"},
            "expected": {
                "type": "rule",
                "rules": [{"xpath": "//application[@name='galculator']//text", "text": "42", "exact": True}],
            },
        },
        [text("17+25\n")],
    ),
    OwnTask(
        "os/no-such-account",
        "Log in to the user account of Heinrich on this machine.",
        [step("execute", command="mkdir -p ~/Desktop", shell=True)],
        {"func": "infeasible"},
        [FAIL],
    ),
)
OFFICE = (
    OwnTask(
        "libreoffice_calc/total",
        "Write a row `total` below the table, with the sums of shop and web, and save the file.",
        office("sales.xlsx"),
        table("total.gold.xlsx", {"type": "sheet_data"}),
        [
            keys("ctrl", "shift", "t"),
            text("A5\n"),
            text("total\t=SUM(B2:B4)\t=SUM(C2:C4)\n"),
            keys("ctrl", "s"),
        ],
        {"profile.xcu": profile},
        saves="sales.xlsx",
    ),
    OwnTask(
        "libreoffice_calc/april",
        "Write April with 101 in the shop and 99 in the web below the table, and save the file.",
        office("sales.xlsx"),
        table("april.gold.xlsx", {"type": "sheet_data"}, {"type": "sheet_name"}),
        [keys("ctrl", "shift", "t"), text("A5\n"), text("April\t101\t99\n"), keys("ctrl", "s")],
        {"profile.xcu": profile},
        saves="sales.xlsx",
    ),
    OwnTask(
        "libreoffice_calc/bold-header",
        "Make the header of the table bold and save the file.",
        office("sales.xlsx"),
        table("header.gold.xlsx", {"type": "style", "props": ["font_bold"]}, {"type": "sheet_data"}),
        [keys("ctrl", "shift", "t"), text("A1:C1\n"), keys("ctrl", "b"), keys("ctrl", "s")],
        {"profile.xcu": profile},
        saves="sales.xlsx",
    ),
    OwnTask(
        "libreoffice_writer/next-meeting",
        "Write the paragraph `The next meeting is on Monday.` at the end and save the file.",
        office("minutes.docx"),
        {
            "func": "compare_docx_files",
            "result": vm_file("/home/user/minutes.docx", "minutes.docx"),
            "expected": cloud("minutes.gold.docx"),
        },
        [keys("ctrl", "end"), text("\nThe next meeting is on Monday."), keys("ctrl", "s")],
        {"profile.xcu": profile},
        saves="minutes.docx",
    ),
    OwnTask(
        "libreoffice_writer/centre-title",
        "Centre the first paragraph and save the file.",
        office("minutes.docx"),
        {"func": "is_first_line_centered", "result": vm_file("/home/user/minutes.docx", "minutes.docx")},
        [keys("ctrl", "home"), keys("ctrl", "e"), keys("ctrl", "s")],
        {"profile.xcu": profile},
        saves="minutes.docx",
    ),
    OwnTask(
        "libreoffice_writer/new-page",
        "Let the last paragraph begin on a new page, by a page break, and save the file.",
        office("minutes.docx"),
        {
            "func": ["contains_page_break", "compare_docx_files"],
            "conj": "and",
            "result": [
                vm_file("/home/user/minutes.docx", "result.docx"),
                vm_file("/home/user/minutes.docx", "again.docx"),
            ],
            "expected": [{"type": "rule", "rules": {"page_break_count": 1}}, cloud("minutes.docx")],
            "options": [{}, {"delete_empty_lines": True}],
        },
        [keys("ctrl", "end"), keys("home"), keys("ctrl", "enter"), keys("ctrl", "s")],
        {"profile.xcu": profile},
        saves="minutes.docx",
    ),
)
