"""What of a task's needs is here: programs, the public evaluators with what they import, downloads in a cache."""

from __future__ import annotations

import ast
import hashlib
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from eval.benchmarks.osworld.history import EMPTY, KEPT
from eval.benchmarks.osworld.needs import TaskNeed, describe, needs_of
from eval.benchmarks.osworld.tasks import PublicTask

PACKAGE: Final = "desktop_env"
# where a clone has that package: Windows Agent Arena's, one of OSWorld's layout, the folder of the package itself
IN_A_CLONE: Final = (f"src/win-arena-container/client/{PACKAGE}", PACKAGE, "")
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost"})  # this machine, whose servers can always be asked
INSTALL: Final = "make osworld-env"
DEBIAN: Final = Path("/usr/bin/python3")
JUDGE: Final = ".venv-osworld/bin/python"  # that target's, in the folder in which an evaluation is started
# packages that modules of metrics import and few metrics use: without one, only those metrics are missing
SPARED: Final = {"easyocr": frozenset({"compare_image_text"})}
# other names of the same program
SAME: Final = {"google-chrome": ("google-chrome", "google-chrome-stable", "chrome"), "python": ("python", "python3")}


@dataclass(frozen=True)
class PublicEvaluators:
    """The package `desktop_env`, read and not imported: importing it needs everything that it imports.

    metrics, getters  the names that its evaluators have, without the metrics that lack a package
    missing           packages that it imports and that are not installed
    version           of the installed package; none: it is a clone's
    digest            of its code, and of the names and versions of all packages beside the interpreter
    """

    metrics: frozenset[str] = frozenset()
    getters: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()
    version: str = ""
    digest: str = ""

    @property
    def label(self) -> str:
        """How results name it."""
        return f"desktop-env {self.version}" if self.version else f"desktop_env {self.digest}"

    @classmethod
    def of_python(cls, python: Path, package: Path | None = None) -> PublicEvaluators | None:
        """What the environment of an interpreter (`ENVIRONMENT/bin/python`) has, or a clone's `package` that this
        interpreter runs; None where it has no such package."""
        for packages in sorted(python.absolute().parent.parent.glob("lib/python3*/site-packages")):
            if package is not None:
                return cls.of(package, packages)
            if (packages / PACKAGE).is_dir():
                return cls.of(packages / PACKAGE, packages)
        return None

    @classmethod
    @cache  # its source is read whole, and every task asks
    def of(cls, package: Path, packages: Path) -> PublicEvaluators:
        """`package`: the folder `desktop_env`; `packages`: the folder of those that it may import."""
        folder = package / "evaluators"
        imported: set[str] = set()
        for path in sorted(folder.glob("*/*.py")):
            imported |= set(_imports(path))
        missing = sorted(name for name in imported - {PACKAGE} if not _is_here(name, packages))
        getters = {name.removeprefix("get_") for name in _names(folder / "getters/__init__.py")}
        metrics = set(_names(folder / "metrics/__init__.py"))
        for name in [name for name in missing if name in SPARED]:
            missing.remove(name)
            metrics -= SPARED[name]
        versions = [each.version for each in distributions(name="desktop-env", path=[str(package.parent)])]
        version = versions[0] if versions else ""
        return cls(frozenset(metrics), frozenset(getters), tuple(missing), version, _digest(package, packages))


