"""What instances are drawn from: words and numbers. Each split has its own, so no two splits ask the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, TypeVar, get_args

from eval.environments.splits import Split

T = TypeVar("T")
SPLITS: Final[tuple[Split, ...]] = get_args(Split)

_WORDS: Final = {
    "thing": """
        apples baskets candles dishes eggs flour gloves honey ink jars keys lamps milk nails onions paper
        quilts rice soap tea umbrellas vases wool yarn brushes coffee doors envelopes forks glue hinges ice
        juice knives ladders maps needles olives pens radios salt tiles bricks wax cheese bolts cups drums
        figs grapes hammers jam kettles lemons mirrors nuts oats pears ropes shovels
    """,
    "name": """
        Adams Baker Clark Davis Evans Foster Green Harris Irwin Jones Keller Lewis Moore Nolan Owens Parker
        Quinn Reed Smith Turner Underwood Vance Walker Young Abbott Brooks Carter Dixon Ellis Fisher Grant Hughes
        Ingram Jensen Knight Lawson Mason Newton Olsen Porter Ramsey Shaw Tucker Vaughn Weber York Archer Bishop
    """,
    "city": """
        Aachen Bergen Cadiz Dover Essen Florence Geneva Hamburg Izmir Jena Krakow Leiden Malmo Nantes Oslo Porto
        Quito Riga Sofia Turin Utrecht Vienna Warsaw Zagreb Athens Basel Cork Delft Exeter Ghent Helsinki Innsbruck
        Kiel Lyon Madrid Naples Odense Prague Rouen Seville Tampere Verona Bremen Dublin Lisbon
    """,
    "topic": """
        budget calendar delivery entrance festival garden harvest invoice journey kitchen library meeting notes
        orders payroll quality repair schedule training upgrade visitors warehouse exhibits archive bookings
        contract design energy forecast guests hiring insurance journal keynote lease museum network outline
        parking quarter research survey travel utility
    """,
}
KINDS: Final = {kind: tuple(text.split()) for kind, text in _WORDS.items()}


class WordPool:
    """Draws one instance of a template. The same template, split and seed draw the same.

    Words come from a third of each list, and numbers from a third of all numbers, by the split. What comes from
    `choose`, `shuffled` and `chance` is the same for all splits: an instance needs a word or a number besides.
    """

    def __init__(self, template: str, split: Split, seed: int) -> None:
        self._random = random.Random(f"linux-desktop {template} {split} {seed}")
        self._third = SPLITS.index(split)

    def words(self, kind: str, count: int) -> list[str]:
        """Different words of a kind of KINDS."""
        return self._random.sample(KINDS[kind][self._third :: len(SPLITS)], count)

    def word(self, kind: str) -> str:
        return self.words(kind, 1)[0]

    def file(self, ending: str) -> str:
        """A name such as journal-47.txt."""
        return f"{self.word('topic')}-{self.number(10, 99)}.{ending}"

    def folder(self) -> str:
        """A name such as Lisbon-47."""
        return f"{self.word('city')}-{self.number(10, 99)}"

    def number(self, low: int, high: int) -> int:
        """A number from `low` to `high`, of those of the split."""
        return self._random.choice(self._own(low, high))

    def numbers(self, low: int, high: int, count: int) -> list[int]:
        """Different numbers."""
        return self._random.sample(self._own(low, high), count)

    def _own(self, low: int, high: int) -> range:
        """The numbers of the split."""
        return range(low + (self._third - low) % len(SPLITS), high + 1, len(SPLITS))

    def choose(self, among: Sequence[T]) -> T:
        return self._random.choice(among)

    def sample(self, among: Sequence[T], count: int) -> list[T]:
        return self._random.sample(among, count)

    def shuffled(self, among: Sequence[T]) -> list[T]:
        return self._random.sample(among, len(among))

    def whole(self, low: int, high: int) -> int:
        """Any number from `low` to `high`, the same ones for all splits."""
        return self._random.randint(low, high)
