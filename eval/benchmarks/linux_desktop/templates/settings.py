"""Settings of programs, read from the program's own store."""

from __future__ import annotations

import configparser
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import content_of, open_window
from eval.benchmarks.linux_desktop.template import About, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, lines_of, text_of
from eval.desktops.stage import DesktopStage

STORE: Final = ".config/glib-2.0/settings/keyfile"  # of GLib's keyfile backend
KEPT: Final = ["env", "GSETTINGS_BACKEND=keyfile", EDITOR]
GROUP: Final = "org/xfce/mousepad/preferences/view"
DEFAULT_WIDTH: Final = 8
# what the preferences can switch on: the setting, and how the program calls it
SWITCHES: Final = {
    "show-line-numbers": "Show line numbers",
    "show-whitespace": "Display whitespace",
    "highlight-current-line": "Highlight current line",
    "match-braces": "Highlight matching brackets",
}


# the other preferences of Mousepad 0.5, as they are where nobody has changed them
UNCHANGED: Final[dict[str, dict[str, str]]] = {
    "view": {
        **dict.fromkeys(SWITCHES, "false"),
        **dict.fromkeys(("auto-indent", "insert-spaces", "show-line-endings", "show-line-marks"), "false"),
        **dict.fromkeys(("show-right-margin", "smart-backspace", "word-wrap"), "false"),
        **dict.fromkeys(("indent-on-tab", "use-default-monospace-font"), "true"),
        "color-scheme": "'none'",
        "font-name": "'Monospace 10'",
        "indent-width": "-1",
        "right-margin-position": "80",
        "smart-home-end": "'disabled'",
        "tab-width": str(DEFAULT_WIDTH),
    },
    "view/show-whitespace": dict.fromkeys(("inside", "leading", "trailing"), "true"),
    "file": {
        **dict.fromkeys(("add-last-end-of-line", "auto-reload", "make-backup"), "false"),
        "autosave-timer": "30",
        "default-encoding": "'UTF-8'",
        "monitor-changes": "true",
        "monitor-disabling-timer": "500",
        "session-restore": "'after-a-crash'",
    },
    "window": {
        **dict.fromkeys(("always-show-tabs", "client-side-decorations", "cycle-tabs", "remember-position"), "false"),
        **dict.fromkeys(("statusbar-visible", "toolbar-visible"), "false"),
        **dict.fromkeys(("expand-tabs", "menubar-visible", "old-style-menu", "path-in-title"), "true"),
        **dict.fromkeys(("remember-size", "remember-state"), "true"),
        **dict.fromkeys([f"{bar}-visible-in-fullscreen" for bar in ("menubar", "statusbar", "toolbar")], "'auto'"),
        "default-tab-sizes": "'2,3,4,8'",
        "opening-mode": "'tab'",
        "recent-menu-items": "10",
        "toolbar-icon-size": "'small-toolbar'",
        "toolbar-style": "'icons'",
    },
}


async def changed(stage: DesktopStage) -> dict[str, str]:
    """The preferences that are not as they were, as view/tab-width, and their values; nothing where the store cannot be
    read."""
    store = await stored(stage)
    found: dict[str, str] = {}
    for group in store.sections():
        place = group.removeprefix("org/xfce/mousepad/preferences/")
        if place == group:
            continue
        usual = UNCHANGED.get(place, {})
        found |= {f"{place}/{name}": value for name, value in store.items(group) if value != usual.get(name)}
    return found


async def stored(stage: DesktopStage) -> configparser.RawConfigParser:
    """What GLib has stored; nothing where it cannot be read."""
    store = configparser.RawConfigParser(strict=False)
    try:
        store.read_string((await content_of(stage, STORE) or b"").decode())
    except (configparser.Error, UnicodeDecodeError):
        return configparser.RawConfigParser()
    return store


async def setting(stage: DesktopStage, name: str, group: str = GROUP) -> str | None:
    """What GLib has stored for a setting; None where it was never set, or the store cannot be read."""
    return (await stored(stage)).get(group, name, fallback=None)


@dataclass(frozen=True)
class TabWidth(Instance):
    """The width of tabs, and a switch of the menu View."""

    about: ClassVar = About("mousepad-settings", (EDITOR,), "hard", 9)
    file: str
    lines: tuple[str, ...]
    width: int
    switch: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        width = pool.choose([width for width in pool.numbers(2, 32, 4) if width != DEFAULT_WIDTH])
        return cls(pool.file("txt"), lines_of(pool, 4), width, pool.choose(list(SWITCHES)))

    @property
    def request(self) -> str:
        return (
            f"In the editor's preferences, set the tab width to {self.width} and switch on "
            f'"{SWITCHES[self.switch]}". Change no other setting.'
        )

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.file, text_of(self.lines))
        await open_window(stage, [*KEPT, self.file], 1, self.file)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        others = {name for name in await changed(stage) if name not in ("view/tab-width", f"view/{self.switch}")}
        return judged(
            ("the tab width is right", 0.5, await setting(stage, "tab-width") == str(self.width)),
            ("the switch is on", 0.5, await setting(stage, self.switch) == "true"),
            spoiled={f"the setting {name} was changed": True for name in sorted(others)},
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.menu("Edit", "Preferences")
        yield from hand.click("check box", SWITCHES[self.switch])
        yield from hand.click("page tab", "Editor")
        yield from hand.click("spin button")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{self.width}\t")
        yield from hand.press("escape")
        yield from hand.wait_gone("dialog")

    def second(self, hand: OracleActions) -> Work:
        """The width first."""
        yield from hand.menu("Edit", "Preferences")
        yield from hand.click("page tab", "Editor")
        yield from hand.click("spin button")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{self.width}")
        yield from hand.click("page tab", "View")
        yield from hand.click("check box", SWITCHES[self.switch])
        yield from hand.press("escape")
        yield from hand.wait_gone("dialog")

    def wrong(self, hand: OracleActions) -> Work:
        """Another switch."""
        other = next(name for switch, name in SWITCHES.items() if switch != self.switch)
        yield from hand.menu("Edit", "Preferences")
        yield from hand.click("check box", other)
        yield from hand.press("escape")


TEMPLATES: Final = (TabWidth,)
