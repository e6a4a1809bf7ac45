"""Where in its file the field stands that an error names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from eval.config.strict import STEP, UNKNOWN, ConfigError

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
