"""Runs the lines of docs/project/unverified.md that this machine's card and packages can show; writes a dated table.

    tools/verify-gpu [--dry-run] [--minutes 10] [--out FILE] [LINE ...]

The page is the only list: its table says the command, what it needs, how many minutes it may take, and, between
backticks, the texts that its output must have. A need that is no number of cards, no size and no package or program is
somebody's to bring: such a line is listed and not run. Nothing is installed or downloaded by this script.

Exit code: 0, or 1 when a line did not show what it should, or 2 for wrong words and a machine without a card.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/project/unverified.md"
FOLDER: Final = ROOT / "build/verify-gpu"
QUERY: Final = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
VERSIONS: Final = ("torch", "transformers", "trl", "peft", "vllm", "unsloth", "deepspeed", "bitsandbytes")
ROUNDING: Final = 0.95  # what the driver keeps of a card that is sold as 24 GB


class Unusable(Exception):
    """Nothing can be run here; the text says why, and what to do."""


@dataclass(frozen=True)
class Line:
    """A line of the checklist. `minutes` is the time that it may take."""

    name: str
    command: str
    needs: str
    minutes: float
    shows: str

    @property
    def texts(self) -> list[str]:
        """What its output must have; the words after a semicolon are for people."""
        return re.findall(r"`([^`]+)`", self.shows.partition(";")[0])


@dataclass(frozen=True)
class Card:
    """A card as nvidia-smi names it. `memory` in GB."""

    name: str
    memory: float
    driver: str


@dataclass(frozen=True)
class Outcome:
    """What came of a line: shown, not shown or not run, and why."""

    line: Line
    how: str
    why: str
    seconds: float | None = None


def lines(page: str) -> list[Line]:
    """The lines for a card. Raises Unusable when the page has no such table."""
    table = page.partition("### To close them")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\) \| ", row.strip("| \n")) for row in re.findall(r"^\| G\d+ \|.*$", table, re.MULTILINE)]
    if not rows:
        raise Unusable(f"{PAGE.relative_to(ROOT)}: has no table of lines for a card below `To close them`")
    return [
        Line(name, command.strip("`"), needs, float(minutes), shows.replace("\\|", "|"))
        for name, command, needs, minutes, shows in rows
    ]


def cards() -> list[Card]:
    """The cards of this machine. Raises Unusable when the driver names none."""
    try:
        asked = subprocess.run(QUERY, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        raise Unusable("nvidia-smi: is not on the PATH: install NVIDIA's driver") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unusable(f"nvidia-smi: {error}") from None
    found = [re.split(r"\s*,\s*", row.strip()) for row in asked.stdout.splitlines() if row.strip()]
    if asked.returncode or not found:
        raise Unusable(f"nvidia-smi: {(asked.stdout + asked.stderr).strip() or 'names no card'}")
    try:
        # MiB of the card's memory, as GB
        return [Card(name, float(memory) * 2**20 / 1e9, driver) for name, memory, driver in found]
    except ValueError:
        raise Unusable(f"nvidia-smi: cannot be understood: {asked.stdout.strip()!r}") from None


def there(name: str) -> bool:
    """Whether a package can be imported by this Python, or a program is on the PATH."""
    return importlib.util.find_spec(name) is not None or shutil.which(name) is not None


def lacks(line: Line, found: Sequence[Card]) -> list[str]:
    """What of its needs is not here, in the page's words."""
    wanting, missing = 0.0, []
    for need in line.needs.split(", "):
        if number := re.fullmatch(r"(\d+) cards?", need):
            if len(found) < int(number[1]):
                missing.append(need)
        elif size := re.fullmatch(r"(\d+) GB", need):
            wanting = float(size[1])
        elif name := re.fullmatch(r"`([\w+-]+)`", need):
            if not there(name[1]):
                missing.append(need)
        else:
            missing.append(need)
    if wanting and not any(card.memory >= wanting * ROUNDING for card in found):
        missing.append(f"{wanting:.0f} GB")
    return missing


