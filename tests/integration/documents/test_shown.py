"""Every command that a user is told to type has a verb, options and files that exist; the real parsers read it."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from eval.actions.dialects.dsl import Dsl
from launcher.cli import VERBS, arguments, usage
from tests.support.documented import FILLED, ROOT, Shown, blocks, hints, in_comments, inline, tracked
from training.data.__main__ import VERBS as DATA_VERBS

MARKDOWN = tracked("*.md")
COMMENTED = tracked("examples/*.yaml", "k8s/*.yaml", "k8s/*.sh", "images/*/Dockerfile", "slipway.yaml", "Makefile")
SOURCES = tracked("launcher/*.py", "training/*.py", "eval/*.py")
SKIPPED = ("docs/explanation/architecture.md",)  # nothing to type: it tells of verbs
_PATHS = re.compile(r"(?<![\w/.~-])(?:examples|k8s|tests|tools)/[\w./-]*\w")
FOLDERS = re.compile(r"(?:\./)?(?:examples|k8s|docs|images|tools|tests)(?:/|$)")


def shown() -> Iterator[Shown]:
    for path in MARKDOWN:
        for block in blocks(path):
            for one in block:
                yield from _simple(one)
        for one in inline(path):
            yield from _simple(one)
    for path in COMMENTED:
        for one in (*inline(path), *in_comments(path)):
            yield from _simple(one)
    for path in SOURCES:
        for one in hints(path):
            yield from _simple(one)
    for line in usage().splitlines():
        if "example:" in line:
            yield Shown("launcher --help", line.partition("example: ")[2])


def _simple(one: Shown) -> Iterator[Shown]:
    """The simple commands of a line: what stands between `&&`, `;`, `|` and columns of two and more spaces."""
    # not within quotes
    for part in re.split(r"""\s*(?:&&|\|\||;|\||\s{2,})\s*(?=(?:[^"']|"[^"]*"|'[^']*')*$)""", one.line):
        if part.strip():
            yield Shown(one.place, part.strip(), one.mark)


def argv(line: str) -> list[str]:
    """A line of a document as a shell would split it: optional parts given, places filled in."""
    line = re.sub(r"\[(-{1,2}[^\]]*)\]", r"\1", line)  # [--role R]
    line = re.sub(r"\[([A-Z]+)(?:\.\.\.)?\]|([A-Z]+)\.\.\.", r"\1\2", line)  # [NAME...] FILE...
    line = line.replace(" ...", "").replace("RUN|GROUP", "RUN")
    words = Shown("", line).words
    numbers = {"N": "1", "PORT": "80", "LOCAL:PORT": "80:80", "DURATION": "1h"}
    return [numbers.get(word, word) for word in words]


@cache
def parser(verb: str) -> argparse.ArgumentParser:
    return arguments.parser(verb, VERBS[verb][0])


def fault(one: Shown) -> str:
    """What is wrong with a command, or nothing."""
    words = argv(one.line)
    if not words:
        return ""
    program = words[0].rpartition("/")[2]
    if program == "launcher":
        return _launcher(one, words[1:])
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        unknown = [word for word in words[1:] if not word.startswith("-") and "=" not in word and word not in targets]
        return f"no target {unknown}" if unknown else ""
    if program == "python" and words[1:2] == ["-m"]:
        if words[2] == "training.data" and words[3:4] not in ([], ["VERB"]) and words[3] not in DATA_VERBS:
            return f"training.data has no verb {words[3]}"
        return "" if _module(words[2]) else f"no module {words[2]}"
    if program == "pip":
        extras = re.findall(r"slipway\[([a-z,]+)\]", one.line)
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        unknown = [extra for named in extras for extra in named.split(",") if extra not in known]
        return f"no extra {unknown}" if unknown else ""
    return ""


def _launcher(one: Shown, words: list[str]) -> str:
    if not words or words[0] in ("VERB", "--help", "--version") or FILLED in words[0]:
        return ""
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        return f"no verb `{verb}`"
    missing = [word for word in rest if FOLDERS.match(word) and "*" not in word and not (ROOT / word).exists()]
    if missing and verb != "init":
        return f"{missing} is not there"
    if not rest:  # the verb is spoken of
        return ""
    try:
        parser(verb).parse_args(rest)
    except SystemExit as error:
        return "" if error.code == 0 else f"launcher {verb} does not take {rest}"
    return ""


def _module(name: str) -> bool:
    try:
        return name in ("pytest", "smoke") or find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def is_prose(one: Shown) -> bool:
    """A sentence of a literal that begins with the launcher: `launcher reads up to ...`."""
    words = one.line.split()
    return one.place.partition(":")[0].endswith(".py") and len(words) > 1 and words[1] not in VERBS


def test_there_are_commands_of_every_kind() -> None:
    found = list(shown())
    kinds = {one.place.partition(":")[0].rpartition(".")[2] for one in found}
    assert {"md", "yaml", "py"} <= kinds
    assert len(found) > 200


def test_every_command_that_is_shown_can_be_parsed(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for one in shown():
        if one.place.partition(":")[0] in SKIPPED or is_prose(one):
            continue
        try:
            why = fault(one)
        except ValueError as error:  # a quote that is never closed
            why = str(error)
        if why:
            wrong.append(f"{one.place}: {one.line}\n    {why}")
    capsys.readouterr()
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_example_of_every_verb_is_of_that_verb(verb: str) -> None:
    text = parser(verb).format_help()
    assert f"launcher {verb}" in text.partition("example:")[2]


def test_every_script_that_is_named_can_be_started() -> None:
    for path in tracked("*.sh"):
        text = path.read_text(encoding="utf-8")
        named = any(path.name in other.read_text(encoding="utf-8") for other in MARKDOWN)
        if named and text.startswith("#!"):
            assert path.stat().st_mode & 0o111, f"{path.relative_to(ROOT)} is shown to users and cannot be executed"


def test_a_command_that_does_not_exist_is_found() -> None:
    """The test itself can fail."""
    for line in ("launcher sumbit x", "launcher logs RUN --folow", "launcher render examples/nothing", "make demmo"):
        assert fault(Shown("x", line))
    assert fault(Shown("x", "pip install 'slipway[nothing]'"))
    assert fault(Shown("x", "python -m training.nothing"))
    assert fault(Shown("x", "python -m training.data look"))
    assert not fault(Shown("x", "launcher logs RUN --follow | less"))


def test_every_module_that_is_shown_takes_its_options() -> None:
    """`python -m training.x --help` names every option that a document gives it."""
    wanted: dict[str, set[str]] = {}
    places: dict[str, str] = {}
    for path in MARKDOWN:
        for one in (*(one for block in blocks(path) for one in block), *inline(path)):
            words = argv(one.line)
            if len(words) > 2 and words[0].endswith("python") and words[1] == "-m":
                module = words[2]
                if module.startswith(("training.", "eval.")) and module != "training.data":
                    if module == "eval.osworld" and len(words) > 3 and not words[3].startswith("-"):
                        module = f"{module} {words[3]}"  # its verbs have options of their own
                    options = {word.partition("=")[0] for word in words[3:] if word.startswith("--")}
                    wanted.setdefault(module, set()).update(options)
                    places.setdefault(module, one.place)
    assert wanted
    for module, options in wanted.items():
        done = subprocess.run(
            [sys.executable, "-m", *module.split(), "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{places[module]}: {module}\n{done.stderr}"
        absent = {option for option in options if option not in done.stdout}
        assert not absent, f"{places[module]}: {module} has no {absent}"


def test_the_paths_that_examples_name_are_there() -> None:
    for path in (*MARKDOWN, *COMMENTED):
        for name in re.findall(
            r"(?<![\w/.~-])(?:examples|k8s|tests|tools)/[\w./-]*\w", path.read_text(encoding="utf-8")
        ):
            assert (ROOT / name).exists() or Path(name).suffix == "", f"{path.relative_to(ROOT)}: {name} is not there"


def test_what_the_readme_says_that_the_agent_answers_is_what_is_parsed() -> None:
    """`CLICK(x=0.43, y=0.61)` alone is a failure of the format."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    answers = re.findall(r"`((?:Action: )?[A-Z]+\([^`]*\))`", text)
    assert len(answers) >= 3
    for answer in answers:
        assert Dsl().parse_response(answer)