@dataclass(frozen=True)
class Machine:
    """What can be used here.

    internet  downloads can be reached
    cache     folder of downloads as the public harness keeps them: `CACHE/ID/FILE`
    program   whether a program is installed
    judge     the interpreter that has the public evaluators
    package   those of a clone, which it runs in the place of its own: the folder `desktop_env`
    sites     a desktop reaches web sites. A proxy for them is what the public harness uses where somebody has one
    """

    internet: bool = False
    cache: Path | None = None
    program: Callable[[str], bool] = field(default=lambda name: any(map(shutil.which, SAME.get(name, (name,)))))
    judge: Path = Path(JUDGE)
    sites: bool = False
    package: Path | None = None

    @property
    def history(self) -> Path | None:
        """A browser's history without visits, of a clone."""
        kept = None if self.package is None else self.package / "assets" / EMPTY
        return kept if kept is not None and kept.is_file() else None

    @cached_property
    def evaluators(self) -> PublicEvaluators | None:
        return PublicEvaluators.of_python(self.judge, self.package)

    def lacks(self, task: PublicTask) -> list[TaskNeed]:
        """What the task needs and is not here; [] for a task that can run."""
        return [need for need in needs_of(task) if not self._has(need, task)]

    def _has(self, need: TaskNeed, task: PublicTask) -> bool:
        evaluators = self.evaluators
        if need.kind == "program":
            return self.program(need.name)
        if need.kind == "download":
            if need.file == KEPT and self.history is not None:
                return True
            return self.internet or need.name.split(":")[0] in LOOPBACK or self._cached(need, task)
        if need.kind in ("site", "proxy"):
            return self.sites
        if need.kind in ("metric", "getter"):
            if evaluators is None or evaluators.missing:
                return False
            return need.name in (evaluators.metrics if need.kind == "metric" else evaluators.getters)
        if need.kind == "package":
            return has_package(need.name, self.judge if need.judges else DEBIAN)
        return False  # accounts, root, a setup step that nobody knows, what a check would see of the agent's programs

    def could(self, task: PublicTask) -> bool:
        """Whether the task could run on a machine with every program, download, web site and public evaluator."""
        never = ("account", "rights", "setup", "live", "model", "harness")
        return all(need.kind not in never for need in needs_of(task))

    def _cached(self, need: TaskNeed, task: PublicTask) -> bool:
        kept = self.kept(need, task)
        return kept is not None and kept.is_file()

    def kept(self, need: TaskNeed, task: PublicTask) -> Path | None:
        """Where a download of the task is kept, or would be; None without a folder of downloads."""
        if self.cache is None or not need.file or Path(task.file_id).name != task.file_id:
            return None
        return self.cache / task.file_id / Path(need.file).name

    def files(self, task: PublicTask, folder: Path) -> dict[str, Path | None]:
        """The files with which a task begins and those that its judge compares, by the name of a download or the path
        below `folder`, that of the task files. None: it is downloaded anew each time."""
        downloads = {need.file: self.kept(need, task) for need in needs_of(task) if need.kind == "download"}
        steps = [step for step in (*task.setup, *task.before_judging) if step.kind == "upload_file"]
        given = [str(file.get("local_path")) for step in steps for file in step.parameters.get("files") or []]
        return downloads | {path: folder / path for path in (*given, *task.files)}


def judge_python(judge: Path) -> Path:
    """The Python of programs that judge: that of the public evaluators, or where it is not installed, Debian's."""
    return judge.absolute() if judge.is_file() else DEBIAN


def has_package(name: str, judge: Path) -> bool:
    """Whether a Python has a module: that of programs that judge, or Debian's, which a desktop has."""
    own = sorted(judge_python(judge).parent.parent.glob("lib/python3*/site-packages"))
    return any(_is_here(name, folder) for folder in own or [Path("/usr/lib/python3/dist-packages")])


def lacking_line(task: PublicTask, lacking: Sequence[TaskNeed], evaluators: PublicEvaluators | None) -> str:
    """What a task lacks, in a line. The judge is one thing: either all of it is installed, or no metric can be used."""
    judge = [need for need in lacking if need.kind in ("metric", "getter")]
    rest = describe([need for need in lacking if need not in judge])
    if not judge:
        return rest
    if evaluators is None:
        why = f"the public evaluators ({INSTALL})"
    elif evaluators.missing:
        why = f"packages of the public evaluators: {', '.join(evaluators.missing)}"
    else:
        why = describe(judge)
    return f"{rest}; {why}" if rest else why


def package_in(clone: Path) -> Path | None:
    """The folder `desktop_env` of a clone; None where it has none."""
    for place in IN_A_CLONE:
        if (clone / place / "evaluators/getters/__init__.py").is_file():
            return (clone / place).absolute()
    return None


def _digest(package: Path, packages: Path) -> str:
    beside = "\n".join(sorted(each.name for each in packages.glob("*-info")))
    found = hashlib.sha256(beside.encode())
    for path in sorted(package.rglob("*.py")):
        found.update(f"\0{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _is_here(name: str, packages: Path) -> bool:
    return name in sys.stdlib_module_names or PathFinder.find_spec(name, [str(packages)]) is not None


def _imports(path: Path) -> Iterator[str]:
    """The top-level packages that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]


def _names(path: Path) -> Iterator[str]:
    """The names that a package's __init__ takes from its modules or defines."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef):
            yield node.name
