"""Settings of programs, read from the program's own store."""

from __future__ import annotations

import configparser
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.hand import Hand, Work
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


async def setting(stage: DesktopStage, name: str, group: str = GROUP) -> str | None:
    """What GLib has stored for a setting; None where it was never set, or the store cannot be read."""
    store = configparser.RawConfigParser(strict=False)
    try:
        store.read_string((await content_of(stage, STORE) or b"").decode())
    except (configparser.Error, UnicodeDecodeError):
        return None
    return store.get(group, name, fallback=None)


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
        others = [name for name in SWITCHES if name != self.switch and await setting(stage, name) == "true"]
        return judged(
            ("the tab width is right", 0.5, await setting(stage, "tab-width") == str(self.width)),
            ("the switch is on", 0.5, await setting(stage, self.switch) == "true"),
            spoiled={f"{SWITCHES[name]} was switched on, too": True for name in others},
        )

    def oracle(self, hand: Hand) -> Work:
        yield from hand.menu("Edit", "Preferences")
        yield from hand.click("check box", SWITCHES[self.switch])
        yield from hand.click("page tab", "Editor")
        yield from hand.click("spin button")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{self.width}\t")
        yield from hand.press("escape")
        yield from hand.wait_gone("dialog")

    def second(self, hand: Hand) -> Work:
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

    def wrong(self, hand: Hand) -> Work:
        """Another switch."""
        other = next(name for switch, name in SWITCHES.items() if switch != self.switch)
        yield from hand.menu("Edit", "Preferences")
        yield from hand.click("check box", other)
        yield from hand.press("escape")


TEMPLATES: Final = (TabWidth,)
