"""Several processes of one training, each with its own device (torchrun): the first one plays the rollouts and decides,
all of them compute.

The first one names an act, and every process runs it at the same time: an act may use torch's collectives, in which all
must take part. Between two acts the others wait. Rows of the loss are divided evenly. A process that has one less than
another computes one more that counts for nothing: TRL and torch compare the shapes of all.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, distributed

from eval.config import ConfigError, exit_code
from training.common.entry import leave
from training.rl.learning.loss_rows import LossRow

T = TypeVar("T")
Measured = tuple[list[Tensor], list[Tensor]]
BEAT: Final = 5.0  # seconds between two beats of the first process while it plays
PATIENCE: Final = timedelta(minutes=30)  # of the others, without a beat
READY: Final = "ready"
FAILED: Final = "failed"


def part(items: Sequence[T], rank: int, count: int) -> Sequence[T]:
    """The items of one process of `count`: all have the same number, or one more."""
    return items[rank * len(items) // count : (rank + 1) * len(items) // count]


def passes(items: Sequence[T], rank: int, count: int, size: int) -> list[tuple[Sequence[T], int]]:
    """The passes of one process of `count`, of `size` items at most, and how many of a pass's items count: all
    processes have the same number of passes, and of items in each, filled up where one has less to do."""
    longest = math.ceil(len(items) / count)
    own = part(items, rank, count)
    filled = [*own, *items[:1]] if len(own) < longest else list(own)
    number = math.ceil(longest / size)
    chunks = [part(filled, at, number) for at in range(number)]
    return [(some, len(some) - (len(own) < longest and at == number - 1)) for at, some in enumerate(chunks)]


class TrainingRanks:
    """The processes of one training, as one of them sees them.

    acts  by name; the first process asks all for them
    """

    def __init__(self, acts: Mapping[str, Callable[..., Any]]) -> None:
        self.rank, self.count = distributed.get_rank(), distributed.get_world_size()
        self.first = self.rank == 0
        self.acts = acts
        # pictures and Python objects do not go through the GPUs' memory
        self.group = distributed.new_group(backend="gloo", timeout=PATIENCE)
        self.told = time.monotonic()
        self.acting = False

    def run(self, act: str, *given: Any) -> Any:
        """Of the first process: all run an act. Gives what it gave here."""
        self._tell((act, given))
        self.acting = True  # stays so after an error
        made = self.acts[act](*given)
        self.acting = False
        return made

    def release(self, ready: Any) -> None:
        """Of the first process: ends the others' `follow`, which gives `ready`."""
        self._tell((READY, ready))

    @contextmanager
    def leading(self, unless: type[Exception]) -> Iterator[None]:
        """Inside, an error of the first process ends the others, too. Not one that all have; and not one within an act,
        in whose collectives the others wait: they end when this process has ended."""
        try:
            yield
        except unless:
            raise
        except Exception as error:
            if not self.acting:
                self._tell((FAILED, exit_code(error) if isinstance(error, ConfigError) else 1))
            raise

    def follow(self) -> Any:
        """Of the others: runs the acts that the first process asks for, until it is ready."""
        while True:
            try:
                act, given = self._hear()
            except RuntimeError as error:  # its connection is closed, or it was silent for too long
                why = str(error).splitlines()[0]
                print(f"process {self.rank} ends: no word from the first process: {why}", file=sys.stderr)
                leave(1)
            if act == READY:
                return given
            if act == FAILED:
                # torchrun ends all others after the first that fails, and that one has to say why
                with suppress(RuntimeError):  # when its connection is closed
                    self._hear()
                leave(given)
            self.acts[act](*given)

    def _tell(self, news: Any) -> None:
        self.told = time.monotonic()
        distributed.broadcast_object_list([news], src=0, group=self.group)

    def _hear(self) -> Any:
        heard: list[Any] = [None]
        distributed.broadcast_object_list(heard, src=0, group=self.group)
        return heard[0]

    @property
    def silent(self) -> bool:
        """Whether the others have waited long enough for a beat."""
        return time.monotonic() - self.told >= BEAT

    def any(self, value: bool) -> bool:
        """Of all at the same time: whether it is true in one of them."""
        flag = torch.tensor(int(value))
        distributed.all_reduce(flag, distributed.ReduceOp.MAX, group=self.group)
        return bool(flag.item())

    def measure(
        self, rows: Sequence[LossRow], size: int, measured: Callable[[Sequence[Sequence[LossRow]]], Measured]
    ) -> Measured:
        """Of all at the same time: what `measured` gives for passes of the rows, a line (T,) for each row. Each process
        measures its part; all get all."""
        mine = passes(rows, self.rank, self.count, size)
        own = sum(counting for _, counting in mine)  # what counts for nothing comes last
        both = tuple([line.cpu() for line in lines[:own]] for lines in measured([some for some, _ in mine]))
        gathered: list[Any] = [None] * self.count
        distributed.all_gather_object(gathered, both, group=self.group)
        return [line for lines, _ in gathered for line in lines], [line for _, lines in gathered for line in lines]
