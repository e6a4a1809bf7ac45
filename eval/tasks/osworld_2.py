"""OSWorld 2.0's tasks: `task_NNN.py`, a class each. They are a gated data set that nobody may pass on, so this reads a
copy of the user's own, and runs none of it.

The class attributes were read in notes and tests of others on release 2026.06.24 (108 tasks; every one has an
`evaluate` of its own, 29 put texts together from constants). `setup` and `evaluate` call its package, a model, web
sites of its own: such a task can be listed here with what it needs, and runs in its own harness only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from eval.benchmarks.errors import BenchError
from eval.tasks.writing import ImportedTask, read

SOURCE: Final = "OSWorld 2.0"
FILE: Final = "task_*.py"
NEEDS: Final = {
    "generate_text": ("model", "its judge"),
    r"\w+_with_llm": ("model", "its judge"),
    "llm_metrics": ("model", "its judge"),
    "user_simulator": ("model", "its user"),
    "prepare_stateful_website_urls": ("site", "OSWorld-web"),
    r"controllers\.website": ("site", "OSWorld-web"),
    "build_website_url": ("site", "OSWorld-web"),
    "GITLAB_URL": ("site", "GitLab"),
    "gitlab": ("site", "GitLab"),
    "googledrive": ("account", "googledrive"),
    "apt-get": ("rights", "root"),
    "asset": ("download", "xlangai/osworld_v2_assets_gated"),
}


def places(source: Path) -> Iterator[Path]:
    """The files of tasks in a folder, or the one that it is."""
    yield from [source] if source.is_file() else sorted(source.glob(FILE))


def task(file: Path) -> ImportedTask:
    """Raises BenchError, which names file and field."""
    text = read(file, file.name).decode("utf-8", "replace")
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BenchError(f"{file.name}: {type(error).__name__}: {error}") from None
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    found = [each for each in classes if any(_name(base).endswith("BaseTask") for base in each.bases)]
    if len(found) != 1:
        raise BenchError(f"{file.name}: {len(found)} classes of BaseTask; allowed: one")
    fields = dict(_constants(found[0].body, dict(_constants(body, {}))))
    for name in ("id", "instruction"):
        if not isinstance(fields.get(name), str):
            raise BenchError(f"{file.name}: {name}: {fields.get(name)!r}; allowed: a text, written in the file")
    apps = fields.get("related_apps")
    programs = [app for app in apps if isinstance(app, str)] if isinstance(apps, list) else []
    needs = [("harness", "OSWorld 2.0: its tasks are programs of its own package")]
    needs += dict.fromkeys(need for word, need in NEEDS.items() if re.search(rf"\b{word}\b", text))
    if fields.get("proxy"):
        needs.append(("proxy", "for its web sites"))
    program = {"command": ["false"], "at": "/tmp/check", "score": "json", "copies": []}
    return ImportedTask("osworld-2", fields["id"], fields["instruction"], [], program, programs, before=needs)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _constants(body: list[ast.stmt], known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The names that are given a value that stands in the file; `known`: those from before."""
    names = dict(known)
    for each in body:
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            try:
                value = _value(each.value, names)
            except ValueError:
                continue
            for target in targets:
                names[_name(target)] = value
                yield _name(target), value


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """What an expression gives. A name in a text that is not known stands there in braces. Raises ValueError."""
    match node:
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.JoinedStr(values=parts):
            return "".join(str(_value(part, names)) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)):
            return names.get(name, f"{{{name}}}")
        case ast.FormattedValue(value=part):
            return f"{{{ast.unparse(part)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            both = _value(left, names), _value(right, names)
            if all(isinstance(each, str) for each in both):
                return both[0] + both[1]
        case ast.Call(func=ast.Attribute(value=inner, attr="strip"), args=[], keywords=[]):
            if isinstance(text := _value(inner, names), str):
                return text.strip()
    try:
        return ast.literal_eval(node)
    except (TypeError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from None
