"""Checks candidate pairs, removes duplicates and contradictions, assigns splits, and reports the balance.

Candidates are spooled to disk, because contradictions and splits are known only after the last of them; then the final
file is written. Memory holds a digest per pair, and the names of its task and images.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.actions import ParseError
from eval.actions.dialects.base import Dialect, read_answer
from eval.prompts.tokens import control_token
from eval.prompts.wording import control_tokens
from training.data.faults import BadSample, Faults
from training.data.pairs.store import IMAGES, PAIRS, Pair, PairThumbnails, digest
from training.data.similar_images import ThumbnailIndex

SPOOL: Final = ".candidates.jsonl"
MALFORMED: Final = "malformed"  # in the balance: the action type of a text without an action


class Components:
    """Connected names (union-find): tasks and images that a pair connects must be in the same split."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        """The component's name: its smallest member, so that it does not depend on the order of input."""
        root = name
        while (parent := self._parent.setdefault(root, root)) != root:
            root = parent
        while (parent := self._parent[name]) != root:
            self._parent[name], name = root, parent
        return root

    def join(self, *names: str) -> None:
        first, *rest = sorted({self.find(name) for name in names})
        for name in rest:
            self._parent[name] = first


class Gate:
    """Collects candidates and writes `pairs.jsonl` at the end. A context that closes its spool.

    test_share  of the components (see `Pair.split_key`) that go to the split `test`
    """

    def __init__(self, folder: Path, dialect: Dialect, faults: Faults, test_share: float = 0.0) -> None:
        self.folder = folder
        self.dialect = dialect
        self.faults = faults
        self.test_share = test_share
        self.dropped: Counter[str] = Counter()  # pairs without a fault: ties, duplicates, contradictions
        self._kept: dict[bytes, tuple[int, bool]] = {}  # unordered pair -> (its line, whether its first text is chosen)
        self._contradicted: set[bytes] = set()
        self._components = Components()
        self._learned: dict[str, set[tuple[str, tuple[str, ...]]]] = {}  # prompt and better answer -> tasks, images
        self._thumbnails = PairThumbnails(folder)
        self._looks = ThumbnailIndex(self._components.find)
        self._lines = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._spool = (folder / SPOOL).open("wb")

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    def drop(self, reason: str) -> None:
        """Counts a candidate that its source dropped."""
        self.dropped[reason] += 1

    def add(self, pair: Pair, where: str) -> None:
        """Raises ConfigError for an unusable pair under the policy `fail`."""
        try:
            self._check(pair)
        except BadSample as fault:
            self.faults.bad(where, fault)
            return
        self._components.join(f"task {pair.task_id}", *(f"image {name}" for name in pair.images))
        self._join_similar(pair)
        texts = sorted((self.meaning(pair.chosen), self.meaning(pair.rejected)))
        key = hashlib.sha256(digest([pair.asked(), texts]).encode()).digest()[:16]
        first = self.meaning(pair.chosen) == texts[0]
        if (known := self._kept.get(key)) is not None:
            if known[1] == first:
                self.drop("duplicate")
            else:
                self.drop("contradiction")
                self._contradicted.add(key)
            return
        self._kept[key] = (self._lines, first)
        self._lines += 1
        self._spool.write(msgspec.json.encode(pair) + b"\n")

    def _join_similar(self, pair: Pair) -> None:
        """Pairs that teach the same on images that look alike must be in the same split."""
        known = self._learned.setdefault(key := pair.learned(), set())
        if (one := (pair.task_id, tuple(pair.images))) in known:
            return
        known.add(one)
        if len(known) == 1:
            return  # its images are opened when another teaches the same
        for task, images in known if len(known) == 2 else (one,):
            if (look := self._thumbnails.look(images)) is None:
                continue
            for other in self._looks.near(key, f"task {task}", look):
                self._components.join(f"task {task}", other)
            self._looks.add(key, f"task {task}", look)

    def _check(self, pair: Pair) -> None:
        """Raises BadSample."""
        for side in (pair.chosen, pair.rejected):
            if token := control_token(side, control_tokens(self.dialect)):
                raise BadSample("special_token", f"an answer holds {token}")
        try:
            chosen = read_answer(self.dialect.parse_response, pair.chosen)
        except ParseError as error:
            raise BadSample("unparsable_chosen", f"{pair.chosen[:80]!r}: {error}") from None
        if pair.chosen.strip() == pair.rejected.strip():
            raise BadSample("equal_sides", pair.chosen[:80])
        try:
            rejected = read_answer(self.dialect.parse_response, pair.rejected)
        except ParseError:
            return
        if chosen == rejected:
            raise BadSample("equal_sides", f"{pair.chosen[:80]!r} and {pair.rejected[:80]!r} are the same answer")

    def meaning(self, text: str) -> str:
        """The key of equal answers: action and thought; for a text without an action, the text."""
        try:
            response = read_answer(self.dialect.parse_response, text)
        except ParseError:
            return f"text {text.strip()}"
        return f"action {digest([response.thought, response.action.to_json()])}"

    def close(self) -> dict[str, Any]:
        """Writes the pairs without contradiction, with their splits; returns the balance report."""
        self._spool.close()
        gone = {self._kept[key][0] for key in self._contradicted}
        self.dropped["contradiction"] += len(gone)
        balance = Balance(self.dialect)
        with (self.folder / SPOOL).open("rb") as spool, (self.folder / PAIRS).open("wb") as out:
            for number, line in enumerate(spool):
                if number in gone:
                    continue
                pair = msgspec.json.decode(line, type=Pair)
                key = digest(self._components.find(f"task {pair.task_id}"))[:16]
                pair = msgspec.structs.replace(pair, split_key=key, split=split_of(key, self.test_share))
                balance.add(pair)
                out.write(msgspec.json.encode(pair) + b"\n")
            out.flush()
            os.fsync(out.fileno())
        (self.folder / SPOOL).unlink()
        for path in (self.folder / IMAGES).glob("*.png"):
            if f"{IMAGES}/{path.name}" not in balance.images:
                path.unlink()  # only dropped pairs used it
        return {
            **balance.report(),
            "dropped": dict(sorted((name, count) for name, count in self.dropped.items() if count)),
            "faults": self.faults.report(),
        }


