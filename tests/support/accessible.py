"""A program with an accessibility tree of its own making, on a desktop's accessibility bus.

    python -m tests.support.accessible SOCKET KIND

It registers, prints `ready`, and answers. KIND says how; see `Program`. What it is asked for a password is printed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from jeepney.io.blocking import DBusConnection
from jeepney.low_level import HeaderFields, Message, MessageType
from jeepney.wrappers import DBusAddress, new_error, new_method_call, new_method_return

ROOT: Final = "/org/a11y/atspi/accessible/root"
SHOWN: Final = (1 << 25 | 1 << 30 | 1 << 24 | 1 << 8, 0)  # showing, visible, sensitive, enabled
APPLICATION, FRAME, PANEL, BUTTON, SECRET, ENTRY, CELL = 75, 23, 39, 43, 40, 79, 56
SECRET_TEXT: Final = "correct horse"


def connect(path: str) -> DBusConnection:
    """A connection to the bus."""
    import socket

    from jeepney.auth import BEGIN, Authenticator

    plain = socket.socket(socket.AF_UNIX)
    plain.connect(path)
    login = Authenticator()
    for line in login:
        plain.sendall(line)
        login.feed(plain.recv(4096))
    plain.sendall(BEGIN)
    return DBusConnection(plain)  # it says hello


class Program:
    """Answers by the path of what is asked: `.../root` is the program, `/n/0/1` the second object below the first.

    good      a frame with two buttons, and a password field beside an entry
    circle    every object's children are itself, its parent and the root
    endless   every object has ten children
    deep      every object has one child
    wide      the frame says that it has 2^31 - 1 children
    sheet     the frame's third child is a table of 2^31 - 1 cells in 16,384 columns, of which rows 5 to 8 and columns 2
              to 4 are visible; its cells give no text to who asks for more than there is, as those of LibreOffice
    thousand  the frame has a thousand children, and each of them as many
    huge      the list of the frame's children has 32 MB, and its name a megabyte
    wrong     every answer is of another type
    silent    nothing is answered
    stuck     the frame's children are never answered
    slow      every answer takes a fifth of a second
    dies      the program ends at the 20th call
    flood     each call is followed by a thousand signals of 10 kB
    thief     its frame's children are the objects of another program, whose name on the bus comes after the kind
    """

    def __init__(self, connection: DBusConnection, kind: str, other: str = "") -> None:
        self.connection = connection
        self.kind = kind
        self.other = other
        self.calls = 0

    def children(self, path: str) -> list[tuple[str, str]]:
        me = self.connection.unique_name
        depth = path.count("/")
        if path == ROOT:
            return [(me, "/n")]
        if self.kind == "circle":
            return [(me, path), (me, ROOT), (me, path.rpartition("/")[0] or "/n"), (me, f"{path}/0")][
                : 4 if depth < 4 else 3
            ]
        if self.kind in ("endless", "slow", "flood", "dies"):
            return [(me, f"{path}/{number}") for number in range(10)]
        if self.kind == "deep":
            return [(me, f"{path}/0")]
        if self.kind == "thousand":
            return [(me, f"{path}/{number}") for number in range(1000)]
        if self.kind == "huge" and path == "/n":
            return [(me, "/n/" + "x" * 1000)] * 32_000
        if self.kind == "thief" and path == "/n":
            return [(self.other, "/n/0"), (self.other, "/n/1"), (me, "/n/0")]
        return [(me, f"/n/{number}") for number in range(4)] if path == "/n" else []

    def role(self, path: str) -> int:
        if path == ROOT:
            return APPLICATION
        if path == "/n":
            return FRAME
        return {"/n/2": ENTRY, "/n/3": SECRET}.get(path, CELL if path.startswith("/n/1/") else BUTTON)

    def properties(self, path: str, interface: str) -> dict[str, Any]:
        if interface.endswith("Value"):
            return {}
        if interface.endswith("Text"):
            return {"CharacterCount": ("i", 0 if path == ROOT else len(self.text(path)))}
        name = self.kind if path == ROOT else path
        if self.kind == "huge" and path == "/n":
            name = "n" * 1_000_000
        many = (self.kind, path) in (("wide", "/n"), ("sheet", "/n/1"))
        return {"Name": ("s", name), "ChildCount": ("i", 2**31 - 1 if many else min(len(self.children(path)), 1000))}

    def text(self, path: str) -> str:
        if path == "/n/3":
            return SECRET_TEXT
        return f"cell {path.rpartition('/')[2]}" if path.startswith("/n/1/") else "written"

    def answer(self, call: Message) -> Message | None:
        fields = call.header.fields
        path, method = fields[HeaderFields.path], fields[HeaderFields.member]
        interface = fields.get(HeaderFields.interface, "").rpartition(".")[2]
        if self.kind == "silent" or (self.kind == "stuck" and path == "/n" and method == "GetChildren"):
            return None
        if self.kind == "wrong" and path != ROOT:
            return new_method_return(call, "s", ("neither a list nor a number",))
        if path == "/n/3" and interface in ("Text", "Value", "EditableText"):
            print(f"asked for the password: {method}", flush=True)
        body = (*call.body, 0, 0)
        index = body[0] if isinstance(body[0], int) else 0
        me = self.connection.unique_name
        text = self.text(path)[index : body[1]] if isinstance(body[1], int) and body[1] <= len(self.text(path)) else ""
        corner = 5 * 16384 + 2 if body[0] == 21 else 8 * 16384 + 4
        answers: dict[str, Callable[[], tuple[str, Any]]] = {
            "GetRole": lambda: ("u", self.role(path)),
            "GetState": lambda: ("au", list(SHOWN)),
            "GetInterfaces": lambda: (
                "as",
                [f"org.a11y.atspi.{name}" for name in ("Accessible", "Component", *self.extra(path))],
            ),
            "GetAll": lambda: ("a{sv}", self.properties(path, call.body[0])),
            "GetChildren": lambda: ("a(so)", self.children(path)),
            "GetChildAtIndex": lambda: ("(so)", (self.connection.unique_name, f"{path}/{index}")),
            "GetExtents": lambda: ("(iiii)", (10 * path.count("/"), 20, 30, 40)),
            "GetText": lambda: ("s", text),
            "GetAccessibleAtPoint": lambda: ("(so)", (me, f"{path}/{corner}")),
            "GetIndexInParent": lambda: ("i", int(path.rpartition("/")[2])),
            "GetRowAtIndex": lambda: ("i", index // 16384),
            "GetColumnAtIndex": lambda: ("i", index % 16384),
            "GetAccessibleAt": lambda: ("(so)", (me, f"{path}/{index * 16384 + body[1]}")),
            "GetAttributes": lambda: ("a{ss}", {"toolkit": "ours"}),
        }
        if method not in answers or (method == "GetAccessibleAtPoint" and self.kind != "sheet"):
            return new_error(call, "org.freedesktop.DBus.Error.UnknownMethod")
        signature, value = answers[method]()
        return new_method_return(call, signature, (value,))

    def extra(self, path: str) -> tuple[str, ...]:
        if self.kind == "sheet" and path == "/n/1":
            return ("Table",)
        return ("Text",) if path in ("/n/2", "/n/3") or path.startswith("/n/1/") else ()

    def serve(self) -> None:
        while True:
            call = self.connection.receive()
            if call.header.message_type is not MessageType.method_call:
                continue
            self.calls += 1
            if self.kind == "slow":
                time.sleep(0.2)
            if self.kind == "dies" and self.calls > 20:
                os._exit(0)
            reply = self.answer(call)
            if reply is not None:
                self.connection.send(reply)
            if self.kind == "flood":
                self.flood(call)

    def flood(self, call: Message) -> None:
        from jeepney.wrappers import new_signal

        for _ in range(1000):
            signal = new_signal(DBusAddress("/n", interface="org.a11y.atspi.Event.Object"), "X", "s", ("x" * 10_000,))
            signal.header.fields[HeaderFields.destination] = call.header.fields[HeaderFields.sender]
            self.connection.send(signal)


def main() -> None:
    connection = connect(sys.argv[1])
    program = Program(connection, sys.argv[2], *sys.argv[3:])
    registry = DBusAddress(ROOT, "org.a11y.atspi.Registry", "org.a11y.atspi.Socket")
    connection.send_and_get_reply(new_method_call(registry, "Embed", "(so)", ((connection.unique_name, ROOT),)))
    print(f"ready {connection.unique_name}", flush=True)
    try:
        program.serve()
    except (ConnectionError, OSError):
        return  # the desktop is gone


if __name__ == "__main__":
    main()
