"""Makes docs/reference/extending.md from the docstrings of the contracts. `make golden` writes it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import msgspec

INTRO: Final = """\
# Extending: the contracts

Written by `make golden` from the docstrings of the code; do not edit. [Adding](adding.md) lists, for each kind of
addition, the files to touch and the command that checks it. This page says what each part must do.
"""

# title -> (what the contract is for, its classes and functions as module:name)
CONTRACTS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "Backend": (
        "A backend is a place where runs execute. The verbs call it through this protocol only.",
        (
            "launcher.spec.backends:Traits",
            "launcher.backends.base:Backend",
            "launcher.backends.base:Entered",
            "launcher.backends.base:Forwards",
            "launcher.backends.base:Queues",
            "launcher.backends.base:StopsQueues",
            "launcher.backends.base:Rendered",
            "launcher.backends.base:Handle",
            "launcher.backends.base:BackendObservation",
            "launcher.backends.base:QueueListing",
            "launcher.backends.base:QueueState",
            "launcher.backends.base:QueuePosition",
            "launcher.backends.base:QueueQuota",
        ),
    ),
    "Store": (
        "A store keeps everything that is known of runs: records, logs, outputs, checkpoints.",
        ("launcher.store.base:Store", "launcher.store.base:Meta"),
    ),
    "Environment and desktop": (
        "An environment makes tasks and desktops. An agent works on a desktop, one episode at a time.",
        (
            "eval.desktop:Environment",
            "eval.desktop:Desktop",
            "eval.desktop:Task",
            "eval.desktop:Observation",
            "eval.desktop:Expected",
            "eval.desktop:Score",
            "eval.desktop:ActionRefused",
            "eval.desktop:InfraError",
            "eval.desktop:DesktopGone",
            "eval.desktop:DesktopTimeout",
            "eval.desktop:BadFrame",
            "eval.desktop:SetupFailed",
        ),
    ),
    "Agent": (
        "An agent answers observations with actions, or works on the guarded computer in a loop of its own.",
        (
            "eval.agents.base:Agent",
            "eval.agents.base:Decision",
            "eval.agents.base:History",
            "eval.agents.base:StreamingAgent",
            "eval.agents.computer:LoopingAgent",
            "eval.agents.computer:Computer",
            "eval.agents.computer:EpisodeOver",
            "eval.episodes:ToolCall",
            "eval.episodes:TokenUsage",
        ),
    ),
    "Dialect": (
        "A dialect is one way to write an action as text. [Actions](actions.md) shows every dialect.",
        ("eval.actions.dialects.base:Dialect", "eval.actions.dialects.base:Response", "eval.actions:Action"),
    ),
    "Reward": (
        "A reward function judges the answers that GRPO samples.",
        ("training.rewards.base:RewardFunction", "training.rewards.base:SampledAnswer"),
    ),
    "Importer": (
        "An importer turns recordings of another tool into [episodes](formats.md#episodes).",
        ("training.data.ingest", "training.data.ingest.registry:Importer", "training.data.ingest.tally:Tally"),
    ),
}


def page() -> str:
    """The text of docs/reference/extending.md."""
    lines = [INTRO]
    for title, (purpose, names) in CONTRACTS.items():
        lines += [f"## {title}", "", purpose, ""]
        for name in names:
            lines += _entry(name)
    return "\n".join(lines).rstrip("\n") + "\n"


def load(name: str) -> Any:
    """The object that `module:name` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute) if attribute else import_module(module)


def _entry(name: str) -> Iterator[str]:
    item = load(name)
    module, _, short = name.partition(":")
    yield f"### `{short or module}`\n"
    yield f"`{module}`{_base(item)}\n" if short else "The module says:\n"
    yield from _text(item)
    fields = list(_fields(item))
    if fields:
        yield "| field | type | default |\n|---|---|---|"
        yield from fields
        yield ""
    if inspect.isclass(item):
        for method, function in vars(item).items():
            public = not method.startswith("_") or method == "__call__"
            if public and (inspect.isfunction(function) or isinstance(function, property)):
                yield from _method(method, function)
    elif inspect.isfunction(item):
        yield from _code(_signature(short, item))


def _base(item: Any) -> str:
    if inspect.isclass(item) and issubclass(item, Exception):
        return f", a kind of `{item.__bases__[0].__name__}`"
    return ", a protocol" if getattr(item, "_is_protocol", False) else ""


def _text(item: Any) -> Iterator[str]:
    """A docstring as Markdown; paragraphs and aligned columns stay."""
    text = inspect.cleandoc(item.__doc__ or "")
    if text.startswith(f"{getattr(item, '__name__', '')}("):  # a docstring that dataclass generated
        return
    for paragraph in filter(None, text.split("\n\n")):
        lined_up = any(re.search(r"\S {2,}\S", line) or line.startswith("    ") for line in paragraph.splitlines())
        yield f"```text\n{textwrap.dedent(paragraph)}\n```\n" if lined_up else _escaped(paragraph) + "\n"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")


def _fields(item: Any) -> Iterator[str]:
    if dataclasses.is_dataclass(item):
        for field in dataclasses.fields(item):
            given = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            default = field.default if field.default is not dataclasses.MISSING else field.default_factory
            yield _field(field.name, str(field.type), given, default)
    elif inspect.isclass(item) and issubclass(item, msgspec.Struct):
        types = {name: kind for base in reversed(item.__mro__) for name, kind in inspect.get_annotations(base).items()}
        for member in msgspec.structs.fields(item):
            default = member.default if member.default is not msgspec.NODEFAULT else member.default_factory
            yield _field(member.name, str(types[member.name]), not member.required, default)
    elif hasattr(item, "_field_defaults"):  # a named tuple
        for name, kind in inspect.get_annotations(item).items():
            kind = kind if isinstance(kind, str) else kind.__forward_arg__
            yield _field(name, kind, name in item._field_defaults, item._field_defaults.get(name))
    elif getattr(item, "_is_protocol", False):
        for name, kind in inspect.get_annotations(item).items():
            yield _field(name, str(kind), False, None)


def _field(name: str, kind: str, given: bool, default: Any) -> str:
    shown = f"`{default() if inspect.isclass(default) else default!r}`" if given else "required"
    return "| `{}` | `{}` | {} |".format(*(text.replace("|", "\\|") for text in (name, kind, shown)))


def _method(name: str, function: Any) -> Iterator[str]:
    if isinstance(function, property):
        kind = inspect.get_annotations(function.fget).get("return", "")  # type: ignore[arg-type]
        yield from _code(f"{name}: {kind}")
        yield from _text(function.fget)
        return
    yield from _code(_signature(name, function))
    yield from _text(function)


def _code(text: str) -> Iterator[str]:
    yield f"```python\n{text}\n```\n"


def _signature(name: str, function: Any) -> str:
    """`def name(...)` as in the source, without `self`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    node = next(item for item in tree.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))
    node.args.args = [argument for argument in node.args.args if argument.arg != "self"]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{word} {name}({ast.unparse(node.args)}){returns}"
