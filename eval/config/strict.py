"""Strict configuration files: an unknown key, a wrong type or a value that is not allowed ends the program with one
line of text and exit code 78."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import msgspec.inspect as kinds
import yaml

EXIT_CONFIG: Final = 78
T = TypeVar("T")
# The optional packages that an entry point may miss: extra of pyproject.toml -> the modules that it brings
EXTRAS: Final = {
    "train": (
        *("PIL", "accelerate", "av", "datasets", "huggingface_hub", "jinja2", "matplotlib", "numpy", "peft"),
        *("pyarrow", "safetensors", "tokenizers", "torch", "torchvision", "transformers", "trl"),
    ),
    "desktop": ("aiohttp", "fpng", "jeepney", "xcffib"),
    "agents": ("anthropic", "openai"),
    "gemini": ("google",),
    "gymnasium": ("gymnasium",),
}


class ConfigError(ValueError):
    """A configuration that cannot be used; the text says where and why."""


class ResumeError(ConfigError):
    """What an earlier attempt left, a checkpoint or results, cannot be continued from."""


def exit_code(error: ConfigError) -> int:
    """How a program ends for `error`: 78, which no retry mends. In a restart of the same run ($SLIPWAY_ATTEMPT above 1)
    1 for a ResumeError: the run made itself what is refused, so that it may be damaged, and the next attempt may get an
    older one or another machine."""
    again = isinstance(error, ResumeError) and os.environ.get("SLIPWAY_ATTEMPT", "1") not in ("", "0", "1")
    return 1 if again else EXIT_CONFIG


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every section of a configuration."""


