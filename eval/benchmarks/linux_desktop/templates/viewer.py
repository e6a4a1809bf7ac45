"""The image viewer: what a picture shows is known to the judge, and written nowhere on the desktop."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import content_of, open_window
from eval.benchmarks.linux_desktop.template import About, Infeasible, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, same_text, text_of
from eval.desktops.stage import DesktopStage

VIEWER: Final = "gpicview"
SIZE: Final = (360, 240)
LETTERS: Final = 64  # pixels
COLOURS: Final = ("white", "khaki", "lightblue", "palegreen", "pink")


@functools.cache
def picture(text: str, colour: str) -> bytes:
    """A PNG with a text in its middle."""

    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", SIZE, colour)
    font = ImageFont.load_default(LETTERS)
    ImageDraw.Draw(image).text((SIZE[0] // 2, SIZE[1] // 2), text, "black", font, anchor="mm")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@dataclass(frozen=True)
class DeletePicture(Instance):
    """One of the pictures of a folder shows a number; it goes."""

    about: ClassVar = About("gpicview-delete", (VIEWER,), "medium", 5)
    asks: ClassVar = (
        "The viewer shows the pictures of the folder {self.folder}. Delete the picture that shows the number "
        "{self.number}, and no other."
    )
    folder: str
    numbers: tuple[int, ...]
    number: int
    colours: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        numbers = pool.numbers(100, 999, 4)
        return cls(pool.word("city"), tuple(numbers), pool.choose(numbers), tuple(pool.sample(COLOURS, 4)))

    @property
    def files(self) -> dict[str, bytes]:
        shown = zip(self.numbers, self.colours, strict=True)
        return {f"{self.folder}/picture {n}.png": picture(str(one[0]), one[1]) for n, one in enumerate(shown, 1)}

    @property
    def file(self) -> str:
        return f"{self.folder}/picture {self.numbers.index(self.number) + 1}.png"

    async def prepare(self, stage: DesktopStage) -> None:
        for path, content in self.files.items():
            await stage.write_file(path, content)
        await open_window(stage, [VIEWER, f"{self.folder}/picture 1.png"], 1, "picture")

    def removed(self) -> tuple[str, ...]:
        return (self.file,)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        return judged(("it is gone", 1.0, self.file not in await stage.list_files("")))

    def oracle(self, hand: OracleActions) -> Work:
        for _ in range(self.numbers.index(self.number)):
            yield from hand.press("right")
        yield from self._delete(hand)

    def second(self, hand: OracleActions) -> Work:
        """By the mouse, backwards."""
        for _ in range(len(self.numbers) - self.numbers.index(self.number)):
            yield from hand.click("push button", "=Back")
        yield from hand.click("push button", "=Delete")
        yield from hand.click("push button", "=Yes")
        yield from hand.wait_gone("push button", "=Yes")

    def wrong(self, hand: OracleActions) -> Work:
        """The next one."""
        for _ in range(self.numbers.index(self.number) + 1):
            yield from hand.press("right")
        yield from self._delete(hand)

    def _delete(self, hand: OracleActions) -> Work:
        yield from hand.press("delete")
        yield from hand.click("push button", "=Yes")
        yield from hand.wait_gone("push button", "=Yes")


@dataclass(frozen=True)
class CopyNumbers(Instance):
    """The numbers of two pictures go into a file. Two programs."""

    about: ClassVar = About("gpicview-to-editor", (VIEWER, EDITOR), "hard", 5)
    asks: ClassVar = (
        "The folder {self.folder} has two pictures, each with a number; the viewer shows the first. Write both "
        "numbers into {self.file}, which the editor shows: that of picture 1 in the first line, the other in the "
        "second. Save it."
    )
    file: str
    folder: str
    numbers: tuple[int, int]
    place: tuple[int, int]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        one, two = pool.numbers(1000, 9999, 2)
        return cls(pool.file("txt"), pool.word("city"), (one, two), (pool.whole(0, 60), pool.whole(40, 160)))

    async def prepare(self, stage: DesktopStage) -> None:
        for n, number in enumerate(self.numbers, 1):
            await stage.write_file(f"{self.folder}/picture {n}.png", picture(str(number), COLOURS[n]))
        await stage.write_file(self.file, b"")
        await open_window(stage, [EDITOR, self.file], 1, self.file, (self.place[0], self.place[1]))
        await open_window(stage, [VIEWER, f"{self.folder}/picture 1.png"], 2, "picture", (680, 60))

    def targets(self) -> dict[str, bytes]:
        return {self.file: text_of([str(number) for number in self.numbers])}

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await content_of(stage, self.file)
        return judged(("both are there", 1.0, same_text(found, self.targets()[self.file])))

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.press("right")
        yield from hand.click("text", program=EDITOR)
        yield from hand.type("".join(f"{number}\n" for number in self.numbers))
        yield from hand.press("ctrl", "s")

    def second(self, hand: OracleActions) -> Work:
        """One after the other."""
        yield from hand.to_window("Mousepad")
        yield from hand.type(f"{self.numbers[0]}")
        yield from hand.press("ctrl", "s")
        yield from hand.click("push button", "=Forward")
        yield from hand.to_window("Mousepad")
        yield from hand.type(f"\n{self.numbers[1]}")
        yield from hand.press("ctrl", "s")

    def wrong(self, hand: OracleActions) -> Work:
        """The numbers the other way round."""
        yield from hand.click("text", program=EDITOR)
        yield from hand.type("".join(f"{number}\n" for number in reversed(self.numbers)))
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class NoSuchPicture(Infeasible, DeletePicture):
    """No picture shows the number."""

    about: ClassVar = About("gpicview-no-such-picture", (VIEWER,), "hard", 1, infeasible=True, twin="gpicview-delete")

    @property
    def files(self) -> dict[str, bytes]:
        shown = [pair for pair in zip(self.numbers, self.colours, strict=True) if pair[0] != self.number]
        return {f"{self.folder}/picture {n}.png": picture(str(one[0]), one[1]) for n, one in enumerate(shown, 1)}

    def second(self, hand: OracleActions) -> Work:
        """Looks at all pictures first."""
        for _ in self.numbers:
            yield from hand.press("right")
        yield from hand.give_up()


TEMPLATES: Final = (DeletePicture, CopyNumbers, NoSuchPicture)
