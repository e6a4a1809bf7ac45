"""Preference pairs from people's ratings of answers to the steps of episodes.

A file of ratings is CSV with a header, or JSON lines, with one of two sets of columns (`rater` may be left out). A
spreadsheet's CSV is read as it was written: UTF-8 or UTF-16, with or without a byte order mark, with commas, semicolons
(and decimal commas then) or tabs.

    episode, step, response, rating[, rater]            a number per answer, higher is better
    episode, step, first, second, choice[, rater]       choice: first, second or tie

Or it is JSON, one object, or a list of such with one of each rater:

    {"EPISODE": {"STEP": {"action": ANSWER, "score": NUMBER}}}, with a list of answers where a step has several

`episode` is a folder name. Two answers to a step are a pair when all raters who prefer one of them agree.

Ratings of whole episodes (`episode_ratings`) have the columns episode, rating[, rater]; as JSON they are
{"EPISODE": NUMBER}, or a list of such."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from eval.config import Config, ConfigError
from eval.episodes import MARKER, Episode, EpisodeError, read_episode
from training.data.faults import BadSample, Faults, is_file
from training.data.pairs.maker import Maker, ObservedStep

RATED: Final = frozenset({"episode", "step", "response", "rating"})
CHOSEN: Final = frozenset({"episode", "step", "first", "second", "choice"})
WHOLE: Final = frozenset({"episode", "rating"})
SEPARATORS: Final = ",;\t"
CHOICES: Final = {"first": 1, "second": -1, "tie": 0}


class HumanSource(Config, frozen=True, tag_field="kind", tag="human"):
    """
    ratings   a .csv, .jsonl or .json file, see the module's docstring
    episodes  the folder with the episodes that it names
    """

    ratings: str
    episodes: str


Place = tuple[str, int]  # episode, step
Votes = dict[tuple[str, str], Counter[int]]  # two answers in order of text -> votes: 1 the first is better, -1, 0


def make(source: HumanSource, maker: Maker) -> None:
    """Raises ConfigError."""
    root = Path(source.episodes)
    if not root.is_dir():
        raise ConfigError(f"sources: there is no folder {root}")
    rows = list(_rows(Path(source.ratings), maker.faults))
    votes, position = _votes(rows, maker)
    known: dict[str, Episode] = {}
    for (name, step), answers in votes.items():
        try:
            at = step_of(root, name, step, known)
        except BadSample as fault:
            maker.faults.bad(f"{source.ratings}: {name} step {step}", fault)
            continue
        for (first, second), counts in answers.items():
            if counts[1] and counts[-1]:
                maker.gate.drop("contradictory_ratings")
            elif not counts[1] and not counts[-1]:
                maker.gate.drop("tie")
            else:
                chosen, rejected = (first, second) if counts[1] else (second, first)
                shown_first = position.get((name, step, chosen, rejected))
                note = "" if shown_first is None else f"chosen: {'first' if shown_first else 'second'}"
                maker.pair(at, chosen, rejected, "human", note=note)


def ratings(path: Path, faults: Faults) -> dict[tuple[Place, str], dict[str, float]]:
    """Of each rated answer to a step, the number that each rater gave; the last one of a rater who gave several. Raises
    ConfigError, also for a file of choices."""
    found: dict[tuple[Place, str], dict[str, float]] = {}
    for where, line in _rows(path, faults):
        try:
            if isinstance(line, dict) and "choice" in line:
                raise ConfigError(f"ratings: {path} has choices between answers; allowed: a number for each answer")
            answer = _place(line), _text(line, "response")
            found.setdefault(answer, {})[str(line.get("rater") or "")] = _number(line)
        except BadSample as fault:
            faults.bad(where, fault)
    return found


def episode_ratings(path: Path, faults: Faults) -> dict[str, dict[str, float]]:
    """Of each rated episode, by its folder's name, the number that each rater gave; the last one of a rater who gave
    several. Raises ConfigError."""
    found: dict[str, dict[str, float]] = {}
    for where, line in _rows(path, faults, (WHOLE,)):
        try:
            if not isinstance(line, dict):
                raise BadSample("broken_rating", "a line must be an object")
            found.setdefault(_text(line, "episode"), {})[str(line.get("rater") or "")] = _number(line)
        except BadSample as fault:
            faults.bad(where, fault)
    return found


def _rows(
    path: Path, faults: Faults, allowed: Sequence[frozenset[str]] = (RATED, CHOSEN)
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file:line, row). Raises ConfigError for a file that cannot be read or has none of the sets of columns."""
    text = _read(path)
    if path.suffix.lower() == ".csv":
        yield from _of_csv(text, path, allowed)
        return
    if path.suffix.lower() == ".json":
        yield from _whole_of_json(text, path) if WHOLE in allowed else _of_json(text, path)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError as error:
            faults.bad(f"{path}:{number}", BadSample("broken_rating", str(error)))
            continue
        if number == 1 and isinstance(data, dict):
            _columns(list(data), f"{path}:1", allowed)
        yield f"{path}:{number}", data