class _Loader(yaml.SafeLoader):
    """YAML whose floats are those of 1.2: `1e-5` is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def read(path: Path) -> Any:
    """The plain content of a JSON or YAML file. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else yaml.load(text, _Loader)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error}; save it as UTF-8") from None
    # of values that YAML cannot make: dates, numbers of too many digits, what is too deep
    except (ValueError, AttributeError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None


def convert(data: Any, kind: type[T], where: str) -> T:
    """`data` as `kind`, strictly. Raises ConfigError."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        renamed: dict[str, str] = getattr(kind, "renamed", {})
        now = next(
            (f"; it is {now!r} now" for name, now in renamed.items() if f"unknown field `{name}`" in str(error)), ""
        )
        raise ConfigError(f"{where}: {error}{now or allowed(data, kind, str(error))}") from None


def load(path: Path, kind: type[T]) -> T:
    """A configuration file as `kind`. Raises ConfigError."""
    return convert(read(path), kind, str(path))


def output_folder(given: str | None, name: str = "") -> Path:
    """--out, or `name` under $SLIPWAY_OUTPUTS. Raises ConfigError without either."""
    if given:
        return Path(given)
    if "SLIPWAY_OUTPUTS" not in os.environ:
        raise ConfigError("name a folder with --out, or set SLIPWAY_OUTPUTS")
    return Path(os.environ["SLIPWAY_OUTPUTS"]) / name


@contextmanager
def results_folder(given: str | None, name: str) -> Iterator[Path]:
    """`output_folder` for the results of an evaluation. One that --out names gets a file .slipway-output in the end, by
    which the launcher knows it: results are never packed with a job's `code`. Raises ConfigError."""
    out = output_folder(given, name)
    try:
        yield out
    finally:
        outputs = os.environ.get("SLIPWAY_OUTPUTS")
        inside = outputs is not None and out.absolute().is_relative_to(outputs)
        if given and not inside and out.is_dir():
            with suppress(OSError):
                (out / ".slipway-output").touch()


def run(
    main: Callable[[], int], *, failures: tuple[type[Exception], ...] = (), needs: tuple[str, ...] = ("PIL",)
) -> int:
    """Runs an entry point: a ConfigError becomes one line and its `exit_code`, one of `failures` one line and 1. A
    package of an extra that is not installed is a ConfigError; those of `needs` are looked for first."""
    try:
        need(*needs)
        return main()
    except ModuleNotFoundError as error:
        if (said := missing(error)) is None:
            raise
        print(f"config: {said}", file=sys.stderr)
        return EXIT_CONFIG
    except ConfigError as error:
        print(f"config: {error}", file=sys.stderr)
        return exit_code(error)
    except failures as error:
        print(f"eval: {error}", file=sys.stderr)
        return 1


def need(*modules: str) -> None:
    """Raises ConfigError for the first of an extra's modules that is not installed, without importing any."""
    for name in modules:
        if find_spec(name) is None:
            raise ConfigError(missing(ModuleNotFoundError(name=name)) or f"the Python package {name} is not installed")


def missing(error: ModuleNotFoundError) -> str | None:
    """Which extra brings the package that `error` misses; None for any other module."""
    name = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if name in modules:
            return f"the Python package {name} is not installed; the extra `{extra}` brings it: docs/howto/install.md"
    return None


UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
VALUE = re.compile(r"Invalid (?:enum )?value '(.*?)' - at ")
PLACE = re.compile(r" - at `\$(.*)`$")
STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def allowed(data: Any, kind: Any, fault: str) -> str:
    """What msgspec's message about `data` leaves out: the names or values that are allowed there, and the nearest one.
    "" where the type names none, such as for a number."""
    unknown, value = UNKNOWN.match(fault), VALUE.match(fault)
    found = unknown or value
    if found is None:
        return ""
    place = PLACE.search(fault)
    steps = [name or int(index) for name, index in STEP.findall(place[1] if place else "")]
    last = steps.pop() if value and steps else None
    here: list[kinds.Type] = _each([kinds.type_info(kind)], data)
    for step in steps:
        try:
            data = data[step]
        except (LookupError, TypeError):
            return ""
        here = _each(_inside(here, step), data)
    structs = [each for each in here if isinstance(each, kinds.StructType)]
    if unknown:
        names = {field.encode_name for each in structs for field in each.fields}
    elif tags := {str(each.tag) for each in structs if each.tag_field == last}:
        names = tags
    else:
        inside = _each(_inside(here, last), None)
        names = {str(one) for each in inside if isinstance(each, kinds.LiteralType) for one in each.values}
    if not names:
        return ""
    near = difflib.get_close_matches(found[1], sorted(names), 1)
    return (f" (did you mean `{near[0]}`?)" if near else "") + f"; allowed: {', '.join(sorted(names))}"


def _each(types: Iterable[kinds.Type], data: Any) -> list[kinds.Type]:
    """The types without unions and remarks; of several tagged ones that which `data` names, all where it names none."""
    flat: list[kinds.Type] = []
    for each in types:
        if isinstance(each, kinds.Metadata):
            flat += _each([each.type], data)
        elif isinstance(each, kinds.UnionType):
            flat += _each(each.types, data)
        else:
            flat.append(each)
    if isinstance(data, dict):
        tagged: list[kinds.Type] = [
            each
            for each in flat
            if isinstance(each, kinds.StructType) and each.tag_field and each.tag == data.get(each.tag_field)
        ]
        return tagged or flat
    return flat


def _inside(types: Iterable[kinds.Type], step: str | int | None) -> list[kinds.Type]:
    """The types of an item or a field of these."""
    found: list[kinds.Type] = []
    for each in types:
        if isinstance(each, kinds.StructType):
            found += [field.type for field in each.fields if field.encode_name == step]
        elif isinstance(each, (kinds.ListType, kinds.VarTupleType)):
            found.append(each.item_type)
        elif isinstance(each, kinds.DictType):
            found.append(each.value_type)
    return found


AT: Final = re.compile(r" - at `\$(.*?)`")  # of msgspec's messages
FIELD: Final = re.compile(r"([a-z_]+(?:\[\d+\]|\.[\w-]+)*): ")


@contextmanager
def with_lines(path: Path) -> Iterator[None]:
    """Within it, a ConfigError that names a field of the configuration at `path` tells the file and the line too."""
    try:
        yield
    except ConfigError as error:
        text = str(error).removeprefix(f"{path}: ")
        found = FIELD.match(text)
        rest = text[found.end() :] if found else text
        unknown = UNKNOWN.search(rest)
        place = AT.search(rest)
        told = (f".{found[1]}" if found else "") + (place[1] if place else "") + (f".{unknown[1]}" if unknown else "")
        if (line := line_of(path, [name or int(number) for name, number in STEP.findall(told)])) is not None:
            error.args = (f"{path}:{line}: {text}",)
        raise


def line_of(path: Path, steps: list[str | int]) -> int | None:
    """The line of a field, or of the last on the way to it that is there; None where the first is not."""
    try:
        node: yaml.Node | None = yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    line = None
    for step in steps:
        if isinstance(node, yaml.MappingNode):
            pairs = [(key, value) for key, value in node.value if key.value == step]
            if not pairs:
                return line
            line, node = pairs[-1][0].start_mark.line + 1, pairs[-1][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            return line
    return line
