"""Two or three programs, one of which shows pictures: what they show is written nowhere on the desktop."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import About
from eval.benchmarks.linux_desktop.templates.file_tasks import Files, FileTask, Part, open_editor, shared_out
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, text_of
from eval.benchmarks.linux_desktop.templates.thunar import MANAGER, pick, pick_by_keys
from eval.benchmarks.linux_desktop.templates.thunar_files import details_of, drag_to, name_it, select
from eval.benchmarks.linux_desktop.templates.together import LEFT, renamed_parts, to_manager, write_all
from eval.benchmarks.linux_desktop.templates.viewer import SIZE, VIEWER, picture
from eval.desktops.stage import DesktopStage

SMALL: Final = 22  # pixels of the letters of a chart or a table
BAR: Final = 40


@functools.cache
def chart(labels: tuple[str, ...], values: tuple[int, ...]) -> bytes:
    """A PNG with a bar for each value, and its label below; the values themselves are not written."""

    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (420, 300), "white")
    font = ImageFont.load_default(SMALL)
    draw = ImageDraw.Draw(image)
    for n, (label, value) in enumerate(zip(labels, values, strict=True)):
        left = 25 + n * 100
        draw.rectangle((left, 260 - value, left + BAR, 260), "steelblue", "black")
        draw.text((left + BAR // 2, 280), label, "black", font, anchor="mm")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@functools.cache
def table(rows: tuple[tuple[str, int], ...]) -> bytes:
    """A PNG with a line for each row."""

    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (360, 40 + 40 * len(rows)), "ivory")
    font = ImageFont.load_default(SMALL)
    draw = ImageDraw.Draw(image)
    for n, (label, value) in enumerate(rows):
        draw.text((30, 30 + 40 * n), label, "black", font)
        draw.text((330, 30 + 40 * n), str(value), "black", font, anchor="ra")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@functools.cache
def coloured(colour: str, number: int) -> bytes:
    """A PNG of one colour, but for a point at its corner: so no two files are the same."""

    from PIL import Image

    image = Image.new("RGB", SIZE, colour)
    image.putpixel((0, 0), (number, number, number))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@dataclass(frozen=True)
class NameByPicture(FileTask):
    """Each picture gets the number that it shows as its name."""

    about: ClassVar = About("gpicview-thunar-names", (VIEWER, MANAGER), "hard", 20, max_steps=50)
    asks: ClassVar = (
        "Each of the three pictures in the folder {self.folder} of the home folder shows a number. Rename each: "
        'its new name is its number and .png, as in "7.png".'
    )
    folder: str
    numbers: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.folder(), tuple(pool.numbers(100, 999, 3)))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(f"picture {n}.png", f"{number}.png") for n, number in enumerate(self.numbers, 1)]

    @property
    def before(self) -> Files:
        told = zip(self.pairs, self.numbers, strict=True)
        return {f"{self.folder}/{old}": picture(str(number), "white") for (old, _), number in told}

    @property
    def after(self) -> Files:
        return {f"{self.folder}/{new}": self.before[f"{self.folder}/{old}"] for old, new in self.pairs}

    @property
    def parts(self) -> list[Part]:
        return renamed_parts(self.folder, self.pairs)

    async def open(self, stage: DesktopStage) -> None:
        await open_window(stage, [MANAGER, self.folder], 1, "Thunar", LEFT)
        await open_window(stage, [VIEWER, f"{self.folder}/picture 1.png"], 2, "picture", (700, 60))

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_manager(hand)
        for old, new in self.pairs:
            yield from pick(hand, old)
            yield from name_it(hand, new)

    def second(self, hand: OracleActions) -> Work:
        """Looks at each, and begins with the last."""
        yield from hand.press("right")
        yield from hand.press("right")
        yield from to_manager(hand)
        for old, new in reversed(self.pairs):
            yield from pick_by_keys(hand, old)
            yield from hand.press("ctrl", "2")
            yield from name_it(hand, new)

    def wrong(self, hand: OracleActions) -> Work:
        """The numbers in another order."""
        yield from to_manager(hand)
        names = [new for _, new in self.pairs]
        for (old, _), new in zip(self.pairs, [*names[1:], names[0]], strict=True):
            yield from pick(hand, old)
            yield from name_it(hand, new)


@dataclass(frozen=True)
class MoveByColour(FileTask):
    """The pictures of one colour are moved; their names say nothing."""

    about: ClassVar = About("gpicview-thunar-colour", (VIEWER, MANAGER), "medium", 10)
    asks: ClassVar = (
        "Two pictures in the folder {self.folder} of the home folder are {self.colour} all over. Move these two "
        "into the folder {self.goal}, which is in {self.folder}, and leave the others where they are."
    )
    folder: str
    goal: str
    colour: str
    colours: tuple[str, ...]
    numbers: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        folder, goal = pool.words("city", 2)
        colour, *others = pool.shuffled(["red", "green", "blue", "yellow"])
        colours = pool.shuffled([colour, colour, *others[:2], others[0]])
        return cls(folder, goal, colour, tuple(colours), tuple(sorted(pool.numbers(10, 99, 5))))

    @property
    def names(self) -> list[str]:
        return [f"{number}.png" for number in self.numbers]

    @property
    def wanted(self) -> list[str]:
        return [name for name, colour in zip(self.names, self.colours, strict=True) if colour == self.colour]

    @property
    def before(self) -> Files:
        files = {}
        for name, colour, number in zip(self.names, self.colours, self.numbers, strict=True):
            files[f"{self.folder}/{name}"] = coloured(colour, number)
        return files | {f"{self.folder}/{self.goal}/old.txt": b"old\n"}

    @property
    def after(self) -> Files:
        files = self.before
        for name in self.wanted:
            files[f"{self.folder}/{self.goal}/{name}"] = files.pop(f"{self.folder}/{name}")
        return files

    @property
    def parts(self) -> list[Part]:
        pairs = {name: [f"{self.folder}/{name}", f"{self.folder}/{self.goal}/{name}"] for name in self.wanted}
        return shared_out({f"{name} is moved": pair for name, pair in pairs.items()})

    async def open(self, stage: DesktopStage) -> None:
        await open_window(stage, [MANAGER, self.folder], 1, "Thunar", LEFT)
        await open_window(stage, [VIEWER, f"{self.folder}/{self.names[0]}"], 2, ".png", (700, 60))

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_manager(hand)
        yield from hand.press("ctrl", "2")
        yield from select(hand, self.wanted)
        yield from hand.press("ctrl", "x")
        yield from details_of(hand, f"{self.folder}/{self.goal}")
        yield from hand.press("ctrl", "v")
        for name in self.wanted:
            yield from hand.wait("table cell", f"={name}")

    def second(self, hand: OracleActions) -> Work:
        """Drags them."""
        yield from to_manager(hand)
        yield from hand.press("ctrl", "2")
        for name in self.wanted:
            yield from drag_to(hand, name, self.goal)
            yield from hand.press("ctrl", "r")

    def wrong(self, hand: OracleActions) -> Work:
        """One of another colour."""
        other = next(name for name in self.names if name not in self.wanted)
        yield from to_manager(hand)
        yield from hand.press("ctrl", "2")
        yield from drag_to(hand, other, self.goal)


@dataclass(frozen=True)
class ReadChart(FileTask):
    """The highest and the lowest bar of a chart."""

    about: ClassVar = About("gpicview-editor-chart", (VIEWER, EDITOR), "medium", 4)
    asks: ClassVar = (
        "The viewer shows a chart with a bar for each city. Write two lines into {self.file}, which the editor "
        "shows: the city with the highest bar, then the city with the lowest bar. Save it."
    )
    file: str
    labels: tuple[str, ...]
    values: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        values = pool.shuffled([pool.whole(30, 60), pool.whole(90, 120), pool.whole(150, 180), pool.whole(210, 240)])
        return cls(pool.file("txt"), tuple(pool.words("city", 4)), tuple(values))

    @property
    def before(self) -> Files:
        return {"chart.png": chart(self.labels, self.values), self.file: b""}

    @property
    def answer(self) -> list[str]:
        order = [label for _, label in sorted(zip(self.values, self.labels, strict=True))]
        return [order[-1], order[0]]

    @property
    def after(self) -> Files:
        return self.before | {self.file: text_of(self.answer)}

    async def open(self, stage: DesktopStage) -> None:
        await open_window(stage, [VIEWER, "chart.png"], 1, "chart", (700, 60))
        await open_editor(stage, self.file, count=2, place=LEFT)

    def oracle(self, hand: OracleActions) -> Work:
        yield from write_all(hand, "".join(f"{line}\n" for line in self.answer))

    def second(self, hand: OracleActions) -> Work:
        """Line by line, by the menu."""
        yield from hand.to_window("Mousepad")
        for line in reversed(self.answer):
            yield from hand.press("ctrl", "home")
            yield from hand.type(f"{line}\n")
        yield from hand.menu("File", "=Save      ")

    def wrong(self, hand: OracleActions) -> Work:
        """The other way round."""
        yield from write_all(hand, "".join(f"{line}\n" for line in reversed(self.answer)))


TEMPLATES: Final = (
    NameByPicture,
    MoveByColour,
    ReadChart,
)
