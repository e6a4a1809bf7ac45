"""The end states of linux-desktop's tasks that a second author wrote, and how they are made from the start states.

The author saw each template's instruction and start home (seed 1000007), the pages of the web applications and what
the programs are started with; no judge, no solver, no test of a judge. A state is a function that changes a copy of
the start home, registered under the template and its own name, which begins with its label:

right      the work is done, in whatever legitimate way
wrong      the work itself is not done, or done otherwise
spoiled    the work is done, and something else was changed against the instruction
ambiguous  the instruction's words leave both readings: judged and not counted

Documents of LibreOffice are changed by a Basic program of the state in a real LibreOffice without a window
(`Home.office`), all in one process by `make`.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

SEED = 1000007
FRESH_SEED = 1000017
AFTER_SEED = 1000023
KINDS = ("right", "wrong", "spoiled", "ambiguous")
TRASH = ".local/share/Trash"


@dataclass
class Home:
    """A copy of a start home.

    requests   what is posted to the web application
    documents  those that LibreOffice changes: the file's name, and the Basic program
    after      what is done when it has
    """

    path: Path
    requests: list[list[object]] = field(default_factory=list)
    documents: list[tuple[str, str]] = field(default_factory=list)
    after: list[Callable[[], object]] = field(default_factory=list)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def text(self, name: str) -> str:
        return (self / name).read_bytes().decode()

    def put(self, name: str, content: str | bytes) -> "Home":
        """Writes a file, with its folders; the mode of a file that is there stays."""
        (self / name).parent.mkdir(parents=True, exist_ok=True)
        (self / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return self

    def add(self, name: str, content: str) -> "Home":
        return self.put(name, self.text(name) + content)

    def swap(self, name: str, old: str, new: str, times: int = -1) -> "Home":
        """Replaces `old` by `new` in a file, as often as it is there or the first `times`."""
        text = self.text(name)
        if old not in text:
            raise ValueError(f"{name}: no {old!r}")
        return self.put(name, text.replace(old, new, times))

    def lines(self, name: str) -> list[str]:
        return self.text(name).splitlines()

    def put_lines(self, name: str, lines: list[str]) -> "Home":
        return self.put(name, "".join(f"{line}\n" for line in lines))

    def sh(self, command: str) -> "Home":
        """Runs a command of the shell in the home."""
        environment = {**os.environ, "HOME": str(self.path), "LC_ALL": "C.UTF-8"}
        subprocess.run(["bash", "-ec", command], cwd=self.path, env=environment, check=True, stdout=subprocess.DEVNULL)
        return self

    def mode(self, name: str, mode: int) -> "Home":
        (self / name).chmod(mode)
        return self

    def folder(self, name: str) -> "Home":
        (self / name).mkdir(parents=True)
        return self

    def move(self, name: str, to: str) -> "Home":
        (self / to).parent.mkdir(parents=True, exist_ok=True)
        (self / name).rename(self / to)
        return self

    def copy(self, name: str, to: str) -> "Home":
        shutil.copy2(self / name, self / to)
        return self

    def remove(self, *names: str) -> "Home":
        for name in names:
            (self / name).unlink()
        return self

    def link(self, name: str, to: str) -> "Home":
        """A symbolic link with these words."""
        (self / name).parent.mkdir(parents=True, exist_ok=True)
        (self / name).symlink_to(to)
        return self

    def trash(self, *names: str) -> "Home":
        """Moves files to the trash as Thunar does."""
        for folder in ("files", "info"):
            (self / TRASH / folder).mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in names:
            base = Path(name).name
            self.move(name, f"{TRASH}/files/{base}")
            path = (self / name).as_posix().replace(" ", "%20")
            self.put(f"{TRASH}/info/{base}.trashinfo", f"[Trash Info]\nPath={path}\nDeletionDate=2027-01-02T03:04:05\n")
        return self

    def post(self, path: str, **fields: object) -> "Home":
        self.requests.append(["POST", path, fields])
        return self

    def office(self, program: str) -> "Home":
        """Changes the only document of the home by a Basic program in which `doc` is it."""
        (name,) = [entry.name for entry in self.path.iterdir() if entry.suffix in (".ods", ".odt")]
        self.documents.append((name, program))
        return self

    def later(self, step: "State") -> "Home":
        """Changes the home after LibreOffice has saved its documents."""
        self.after.append(lambda: step(self))
        return self

    def recent(self, *names: str) -> "Home":
        """What GTK programs write on their own when they open or save files."""
        entries = "".join(
            f'<bookmark href="file://{escape(str(self / name))}" visited="2027-01-02T03:04:05Z"/>' for name in names
        )
        return self.put(
            ".local/share/recently-used.xbel", f'<?xml version="1.0"?>\n<xbel version="1.0">{entries}</xbel>\n'
        )

    def editor_traces(self, *names: str) -> "Home":
        """What Mousepad writes on its own: its window's size, its keys, the files of last time."""
        window = "[org/xfce/mousepad/state/window]\nheight=480\nwidth=640\n"
        self.put(".config/glib-2.0/settings/keyfile", window)
        return self.put(".config/Mousepad/accels.scm", "; mousepad GtkAccelMap rc-file\n").recent(*names)

    def viewer_traces(self) -> "Home":
        """What Thunar, GPicView and the thumbnailer write on their own."""
        self.put(".config/gpicview/gpicview.conf", "[General]\nauto_save_rotated=0\n")
        self.put(".config/Thunar/accels.scm", "; thunar GtkAccelMap rc-file\n")
        self.put(".config/xfce4/xfconf/xfce-perchannel-xml/thunar.xml", '<channel name="thunar" version="1.0"/>\n')
        self.put(".local/share/gvfs-metadata/home", b"\xda\x1ameta\x01\x00")
        return self.put(".cache/thumbnails/normal/0123456789abcdef0123456789abcdef.png", b"\x89PNG\r\n\x1a\n")

    def shell_traces(self, *commands: str) -> "Home":
        """What bash writes on its own when the terminal is closed."""
        return self.put(".bash_history", "".join(f"{command}\n" for command in commands))