def run(line: Line, seconds: float, log: Path) -> Outcome:
    """Runs its command for at most `seconds`; all that it prints goes to `log`."""
    words = shlex.split(line.command)
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environ[name] = value
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), str(ROOT)]))
    if words[0] == "python":
        words[0] = sys.executable
    began = time.monotonic()
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                words, cwd=ROOT, env=environ, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            return Outcome(line, "not shown", str(error), 0.0)
        try:
            code = process.wait(timeout=seconds)
            ended = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            ended = f"did not end in {seconds:.0f} s"
        finally:
            # what it started as well: a server that stays would hold the card's memory
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    took = time.monotonic() - began
    printed = log.read_text(encoding="utf-8", errors="replace")
    absent = [text for text in line.texts if text not in printed]
    if not ended and absent:
        ended = "did not print " + ", ".join(f"`{text}`" for text in absent)
    if not ended:
        return Outcome(line, "shown", line.shows, took)
    last = next((text.strip() for text in reversed(printed.splitlines()) if text.strip()), "nothing")
    return Outcome(line, "not shown", f"{ended}; last line: {last[:200]}", took)


def table(outcomes: Sequence[Outcome], found: Sequence[Card], day: datetime.datetime, commit: str) -> str:
    """The dated table, as Markdown."""

    def one(text: str) -> str:
        return text.replace("|", "\\|").replace("\n", " ")

    packages = []
    for name in VERSIONS:
        with suppress(PackageNotFoundError):
            packages.append(f"{name} {version(name)}")
    text = [f"# Lines for one card, {day:%Y-%m-%d %H:%M} UTC", ""]
    text += [f"- {card.name}, {card.memory:.0f} GB, driver {card.driver}" for card in found]
    text += [f"- Slipway at {commit}; Python {sys.version.split()[0]}; {', '.join(packages) or 'none of the packages'}"]
    text += ["", "| line | outcome | seconds | command | what was seen, or what it needs |", "|---|---|---:|---|---|"]
    for done in outcomes:
        seconds = "" if done.seconds is None else f"{done.seconds:.0f}"
        text.append(f"| {done.line.name} | {done.how} | {seconds} | `{one(done.line.command)}` | {one(done.why)} |")
    return "\n".join(text) + "\n"


def revision() -> str:
    asked = subprocess.run(
        ("git", "rev-parse", "--short=12", "HEAD"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "an unknown commit"


def chosen(names: Sequence[str], known: Sequence[Line]) -> list[Line]:
    if unknown := [name for name in names if name not in {line.name for line in known}]:
        raise Unusable(f"{unknown[0]}: is no line; allowed: {', '.join(line.name for line in known)}")
    return [line for line in known if not names or line.name in names]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/verify-gpu", description="The lines that one card can close.")
    parser.add_argument("--dry-run", action="store_true", help="say what would be run; run and write nothing")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all lines together (default: 10)")
    parser.add_argument("--out", type=Path, help="the table's file (default: build/verify-gpu/TIME.md)")
    parser.add_argument("lines", nargs="*", metavar="LINE", help="only these: G2 G16")
    asked = parser.parse_args(argv)
    try:
        known = chosen(asked.lines, lines(PAGE.read_text(encoding="utf-8")))
        try:
            found = cards()
        except Unusable as error:
            if not asked.dry_run:
                raise
            print(f"verify-gpu: {error}", file=sys.stderr)
            found = []
    except Unusable as error:
        print(f"verify-gpu: {error}", file=sys.stderr)
        return 2
    left, day = asked.minutes * 60, datetime.datetime.now(datetime.UTC)
    file = asked.out or FOLDER / f"{day:%Y%m%dT%H%M%SZ}.md"
    outcomes = []
    for line in known:
        if missing := lacks(line, found):
            outcomes.append(Outcome(line, "not run", f"needs {', '.join(missing)}"))
        elif line.minutes * 60 > left:
            outcomes.append(Outcome(line, "not run", f"may take {line.minutes:g} minutes, {left / 60:.1f} are left"))
        elif asked.dry_run:
            outcomes.append(Outcome(line, "would run", line.command))
            left -= line.minutes * 60
        else:
            logs = file.with_suffix("")
            logs.mkdir(parents=True, exist_ok=True)
            outcomes.append(run(line, line.minutes * 60, logs / f"{line.name}.log"))
            left -= outcomes[-1].seconds or 0.0
        print(f"{line.name:4} {outcomes[-1].how}: {outcomes[-1].why}", flush=True)
    if not asked.dry_run:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(table(outcomes, found, day, revision()), encoding="utf-8")
        print(f"the table: {file}")
    return 1 if any(done.how == "not shown" for done in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