def _read(path: Path) -> str:
    """The text of a file that a spreadsheet or a program wrote: UTF-16 by its byte order mark or by its zeros (ASCII
    has them in every other byte), else UTF-8. Raises ConfigError."""
    try:
        data = path.read_bytes()
        if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return data.decode("utf-16")
        if data[1:2] == b"\0" or data[:1] == b"\0":
            return data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-16-be")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"ratings: {path}: neither UTF-8 nor UTF-16: {error}; save it as CSV UTF-8") from None
    except OSError as error:
        raise ConfigError(f"ratings: {path}: {error}") from None


def _of_csv(text: str, path: Path, allowed: Sequence[frozenset[str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file:line, row) of a CSV, whose header says what separates its columns. Raises ConfigError."""
    head, _, rest = text.partition("\n")
    skipped = 0
    if head.strip().strip('"').lower().startswith("sep="):  # a line for spreadsheets alone
        text, skipped = rest, 1
    header = text.partition("\n")[0]
    separator = max(SEPARATORS, key=header.count)
    rows = _csv_rows(text, separator, path, skipped)
    names = [name.strip() for name in next(rows, (1, [""]))[1]]
    _columns(names, str(path), allowed)
    for number, values in rows:
        if not any(value.strip() for value in values):
            continue
        if len(values) < len(names) and "\n" in values[-1]:
            raise ConfigError(f"ratings: {path}:{number}: a quote that begins in this line has no end")
        row: dict[str, Any] = dict(zip(names, values, strict=False))
        if separator == ";" and "rating" in row:  # where semicolons separate, numbers have a decimal comma
            row["rating"] = row["rating"].replace(",", ".")
        yield f"{path}:{number}", row


def _csv_rows(text: str, separator: str, path: Path, skipped: int) -> Iterator[tuple[int, list[str]]]:
    """(the line in which it begins, its values) of each row. Raises ConfigError."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    number = 1 + skipped
    try:
        for values in reader:
            yield number, values
            number = reader.line_num + 1 + skipped
    except csv.Error as error:
        raise ConfigError(f"ratings: {path}:{number}: {error}; is there a quote without an end?") from None


def _of_json(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file: place, row) of nested ratings. Raises ConfigError for a file of another shape."""
    form = '{"EPISODE": {"STEP": {"action": ANSWER, "score": NUMBER}}}, or a list of such'
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"ratings: {path}: {error}") from None
    for rater, by_episode in enumerate(data if isinstance(data, list) else [data]):
        if not isinstance(by_episode, dict) or not all(isinstance(each, dict) for each in by_episode.values()):
            raise ConfigError(f"ratings: {path}: allowed: {form}")
        for episode, by_step in by_episode.items():
            for step, answers in by_step.items():
                for each in answers if isinstance(answers, list) else [answers]:
                    if not isinstance(each, dict) or set(each) != {"action", "score"}:
                        raise ConfigError(f"ratings: {path}: {episode}: {step}: {each!r}; allowed: {form}")
                    found = {"episode": episode, "step": step, "response": each["action"], "rating": each["score"]}
                    yield f"{path}: {episode}: {step}", {**found, "rater": str(rater)}


def _whole_of_json(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """As `_of_json`, of ratings of whole episodes."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"ratings: {path}: {error}") from None
    for rater, by_episode in enumerate(data if isinstance(data, list) else [data]):
        if not isinstance(by_episode, dict):
            raise ConfigError(f'ratings: {path}: allowed: {{"EPISODE": NUMBER}}, or a list of such')
        for episode, rating in by_episode.items():
            yield f"{path}: {episode}", {"episode": episode, "rating": rating, "rater": str(rater)}


def _columns(names: list[str], where: str, allowed: Sequence[frozenset[str]]) -> None:
    if set(names) - {"rater"} not in allowed or len(set(names)) < len(names):
        # what looks like another name is told apart
        told = ", ".join(sorted(name if name.isascii() and name.isprintable() else ascii(name) for name in names))
        forms = "episode, step, response, rating, or episode, step, first, second, choice"
        raise ConfigError(
            f"ratings: {where} has the columns {told or 'none'}; allowed: "
            f"{'episode, rating' if WHOLE in allowed else forms}; and rater"
        )


def _votes(
    rows: list[tuple[str, dict[str, Any]]], maker: Maker
) -> tuple[dict[Place, Votes], dict[tuple[str, int, str, str], bool]]:
    """The votes by place; and for choices, whether the chosen answer was shown first."""
    votes: dict[Place, Votes] = {}
    position: dict[tuple[str, int, str, str], bool] = {}
    given: dict[tuple[Place, str], dict[str, set[float]]] = {}  # (place, rater) -> response -> ratings
    for where, row in rows:
        try:
            place = _place(row)
            if "choice" in row:
                first, second, choice = (_text(row, name) for name in ("first", "second", "choice"))
                if choice not in CHOICES:
                    raise BadSample("broken_rating", f"choice is {choice!r}; allowed: {', '.join(CHOICES)}")
                _vote(votes, place, first, second, CHOICES[choice])
                if choice != "tie":
                    pair = (first, second) if choice == "first" else (second, first)
                    position[(*place, *pair)] = choice == "first"
            else:
                response, rating = _text(row, "response"), _number(row)
                by_response = given.setdefault((place, str(row.get("rater") or "")), {})
                by_response.setdefault(response, set()).add(rating)
        except BadSample as fault:
            maker.faults.bad(where, fault)
    for (place, _), answers in given.items():
        once = {}
        for response, ratings in answers.items():
            if len(ratings) > 1:  # a rater rated an answer twice, differently
                maker.gate.drop("contradictory_ratings")
            else:
                once[response] = next(iter(ratings))
        for (a, x), (b, y) in itertools.combinations(once.items(), 2):
            _vote(votes, place, a, b, (x > y) - (x < y))
    return votes, position


def _vote(votes: dict[Place, Votes], place: Place, first: str, second: str, vote: int) -> None:
    if first > second:
        first, second, vote = second, first, -vote
    votes.setdefault(place, {}).setdefault((first, second), Counter())[vote] += 1


def _place(row: Any) -> Place:
    """Raises BadSample."""
    if not isinstance(row, dict):
        raise BadSample("broken_rating", "a line must be an object")
    try:
        return _text(row, "episode"), int(str(row.get("step")))
    except ValueError:
        raise BadSample("broken_rating", f"step must be a whole number, not {row.get('step')!r}") from None


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadSample("broken_rating", f"{name} must be a text, not {value!r}")
    return value


def _number(row: dict[str, Any]) -> float:
    try:
        value = float(str(row.get("rating")))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadSample("broken_rating", f"rating must be a finite number, not {row.get('rating')!r}")
    return value


def step_of(root: Path, name: str, step: int, known: dict[str, Episode]) -> ObservedStep:
    """Raises BadSample for an episode or a step that is not there."""
    folder = root / name
    if Path(name).name != name or not is_file(folder / MARKER):
        raise BadSample("unknown_episode", f"there is no episode {folder}")
    try:
        episode = known.get(name) or known.setdefault(name, read_episode(folder))
    except EpisodeError as error:
        raise BadSample("broken_episode", str(error)) from None
    if not 0 <= step < len(episode.steps):
        raise BadSample("unknown_step", f"{folder} has the steps 0 to {len(episode.steps) - 1}")
    return ObservedStep(folder, episode, step)
