"""What the phone shows, and what its apps do: a home screen, contacts, notes, a long list, a browser."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from PIL import Image, ImageDraw, ImageFont

NATURAL = (360, 640)
ROW = 48
ACTIVITIES = {
    "com.android.contacts": ".activities.PeopleActivity",
    "com.android.settings": ".Settings",
    "com.example.notes": ".Notes",
    "com.example.browser": ".Main",
    "com.other.browser": ".Main",
}
EDITOR = "com.android.contacts/.activities.ContactEditorActivity"
FIELDS = ("First name", "Last name", "Phone")
BACK, HOME, ENTER, TAB, BACKSPACE, RECENTS, WAKE = 4, 3, 66, 61, 67, 187, 224
SELECT_ALL = (113, 29)
LONG_MS = 400


def contact(first: str, last: str, phone: str, **more: str) -> dict[str, str]:
    """A contact as it is saved. more: kind of a row -> its value."""
    return {"display_name": f"{first} {last}".strip(), "first": first, "last": last, "phone_v2": phone, **more}


@dataclass
class View:
    """One view of a screen; `bounds` in pixels: left, top, right, bottom."""

    kind: str
    text: str
    bounds: tuple[int, int, int, int]
    name: str = ""  # of the field, or of what a tap does
    clickable: bool = False
    password: bool = False
    children: list[View] = field(default_factory=list)


class Screen:
    """The phone's apps. `rotation` 0 to 3, in quarter turns."""

    def __init__(self) -> None:
        self.rotation = 0
        self.awake, self.locked = True, False
        self.stack: list[str] = []
        self.contacts: list[dict[str, str]] = []
        self.heard: list[tuple[object, ...]] = []  # taps, swipes, keys
        self.restless = False
        self._frame = 0
        self.clear()

    def clear(self) -> None:
        self.fields: dict[str, str] = {}
        self.focus: str | None = None
        self.selected = False
        self.offset = 0
        self.url = ""
        self.menu = ""

    @property
    def size(self) -> tuple[int, int]:
        return NATURAL if self.rotation % 2 == 0 else (NATURAL[1], NATURAL[0])

    @property
    def app(self) -> str:
        return self.stack[-1] if self.stack else "com.android.launcher/.Home"

    def start(self, component: str, url: str = "") -> None:
        self.clear()
        self.stack = [*(each for each in self.stack if each != component), component]
        self.url = url

    def stop(self, package: str) -> None:
        self.stack = [each for each in self.stack if not each.startswith(f"{package}/")]

    def views(self) -> list[View]:
        width, height = self.size
        name = self.app.partition("/")[0]
        top = [View("android.widget.TextView", self.title, (0, 0, width, ROW))]
        if self.app == EDITOR:
            boxes = [(20, 60 + 56 * n, width - 20, 60 + 56 * n + 44) for n in range(3)]
            fields = [
                View("android.widget.EditText", self.fields.get(each) or each, box, each, True)
                for each, box in zip(FIELDS, boxes, strict=True)
            ]
            return [*top, *fields, View("android.widget.Button", "Save", (20, 240, 140, 288), "save", True)]
        if name == "com.example.notes":
            note = View(
                "android.widget.EditText", self.fields.get("note", ""), (0, ROW, width, height - 96), "note", True
            )
            secret = View(
                "android.widget.EditText", "•••" if self.fields.get("pin") else "", (0, height - 96, width, height - 48)
            )
            secret.name, secret.clickable, secret.password = "pin", True, True
            return [*top, note, secret]
        if name == "com.android.settings":
            rows = []
            for number in range(40):
                up = ROW + ROW * number - self.offset
                if ROW <= up <= height - ROW:
                    label = View("android.widget.TextView", f"Setting {number}", (16, up + 8, width - 16, up + 40))
                    row = View("android.widget.LinearLayout", "", (0, up, width, up + ROW), f"row {number}", True)
                    row.children.append(label)
                    rows.append(row)
            listed = View("androidx.recyclerview.widget.RecyclerView", "", (0, ROW, width, height))
            listed.children = rows
            return [*top, listed]
        return top

    @property
    def title(self) -> str:
        if self.menu:
            return f"menu of {self.menu}"
        if self.url:
            return self.url
        return f"{len(self.contacts)} contacts" if "PeopleActivity" in self.app else self.app.rpartition("/")[2]

    def _at(self, x: int, y: int) -> View | None:
        left = list(self.views())
        found = None
        while left:
            view = left.pop(0)
            if view.bounds[0] <= x < view.bounds[2] and view.bounds[1] <= y < view.bounds[3]:
                found = view if view.clickable else found
                left += view.children
        return found

    def tap(self, x: int, y: int) -> None:
        self.heard.append(("tap", x, y))
        view = self._at(x, y)
        self.menu = ""
        if view is None:
            return
        if view.name == "save":
            self.contacts.append(
                contact(
                    *(self.fields.get(name, "") for name in FIELDS),
                )
            )
            self.start("com.android.contacts/.activities.PeopleActivity")
        elif view.kind.endswith("EditText"):
            self.focus, self.selected = view.name, False

    def swipe(self, x1: int, y1: int, x2: int, y2: int, ms: int) -> None:
        self.heard.append(("swipe", x1, y1, x2, y2, ms))
        if (x1, y1) == (x2, y2) and ms > LONG_MS:
            view = self._at(x1, y1)
            self.menu = view.name if view else ""
        elif self.app.startswith("com.android.settings/"):
            self.offset = min(max(0, self.offset + y1 - y2), 40 * ROW - self.size[1] + ROW)

    def key(self, code: int) -> None:
        self.heard.append(("key", code))
        if code == WAKE:
            self.awake = True
        elif code == HOME:
            self.stack = []
        elif code == BACK:
            self.stack = self.stack[:-1]
        elif code == BACKSPACE and self.focus:
            self.fields[self.focus] = "" if self.selected else self.fields.get(self.focus, "")[:-1]
            self.selected = False
        elif code in (ENTER, TAB):
            if self.focus == "note":
                self.write("\n" if code == ENTER else "\t")
            elif self.focus in FIELDS:
                self.focus = FIELDS[(FIELDS.index(self.focus) + 1) % len(FIELDS)]

    def combination(self, codes: tuple[int, ...]) -> None:
        self.heard.append(("keys", *codes))
        if codes == SELECT_ALL:
            self.selected = True

    def write(self, text: str) -> None:
        if self.focus:
            before = "" if self.selected else self.fields.get(self.focus, "")
            self.fields[self.focus] = before + text
            self.selected = False

    def png(self) -> bytes:
        """The screen as a PNG; black while it is off."""
        width, height = self.size
        image = Image.new("RGB", (width, height), (250, 250, 250) if self.awake else (0, 0, 0))
        if self.awake:
            canvas, font = ImageDraw.Draw(image), ImageFont.load_default(14)
            left = self.views()
            while left:
                view = left.pop(0)
                canvas.rectangle(
                    (view.bounds[0], view.bounds[1], view.bounds[2] - 1, view.bounds[3] - 1),
                    outline=(200, 60, 60) if view.name and view.name == self.focus else (180, 180, 180),
                )
                canvas.text((view.bounds[0] + 4, view.bounds[1] + 4), view.text, fill=(0, 0, 0), font=font)
                left += view.children
            if self.restless:
                self._frame += 1
                canvas.text((4, height - 20), str(self._frame), fill=(0, 0, 0), font=font)
        stream = io.BytesIO()
        image.save(stream, "PNG")
        return stream.getvalue()

    def dump(self) -> str:
        """What uiautomator writes of this screen."""
        width, height = self.size
        root = View("android.widget.FrameLayout", "", (0, 0, width, height), children=self.views())
        head = "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>"
        return f'{head}<hierarchy rotation="{self.rotation}">{self._xml(root, 0)}</hierarchy>'

    def _xml(self, view: View, index: int) -> str:
        box = view.bounds
        given = {
            "index": str(index),
            "text": view.text,
            "resource-id": "",
            "class": view.kind,
            "package": self.app.partition("/")[0],
            "content-desc": "",
            "checkable": "false",
            "checked": "false",
            "clickable": str(view.clickable).lower(),
            "enabled": "true",
            "focusable": str(view.clickable).lower(),
            "focused": str(bool(view.name) and view.name == self.focus).lower(),
            "scrollable": "false",
            "long-clickable": "false",
            "password": str(view.password).lower(),
            "selected": "false",
            "bounds": f"[{box[0]},{box[1]}][{box[2]},{box[3]}]",
        }
        attributes = " ".join(f"{name}={quoteattr(value)}" for name, value in given.items())
        inner = "".join(self._xml(child, number) for number, child in enumerate(view.children))
        return f"<node {attributes}>{inner}</node>" if inner else f"<node {attributes} />"
