"""What a task is made of: a changed line changes the identity of the tasks that it can touch, and of no others."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eval import identity
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES
from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.office import documents
from eval.benchmarks.linux_desktop.templates.file_tasks import FileTask
from eval.benchmarks.linux_desktop.templates.mousepad import AppendLine
from eval.benchmarks.linux_desktop.webapps.app import WebApp
from eval.benchmarks.linux_desktop.webapps.shop import Shop
from eval.config import ConfigError
from eval.config.importing import load_object
from eval.environments import sources as source_tasks
from eval.environments.registry import tasks_of
from eval.environments.splits import SPLIT_SEED
from eval.identity import machine
from eval.identity.code import Sources
from tests.support.cases import every_case
from tests.support.needs import need_library

parsed = identity.sources
LINUX = "linux-desktop"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(machine.IMAGES, raising=False)


class Edits:
    """Gives identities over changed sources and versions, in place of this machine's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def sources(self, changed: Mapping[Path, str]) -> None:
        """What lies in the folder of no change is not parsed again."""
        folders = {path.parent for path in changed}

        def made(own: frozenset[str]) -> Sources:
            found, kept = Sources(changed, own), parsed(frozenset({identity.OURS}))
            found._modules = {
                name: module
                for name, module in kept._modules.items()
                if name.startswith("eval.") and module is not None and module.path.parent not in folders
            }
            return found

        self.monkeypatch.setattr(identity, "sources", cache(made))
        identity._reached.cache_clear()

    def installed(self, versions: Mapping[str, str]) -> None:
        self.monkeypatch.setattr(machine, "_installed", lambda: dict(versions))