State = Callable[[Home], object]
STATES: dict[str, dict[str, State]] = {}
# a third author's: from the start states of FRESH_SEED, and of AFTER_SEED with the other templates, which were judged
# after the mends that the first brought
FRESH: dict[str, dict[str, State]] = {}
AFTER: dict[str, dict[str, State]] = {}


def state(template: str, name: str, of: dict[str, dict[str, State]] = STATES) -> Callable[[State], State]:
    """Registers a state; ValueError for a name without a label, or one that is there already."""
    if name.split("-")[0] not in KINDS or name in of.get(template, {}):
        raise ValueError(f"{template}: state {name!r}")

    def keep(make: State) -> State:
        of.setdefault(template, {})[name] = make
        return make

    return keep


def states(template: str, **makes: State) -> None:
    """Registers states by keywords: `right_by_sed=...` is `right-by-sed`."""
    for name, make in makes.items():
        state(template, name.replace("_", "-"))(make)


def fresh(template: str, **makes: State) -> None:
    """Registers states of the third author by keywords."""
    for name, make in makes.items():
        state(template, name.replace("_", "-"), FRESH)(make)


def after(template: str, **makes: State) -> None:
    """Registers states of the third author's second round by keywords."""
    for name, make in makes.items():
        state(template, name.replace("_", "-"), AFTER)(make)


def make(states: Mapping[str, Mapping[str, State]], starts: Path, out: Path) -> None:
    """Writes OUT/TEMPLATE/STATE, a home, for every state, from STARTS/TEMPLATE/start.

    What is posted to the web application is in its requests.json.
    """
    homes = []
    for template, of_template in states.items():
        for name, change in of_template.items():
            home = Home(out / template / name)
            shutil.copytree(starts / template / "start", home.path, symlinks=True)
            change(home)
            if home.requests:
                home.put("requests.json", json.dumps(home.requests))
            homes.append(home)
    change_documents([(home / name, program) for home in homes for name, program in home.documents])
    for home in homes:
        for step in home.after:
            step()


LIBRARY = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<!DOCTYPE library:library PUBLIC "-//OpenOffice.org//DTD OfficeDocument 1.0//EN" "library.dtd">\n'
    '<library:library xmlns:library="http://openoffice.org/2000/library" library:name="Standard" library:readonly="false"'  # noqa: E501
    ' library:passwordprotected="false"><library:element library:name="Module1"/></library:library>\n'
)
MODULE = (
    '<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE script:module PUBLIC "-//OpenOffice.org//DTD OfficeDocument 1.0//EN" "module.dtd">'  # noqa: E501
    '<script:module xmlns:script="http://openoffice.org/2000/script" script:name="Module1" script:language="StarBasic">{}</script:module>'  # noqa: E501
)


def change_documents(changes: list[tuple[Path, str]]) -> None:
    """Opens each document in one LibreOffice, runs its program, saves it. Raises RuntimeError with those that fail."""
    if not changes:
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        subs, calls = [], []
        for number, (path, program) in enumerate(changes):
            subs.append(
                f"Sub S{number}\nOn Error Goto Failed\nDim doc, c, s, t, i\nDim unseen(0) As New com.sun.star.beans.PropertyValue\n"  # noqa: E501
                f'unseen(0).Name = "Hidden"\nunseen(0).Value = {"CurrentController" not in program}\n'
                f'doc = StarDesktop.loadComponentFromURL("{path.as_uri()}", "_blank", 0, unseen())\n{program}\n'
                f'doc.store()\ndoc.close(True)\nLine_("done {number}")\nExit Sub\nFailed:\n'
                f'Line_("failed {number} " & Err & " " & Error & " line " & Erl)\nEnd Sub\n'
            )
            calls.append(f"S{number}\n")
        basic = (
            f'Sub Line_(words)\nDim f\nf = FreeFile\nOpen "{log}" For Append As #f\nPrint #f, words\nClose #f\nEnd Sub\n'  # noqa: E501
            + "".join(subs)
            + "Sub Main\n"
            + "".join(calls)
            + "StarDesktop.terminate()\nEnd Sub\n"
        )
        profile = f"-env:UserInstallation={(Path(folder) / 'profile').as_uri()}"
        environment = {**os.environ, "HOME": folder}
        for arguments in (
            ["--terminate_after_init"],
            ["macro:///Standard.Module1.Main"],
        ):  # the first makes the profile
            command = ["soffice", profile, "--headless", "--norestore", *arguments]
            quiet = subprocess.DEVNULL
            subprocess.run(command, env=environment, check=True, stdout=quiet, stderr=quiet, timeout=3000)
            standard = Path(folder) / "profile/user/basic/Standard"
            (standard / "Module1.xba").write_text(MODULE.format(escape(basic)))
            (standard / "script.xlb").write_text(LIBRARY)
        said = log.read_text().splitlines() if log.exists() else []
    ended = {line.split()[1] for line in said if line.startswith("done ")}
    bad = [
        f"{path.parent.parent.name}/{path.parent.name}" for n, (path, _) in enumerate(changes) if str(n) not in ended
    ]
    if bad:
        raise RuntimeError(f"LibreOffice did not change {bad}: {[line for line in said if line.startswith('failed')]}")
