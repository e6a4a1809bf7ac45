"""A stand-in for a guest of Windows Agent Arena: its server's protocol over a state that tests write down.

The state is files, registry values, what commands print, and the questions that the guest answers with yes. Python that
a getter sends (`python -c CODE`) is run, with modules that see this state in the place of `os` and `platform`.
"""

from __future__ import annotations

import contextlib
import io
import json
import ntpath
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

from tests.support.http_thread import answering

HOME: Final = r"C:\Users\Docker"
ENVIRON: Final = {"USERPROFILE": HOME, "LOCALAPPDATA": rf"{HOME}\AppData\Local", "APPDATA": rf"{HOME}\AppData\Roaming"}


def path_key(path: str) -> str:
    return ntpath.normpath(path).lower()


@dataclass
class WindowsGuest:
    """
    files      path -> content; folders exist where files are, and those of `folders`
    registry   (key, name) -> what PowerShell prints
    commands   words of a command -> what it prints; any other prints nothing
    yes        questions that are answered with yes: (route, the words that the question must name)
    told       route -> the JSON answer of another question, such as /library_folders
    title      of the active window
    hidden     paths of hidden files
    """

    files: dict[str, bytes] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    registry: dict[tuple[str, str], str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    yes: list[tuple[str, str]] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)
    title: str = "Program Manager"
    hidden: list[str] = field(default_factory=list)
    wallpaper: bytes | None = None
    tree: str = "<desktop/>"
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def file(self, path: str) -> bytes | None:
        return {path_key(name): data for name, data in self.files.items()}.get(path_key(path))

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder."""
        above = path_key(folder) + "\\"
        below = [
            path_key(name)[len(above) :] for name in (*self.files, *self.folders) if path_key(name).startswith(above)
        ]
        shown = {path_key(name): name for name in (*self.files, *self.folders)}
        found = {}
        for rest in below:
            top = rest.split("\\")[0]
            whole = next(name for key, name in shown.items() if key.startswith(above + top))
            found[top] = ntpath.normpath(whole)[len(above) :].split("\\")[0]
        return sorted(found.values())

    def is_folder(self, path: str) -> bool:
        return path_key(path) in map(path_key, self.folders) or bool(self.names(path))

    def exists(self, path: str) -> bool:
        return self.file(path) is not None or self.is_folder(path)

    # the server

    def answer(self, route: str, given: Mapping[str, Any]) -> tuple[int, bytes]:
        """(status, body) as the guest's server answers."""
        self.asked.append((route, given))
        if route in ("/execute", "/setup/execute"):
            return 200, json.dumps(self.run(given["command"])).encode()
        if route == "/file":
            data = self.file(given["file_path"])
            return (404, b'{"error": "File not found"}') if data is None else (200, data)
        if route == "/wallpaper":
            return (404, b"not found") if self.wallpaper is None else (200, self.wallpaper)
        if route in ("/desktop_path", "/documents_path"):
            name = route[1:]
            return 200, json.dumps({name: ntpath.join(HOME, name.split("_")[0].title())}).encode()
        if route == "/accessibility":
            return 200, json.dumps({"AT": self.tree}).encode()
        if route == "/list_directory":
            if not self.is_folder(given["path"]):
                return 400, b'{"error": "The provided path is not a directory"}'
            return 200, json.dumps({"directory_tree": self.branch(given["path"])}).encode()
        if route in ("/folder_exists", "/file_exists"):
            path = ntpath.join(given["path"], given.get("folder_name") or given["file_name"])
            found = self.is_folder(path) if route == "/folder_exists" else self.file(path) is not None
            return self.said(found)
        if route in self.told:
            return 200, json.dumps(self.told[route]).encode()
        if route in ("/setup/create_folder", "/setup/recycle", "/setup/launch", "/setup/upload"):
            return 200, b"{}"
        return self.said(any(route == at and words in json.dumps(given) for at, words in self.yes))

    def said(self, yes: bool) -> tuple[int, bytes]:
        """Yes, or no: the guest's server gives a no with the status of a bad request."""
        return (200, b'{"status": "success"}') if yes else (400, b'{"status": "error", "message": "no"}')

    def branch(self, folder: str) -> dict[str, Any]:
        children = []
        for name in self.names(folder):
            path = ntpath.join(folder, name)
            children.append(self.branch(path) if self.file(path) is None else {"type": "file", "name": name})
        return {"type": "directory", "name": ntpath.basename(folder), "children": children}

    def run(self, command: Any) -> dict[str, Any]:
        if isinstance(command, list) and command[:2] == ["python", "-c"]:
            output, error = self.python(command[2])
        else:
            words = command if isinstance(command, str) else " ".join(command)
            output, error = next((out for known, out in self.commands.items() if known in words), ""), ""
            for (key, name), value in self.registry.items():
                if f"-Path '{key}' -Name '{name}'" in words:
                    output = value
        return {"status": "success", "output": output, "error": error, "returncode": int(bool(error))}

    def python(self, code: str) -> tuple[str, str]:
        """(what it prints, its error)."""
        out = io.StringIO()
        seen: dict[str, Any] = {"os": self.os(), "platform": types.SimpleNamespace(system=lambda: "Windows")}
        seen["pyautogui"] = types.SimpleNamespace(getActiveWindowTitle=lambda: self.title)
        builtins = {**vars(__import__("builtins")), "open": self.open}
        builtins["__import__"] = lambda name, *_, **__: seen[name] if name in seen else __import__(name)
        try:
            with contextlib.redirect_stdout(out):
                exec(code, {"__builtins__": builtins})  # code of a getter, in a test
        except SystemExit:
            pass
        except Exception as error:  # as a program that ends with a traceback
            return out.getvalue(), repr(error)
        return out.getvalue(), ""

    def open(self, path: str, mode: str = "r") -> Any:
        data = self.file(path)
        if data is None:
            raise FileNotFoundError(path)
        return io.StringIO(data.decode()) if mode == "r" else io.BytesIO(data)

    def os(self) -> Any:
        path = types.SimpleNamespace(**{name: getattr(ntpath, name) for name in ("join", "basename", "dirname")})
        path.exists, path.isdir = self.exists, self.is_folder
        path.isfile = lambda name: self.file(name) is not None
        path.expanduser = lambda name: name.replace("~", HOME)
        path.expandvars = lambda name: name
        hidden = {path_key(name) for name in self.hidden}

        def stat(name: str) -> Any:
            if not self.exists(name):
                raise FileNotFoundError(name)
            return types.SimpleNamespace(st_file_attributes=2 if path_key(name) in hidden else 0)

        return types.SimpleNamespace(
            path=path, getenv=ENVIRON.get, name="nt", listdir=self.names, stat=stat, system=lambda command: 0
        )

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """The address of its server."""
        guest = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                kind = self.headers.get("Content-Type", "")
                if "json" in kind:
                    given = json.loads(body)
                else:
                    given = {} if "multipart" in kind else {k: v[0] for k, v in parse_qs(body.decode()).items()}
                status, content = guest.answer(self.path.split("?")[0], given)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = answer

            def log_message(self, *arguments: Any) -> None:
                """Nothing is printed."""

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        with answering(http) as port:
            yield f"http://127.0.0.1:{port}"