@pytest.fixture
def edits(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Edits(monkeypatch)
    made.installed(dict.fromkeys(("mousepad", "libreoffice-calc", "chromium", "thunar", "xterm", "fonts-one"), "1"))
    identity._reached.cache_clear()
    identities()  # so that all is parsed
    made.sources({})
    yield made
    identity._reached.cache_clear()


def edited(where: Callable[..., Any]) -> dict[Path, str]:
    """The source of a function with one more line at its end."""
    path = Path(inspect.getsourcefile(where) or "")
    lines, first = inspect.getsourcelines(where)
    text = path.read_text(encoding="utf-8").splitlines(keepends=True)
    body = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(body, ast.FunctionDef | ast.AsyncFunctionDef)
    at = first - 1 + body.body[-1].lineno - 1
    indent = text[at][: len(text[at]) - len(text[at].lstrip())]
    return {path: "".join([*text[:at], f"{indent}pass\n", *text[at:]])}


def replaced(path: str, before: str, after: str) -> dict[Path, str]:
    text = Path(path).read_text(encoding="utf-8")
    assert before in text
    return {Path(path).absolute(): text.replace(before, after, 1)}


def identities(name: str = LINUX, count: int = len(TEMPLATES), **options: Any) -> dict[str, dict[str, str]]:
    return {task.task_id: dict(task.identity) for task in tasks_of(name, count, SPLIT_SEED, options)}


def changed(before: Mapping[str, Any], after: Mapping[str, Any], part: str | None = None) -> set[str]:
    assert before.keys() == after.keys()
    if part is not None:
        before, after = ({name: each.get(part) for name, each in side.items()} for side in (before, after))
    return {name for name in before if before[name] != after[name]}


def templates(fits: Callable[[Any], bool]) -> set[str]:
    found = {name for name, template in TEMPLATES.items() if fits(template)}
    assert len(found) > 0
    return found


@every_case(
    ("what", "where", "touched"),
    [
        # helpers of judges, in the table's words: who inherits it, or names it
        ("judge's helper", FileTask.judge, templates(lambda one: issubclass(one, FileTask))),
        ("a template", AppendLine.judge, {AppendLine.about.name}),
        ("drawing", WordPool.number, set(TEMPLATES)),
        ("web application", Shop.state, templates(lambda one: getattr(one, "app", "") == "shop")),
        ("every web application", WebApp.state, templates(lambda one: "chromium" in one.about.programs)),
    ],
)
def test_a_line_of_our_code_touches_the_tasks_that_reach_it(
    edits: Edits, what: str, where: Callable[..., Any], touched: set[str]
) -> None:
    edits.sources({})
    before = identities()
    edits.sources(edited(where))
    after = identities()
    assert changed(before, after) == changed(before, after, identity.CODE) == touched


def test_a_helper_of_documents_touches_those_alone_that_read_documents(edits: Edits) -> None:
    """Tasks without an office program never reach it; those that name it in their source all do."""
    before = identities()
    edits.sources(edited(documents.refers_to))
    found = changed(before, identities())
    office = templates(lambda one: {"localc", "lowriter"} & set(one.about.programs))
    named = {name for name, one in TEMPLATES.items() if "refers_to(" in inspect.getsource(one)}
    assert named <= found < office
    assert len(found) < len(TEMPLATES) / 4


@pytest.mark.parametrize("place", ["eval.nowhere", "eval.environments.click:nothing", "eval.nowhere:tasks"])
def test_a_part_that_was_renamed_is_an_error(place: str) -> None:
    sources = Sources({}, frozenset({identity.OURS}))
    for roots, apart in ([place], []), (["eval.environments.click"], [place]):
        with pytest.raises(LookupError, match=place):
            sources.reached(roots, apart)


def test_the_desktop_is_a_part_of_its_own(edits: Edits) -> None:
    need_library("xcb", "libxcb.so.1")
    from eval.desktops.display.executor import Executor

    before = identities()
    edits.sources(edited(Executor.__init__))
    after = identities()
    assert changed(before, after, identity.DESKTOP) == set(TEMPLATES)
    assert changed(before, after, identity.CODE) == set()


def test_comments_docstrings_and_places_of_lines_count_for_nothing(edits: Edits) -> None:
    before = identities()
    path = Path(inspect.getsourcefile(FileTask) or "")
    text = path.read_text(encoding="utf-8").replace('"""', '"""Other words. ', 1)
    edits.sources({path: "".join(f"{line}  # x\n" if not line.strip() else f"{line}\n" for line in text.split("\n"))})
    assert changed(before, identities()) == set()


@every_case(
    ("package", "program"),
    [("mousepad", "mousepad"), ("libreoffice-calc", "localc"), ("chromium", "chromium"), ("thunar", "thunar")],
)
def test_an_installed_program_touches_the_tasks_that_name_it(edits: Edits, package: str, program: str) -> None:
    edits.installed({**machine._installed(), package: "1"})
    before = identities()
    edits.installed({**machine._installed(), package: "2"})
    after = identities()
    assert changed(before, after) == templates(lambda one: program in one.about.programs)
    assert {each[package] for each in after.values() if package in each} == {"2"}


def test_fonts_and_the_image_touch_every_task_with_a_screen(edits: Edits, monkeypatch: pytest.MonkeyPatch) -> None:
    before, drawn = identities(), identities("click", 3)
    edits.installed({**machine._installed(), "fonts-two": "1"})
    assert changed(before, identities(), identity.FONTS) == set(TEMPLATES)
    assert identities("click", 3) == drawn
    monkeypatch.setenv(machine.IMAGES, json.dumps({"main": "sha256:a", "desk": "sha256:b"}))
    monkeypatch.setenv("SLIPWAY_ROLE", "main")
    assert {each[identity.IMAGE] for each in identities().values()} == {"sha256:a"}


def test_desktops_of_a_role_have_the_programs_of_its_image(edits: Edits, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed here says nothing of them; without an image nothing is known of them."""
    known = identities(role="desk")["mousepad-append"]
    assert known[identity.PROGRAMS] == machine.UNKNOWN
    assert "mousepad" not in known
    monkeypatch.setenv(machine.IMAGES, json.dumps({"desk": "sha256:b"}))
    known = identities(role="desk")["mousepad-append"]
    assert (known[identity.IMAGE], identity.PROGRAMS in known) == ("sha256:b", False)


def test_a_form_is_touched_by_its_own_kind_and_by_the_program_that_shows_it(edits: Edits) -> None:
    from eval.benchmarks.gtk_forms import forms

    before = identities("gtk-forms", 10)
    edits.sources(edited(forms.KINDS["press"]))
    assert changed(before, identities("gtk-forms", 10)) == {name for name in before if name.startswith("press-")}
    edits.sources(replaced("eval/benchmarks/gtk_forms/program.py", "import", "import "))
    assert changed(before, identities("gtk-forms", 10), identity.CODE) == set(before)
    edits.sources({})
    login = identities("gtk-login", 2)
    edits.sources(replaced("eval/benchmarks/gtk_login/program.py", "import", "import "))
    assert changed(login, identities("gtk-login", 2), identity.CODE) == set(login)


def test_templates_of_one_environment_have_different_codes_and_the_same_ones_every_time(edits: Edits) -> None:
    found = [each[identity.CODE] for each in identities().values()]
    assert len(set(found)) == len(TEMPLATES)
    edits.sources({})
    assert [each[identity.CODE] for each in identities().values()] == found


USERS = {
    "__init__": "",
    "judges": """
        from mine.helping import right
        import mine.data

        def whole(stage, done):
            return right(stage)

        def other(stage, done):
            return False
        """,
    "helping": """
        from mine import deep

        def right(stage):
            return deep.looked(stage)
        """,
    "deep": """
        from pathlib import Path

        def looked(stage):
            return Path(__file__).with_name("answers.txt").read_text() == stage
        """,
    "data": "WORDS = ['a']",
    "world": """
        from eval.desktop import Task
        from mine.helping import right

        class World:
            def tasks(self, count, seed, options):
                return [Task("t", "x", seed + n) for n in range(count)]

            def desktop(self, options):
                return right("")
        """,
    "naming": """
        import PIL

        def whole(stage, done):
            return PIL
        """,
}


class UserFiles:
    """A package of a user's own, beside the project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "mine").mkdir()
        for module, text in USERS.items():
            self.write(module, text)
        (folder / "mine/answers.txt").write_text("yes")

    def write(self, module: str, text: str) -> None:
        (self.folder / f"mine/{module}.py").write_text(textwrap.dedent(text))


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield UserFiles(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
        del sys.modules[name]


def own(**more: Any) -> dict[str, dict[str, str]]:
    """Two tasks, each with a validator of its own."""
    source_tasks._of_sources.cache_clear()
    given = [
        {"id": "whole", "instruction": "x", "validator": "mine.judges:whole", **more},
        {"id": "other", "instruction": "x", "validator": "mine.judges:other"},
    ]
    return identities("sources", 2, sources=[{"source": "custom", "tasks": given}])


@every_case(
    ("module", "before", "after"),
    [
        ("mine/judges.py", "    return right(stage)", "    return True"),
        ("mine/helping.py", "deep.looked(stage)", "True"),
        ("mine/deep.py", "== stage", "!= stage"),
        ("mine/answers.txt", "yes", "no"),
    ],
)
def test_a_users_validator_counts_by_its_source_and_what_it_reaches(
    edits: Edits, user: UserFiles, module: str, before: str, after: str
) -> None:
    edits.sources({})
    was = own()
    edits.sources(replaced(str(user.folder / module), before, after))
    assert changed(was, own()) == {"whole"}


def test_a_users_task_counts_with_its_files_its_start_and_its_programs(edits: Edits, user: UserFiles) -> None:
    was = own()
    assert changed(was, own(files={"a.txt": "b"})) == changed(was, own(start=[["mousepad"]])) == {"whole"}
    assert changed(was, own(changes=["a.txt"]), "start") == {"whole"}
    assert changed(was, own(solved={"a.txt": "b"})) == set()


def test_what_a_users_module_does_when_it_is_imported_counts(edits: Edits, user: UserFiles) -> None:
    """It may change anything, as a patch of somebody else's module does; a definition that nobody names does not."""
    was = own()
    user.write("data", "WORDS = ['b']\n")
    edits.sources({})
    assert changed(was, own()) == set()
    user.write("data", "import eval.desktop\n\neval.desktop.Score = None\n")
    edits.sources({})
    assert changed(was, own()) == {"whole", "other"}


def test_an_environment_of_a_users_own_counts_by_its_code(edits: Edits, user: UserFiles) -> None:
    path = "mine.world:World"
    load_object(path, "environment")
    was = tasks_of(path, 1, 0, {})[0].identity
    edits.sources(replaced(str(user.folder / "mine/deep.py"), "== stage", "!= stage"))
    assert tasks_of(path, 1, 0, {})[0].identity[identity.CODE] != was[identity.CODE]


def test_an_environment_may_say_itself_what_a_task_is_made_of(edits: Edits, user: UserFiles) -> None:
    told = "\n    parts = staticmethod(lambda task, options: {})\n"
    user.write("world", f"{textwrap.dedent(USERS['world'])}{told}")
    with pytest.raises(ConfigError, match=r"parts must give an eval\.identity\.TaskParts, not a dict"):
        tasks_of("mine.world:World", 1, 0, {})


def test_a_task_through_sources_is_the_task_of_its_environment(edits: Edits) -> None:
    options = {"sources": [{"source": "demo_eval", "environment": LINUX, "count": 3}]}
    through, direct = tasks_of("sources", 3, 0, options), tasks_of(LINUX, 3, SPLIT_SEED, {})
    assert [dict(each.identity) for each in through] == [dict(each.identity) for each in direct]


def public(folder: Path) -> dict[str, dict[str, str]]:
    """The identities of the tasks of OSWorld's format in a folder, with its downloads."""
    return identities("osworld", 2, folder=str(folder / "tasks"), cache=str(folder / "cache"))


@every_case(
    ("what", "touched"),
    [
        ("cache/one/the start", {"os/one"}),
        ("cache/one/gold.txt", {"os/one"}),
        ("tasks/files/b.txt", {"os/two"}),
        ("cache/one/another", set()),
        ("cache/two/gold.txt", set()),
    ],
)
def test_a_file_of_an_osworld_task_touches_the_tasks_that_name_it(
    edits: Edits, tmp_path: Path, what: str, touched: set[str]
) -> None:
    """Also one that was not kept before; what no task names counts for nothing."""
    url = "https://files.example.com/a.txt"
    start = {"type": "download", "parameters": {"files": [{"url": url, "path": "/home/user/a.txt"}]}}
    given = {
        "type": "upload_file",
        "parameters": {"files": [{"local_path": "files/b.txt", "path": "/home/user/b.txt"}]},
    }
    result = {"type": "vm_file", "path": "/home/user/a.txt", "dest": "a.txt"}
    right = {"type": "cloud_file", "path": f"{url}_gold", "dest": "gold.txt"}
    for name, step, expected in (("one", start, right), ("two", given, {"type": "rule", "rules": {}})):
        evaluator = {"func": "compare_text_file", "result": result, "expected": expected}
        task = {"id": name, "snapshot": "os", "instruction": "x", "config": [step], "evaluator": evaluator}
        (tmp_path / "tasks/os").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"tasks/os/{name}.json").write_text(json.dumps(task))
    path = tmp_path / what.replace("the start", f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_a.txt")
    unkept = public(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("was")
    before = public(tmp_path)
    path.write_text("now it is longer")
    after = public(tmp_path)
    assert changed(unkept, before) == changed(before, after) == changed(before, after, "files") == touched


def test_each_module_is_parsed_once(edits: Edits, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = Sources._parsed
    monkeypatch.setattr(Sources, "_parsed", lambda self, name: (parsed.append(name), parse(self, name))[1])
    kept = Sources()
    monkeypatch.setattr(identity, "sources", lambda _: kept)
    identities()
    identities()
    assert len(parsed) == len(set(parsed)) > 50


@pytest.mark.parametrize("times", [1, 2])
def test_a_module_is_parsed_again_where_python_miscounted(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """As Debian's Python 3.11.2 does when its garbage collector formats a traceback meanwhile."""
    left, real = [SystemError("AST constructor recursion depth mismatch")] * times, ast.parse

    def parse(*given: Any, **named: Any) -> Any:
        if left:
            raise left.pop()
        return real(*given, **named)

    monkeypatch.setattr(ast, "parse", parse)
    if times == 1:
        assert Sources().module("eval.desktop") is not None
    else:
        with pytest.raises(SystemError):
            Sources().module("eval.desktop")


def test_python_packages_that_a_judge_names_count(edits: Edits, user: UserFiles) -> None:
    """`whole` of the one module names it, `other` of the other does not."""
    found = own(validator="mine.naming:whole")
    assert "python pillow" in found["whole"]
    assert found["whole"][identity.CODE] != own()["whole"][identity.CODE]
