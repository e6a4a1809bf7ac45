"""Names of ours that users type or write into jobs: each `python -m` name starts, each documented import path resolves.

A module may move to another room; these names stay. PROMISED is the list; what documents, examples, images, manifests
and installed units use is collected besides, so that a new name is checked without an entry here.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests.support.cases import every_case
from tests.support.documented import ROOT, tracked

# jobs in users' repositories and in stores hold these: none may go
PROMISED: Final = (
    "eval.agentnetbench",
    "eval.osworld",
    "eval.replay",
    "eval.run",
    "eval.screenspot",
    "eval.serve",
    "eval.steps",
    "eval.tryout",
    "launcher.runtime",
    "training.compare_raters",
    "training.data",
    "training.dpo",
    "training.export",
    "training.grpo",
    "training.make_episodes",
    "training.merge",
    "training.plan",
    "training.push_to_hub",
    "training.reference",
    "training.reward",
    "training.rl",
    "training.sft",
    "training.tiny",
)
NO_HELP: Final = ("launcher.runtime", "training.reference")  # read the environment, print a page
USED_IN: Final = ("*.md", "examples/*", "images/*", "k8s/*", "Makefile", ".ci/*", ".github/*", "launcher/*.py")
PAST: Final = "CHANGELOG.md"  # it names modules as they were called in a version
OURS: Final = r"(?:launcher|training|eval|tests|tools)(?:\.[a-z_]\w*)*"
RUN: Final = re.compile(rf"""-m["',\s]+({OURS})(?![\w/])""")
# `training.rewards.builtin.BUILTINS` in a document, a docstring or a help text; files (training.md) are no module
DOTTED: Final = re.compile(r"(?<![\w./-])((?:training|eval)(?:\.[A-Za-z_]\w*)+)(?![\w/]|\.\w)")
OBJECT: Final = re.compile(r"(?<![\w./-])((?:launcher|training|eval|tests|examples)(?:\.\w+)*):([A-Za-z_]\w*)\b")


def text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""  # a picture


def documents(*patterns: str) -> list[Path]:
    return [path for path in tracked(*patterns) if path.relative_to(ROOT).as_posix() != PAST]


@cache
def run_names() -> dict[str, str]:
    """`python -m` name -> the first file that uses it."""
    names = dict.fromkeys(PROMISED, "tests/integration/test_entry_points.py")
    for path in documents(*USED_IN):
        for match in RUN.finditer(text(path)):
            names.setdefault(match[1], path.relative_to(ROOT).as_posix())
    return names


@cache
def documented_names() -> dict[str, str]:
    """Dotted names in documents, and in strings and docstrings of training and eval -> the first file that has it."""
    names: dict[str, str] = {}
    for path in documents("*.md", "training/*.py", "eval/*.py"):
        texts = [text(path)]
        if path.suffix == ".py":
            nodes = ast.walk(ast.parse(texts[0]))
            texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        for match in (match for part in texts for match in DOTTED.finditer(part)):
            if match[1].rpartition(".")[2] not in ("md", "yaml", "json", "py", "x"):  # `from eval.x import y`
                names.setdefault(match[1], path.relative_to(ROOT).as_posix())
    return names


@cache
def defined(module: str) -> frozenset[str] | None:
    """The names at the top of a module of ours, read without importing it (torch); None when there is no such file."""
    base = ROOT.joinpath(*module.split("."))
    file = next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)
    if file is None:
        return None
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
    return frozenset(names)


def resolves(dotted: str) -> bool:
    """Whether a name is a module, or what a module defines, or a field below that."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        if (names := defined(".".join(parts[:end]))) is not None:
            return end == len(parts) or parts[end] in names
    return False


@every_case("name", run_names)
def test_a_name_for_python_m_starts(name: str) -> None:
    spec = find_spec(name)
    assert spec is not None, f"{run_names()[name]} runs `python -m {name}`: there is no such module"
    if spec.submodule_search_locations is not None:
        spec = find_spec(f"{name}.__main__")
        assert spec is not None, f"{run_names()[name]} runs `python -m {name}`: the package has no __main__"
    assert spec.origin is not None
    body = Path(spec.origin).read_text(encoding="utf-8")
    starts = name.startswith("tests.") or "sys.exit(" in body or '__name__ == "__main__"' in body
    assert starts, f"`python -m {name}` defines functions and calls none"


@every_case("name", lambda: [n for n in run_names() if re.match("training|eval", n) and n not in NO_HELP])
def test_an_entry_point_explains_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    warnings.simplefilter("ignore", RuntimeWarning)  # another test may have imported the module; pytest resets this
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert f"python -m {name}" in capsys.readouterr().out


@every_case("name", documented_names)
def test_a_documented_name_resolves(name: str) -> None:
    assert resolves(name), f"{documented_names()[name]} names {name}"


def test_a_documented_object_resolves() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked("*.md", "examples/*")
        for match in OBJECT.finditer(text(path))
        if match[2] not in (defined(match[1]) or ())
    ]
    assert not wrong


def test_the_check_sees_a_name_that_is_gone() -> None:
    assert not resolves("training.nothing")
    assert not resolves("training.options.nothing")
    assert resolves("training.options.TrainerConfig.steps")
    assert RUN.findall("[python, -m, training.sft, --config]") == ["training.sft"]
    assert RUN.findall('["python","-m","eval.run"]') == ["eval.run"]