def split_of(key: str, test_share: float) -> Any:
    """`test` for that share of all keys, the same on every machine, else `train`."""
    place = int.from_bytes(hashlib.sha256(f"split {key}".encode()).digest()[:8], "big") / 2**64
    return "test" if place < test_share else "train"


class Balance:
    """Counts over kept pairs that show biases a model could learn instead of quality: types, lengths, positions."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.by: dict[str, Counter[str]] = {name: Counter() for name in ("source", "split", "types", "step", "note")}
        self.longer: Counter[str] = Counter()
        self.difference = 0
        self.keys: dict[str, Counter[str]] = {"train": Counter(), "test": Counter()}
        self.tasks: set[str] = set()
        self.images: set[str] = set()

    def add(self, pair: Pair) -> None:
        difference = len(pair.chosen) - len(pair.rejected)
        self.difference += difference
        self.longer["chosen" if difference > 0 else "rejected" if difference < 0 else "equal"] += 1
        self.by["source"][pair.source] += 1
        self.by["split"][pair.split] += 1
        self.by["types"][f"{self._type(pair.chosen)} > {self._type(pair.rejected)}"] += 1
        self.by["step"][str(pair.step)] += 1
        if pair.note:
            self.by["note"][pair.note] += 1
        self.keys[pair.split][pair.split_key] += 1
        self.tasks.add(pair.task_id)
        self.images.update(pair.images)

    def _type(self, text: str) -> str:
        try:
            return read_answer(self.dialect.parse_response, text).action.type.value
        except ParseError:
            return MALFORMED

    def report(self) -> dict[str, Any]:
        """The counts. Lengths are in characters, difference = chosen - rejected; `components` has the number of units
        that a split keeps together, and the largest one's share of the pairs."""
        total = sum(self.longer.values())
        components = self.keys["train"] + self.keys["test"]
        position = {side: self.by["note"][f"chosen: {side}"] for side in ("first", "second")}
        return {
            "pairs": total,
            "tasks": len(self.tasks),
            "images": len(self.images),
            **{f"by_{name}": dict(sorted(counts.items())) for name, counts in self.by.items()},
            "length": {
                "mean_difference": self.difference / total if total else None,
                "share_chosen_longer": self.longer["chosen"] / total if total else None,
                "share_rejected_longer": self.longer["rejected"] / total if total else None,
            },
            "position": {
                **position,
                "share_first_chosen": position["first"] / n if (n := sum(position.values())) else None,
            },
            "components": {
                "count": len(components),
                "largest_share": max(components.values()) / total if total else None,
            },
        }
