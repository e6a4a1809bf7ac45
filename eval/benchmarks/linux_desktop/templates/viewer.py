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
class DeletePictures(Instance):
    """Two of the pictures of a folder show certain numbers; they go."""

    about: ClassVar = About("gpicview-delete", (VIEWER,), "medium", 12, max_steps=40)
    asks: ClassVar = (
        "The viewer shows the first picture of the folder {self.folder}. Delete the two pictures of this folder that "
        "show the numbers {self.chosen[0]} and {self.chosen[1]}, and no others."
    )
    folder: str
    numbers: tuple[int, ...]
    chosen: tuple[int, ...]
    colours: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        numbers = pool.numbers(100, 999, 12)
        colours = tuple(pool.choose(COLOURS) for _ in numbers)
        return cls(pool.word("city"), tuple(numbers), tuple(pool.sample(numbers, 2)), colours)

    @property
    def shown(self) -> tuple[int, ...]:
        """The numbers of the pictures of the start state."""
        return self.numbers

    def path(self, place: int) -> str:
        return f"{self.folder}/picture {place + 1:02}.png"

    @property
    def places(self) -> list[int]:
        """Where the two are, the first picture is 0."""
        return sorted(self.numbers.index(number) for number in self.chosen)

    async def prepare(self, stage: DesktopStage) -> None:
        for place, number in enumerate(self.shown):
            await stage.write_file(self.path(place), picture(str(number), self.colours[place]))
        await open_window(stage, [VIEWER, self.path(0)], 1, "picture")

    def removed(self) -> tuple[str, ...]:
        return tuple(self.path(place) for place in self.places)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await stage.list_files("")
        return judged(("both are gone", 1.0, not any(path in found for path in self.removed())))

    def oracle(self, hand: OracleActions) -> Work:
        """After one was deleted, the viewer shows the next."""
        one, two = self.places
        yield from self._delete(hand, one)
        yield from self._delete(hand, two - one - 1)

    def second(self, hand: OracleActions) -> Work:
        """By the mouse, backwards. After the last one was deleted, the viewer shows the one before."""
        one, two = self.places
        for back in (len(self.numbers) - two, min(two, len(self.numbers) - 2) - one):
            for _ in range(back):
                yield from hand.click("push button", "=Back")
            yield from hand.click("push button", "=Delete")
            yield from self._confirm(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """One of them, and the next after the other."""
        one, two = self.places
        yield from self._delete(hand, one)
        yield from self._delete(hand, two - one)

    def _delete(self, hand: OracleActions, forward: int) -> Work:
        for _ in range(forward):
            yield from hand.press("right")
        yield from hand.press("delete")
        yield from self._confirm(hand)

    def _confirm(self, hand: OracleActions) -> Work:
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
class NoSuchPictures(Infeasible, DeletePictures):
    """No picture shows any of the numbers."""

    about: ClassVar = About(
        "gpicview-no-such-picture", (VIEWER,), "hard", 1, infeasible=True, twin="gpicview-delete", max_steps=40
    )

    @property
    def shown(self) -> tuple[int, ...]:
        return tuple(number for number in self.numbers if number not in self.chosen)

    def second(self, hand: OracleActions) -> Work:
        """Looks at all pictures first."""
        for _ in self.shown:
            yield from hand.press("right")
        yield from hand.give_up()


TEMPLATES: Final = (DeletePictures, CopyNumbers, NoSuchPictures)
