"""Makes docs/reference/json.md from the structures in `launcher.cli.printing.documents`.

`python -m launcher.cli.json_page > docs/reference/json.md` writes the page; a test keeps it current.
"""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple

import msgspec

from launcher.cli.printing.documents import (
    Cancelled,
    Checked,
    Compared,
    Diff,
    File,
    Followed,
    Gathered,
    Gone,
    Group,
    Image,
    ImageFinding,
    JobCosts,
    Linted,
    Local,
    LogLine,
    Metric,
    Moved,
    Notification,
    Overlay,
    Paid,
    Part,
    Queue,
    Reaped,
    Run,
    RunCosts,
    Secret,
    StoredCosts,
    Submitted,
    SummedCosts,
    Used,
    Validated,
    Verified,
    Vulnerability,
    Watched,
)

_INTRO = """\
# What `-o json` prints

Written by `python -m launcher.cli.json_page`; do not edit. Standard output has one JSON document and nothing else;
notes and errors go to standard error. A verb that follows something prints one document per line. The exit code is the
same as without `-o json`.

Times are seconds since the epoch, durations (`_s`) seconds, sizes bytes, shares between 0 and 1; `null` where a value
is not known. Fields may be added later; no field changes its meaning or is removed. `-o yaml`, where a verb has it, is
the same document. `?` marks a field that may be left out.
"""


def page() -> str:
    """The text of docs/reference/json.md."""
    parts = [_INTRO, "| verb | it prints |", "|---|---|"]
    structs: dict[str, type[msgspec.Struct]] = {}
    for verb, printed in DOCUMENTS.items():
        shown = f"a line each: {_type(printed.type, structs)}" if printed.lines else _type(printed.type, structs)
        parts.append(f"| `{verb}` | {shown} |")
    parts += ["", "## Types", ""]
    done: set[str] = set()
    while remaining := [name for name in structs if name not in done]:
        for name in remaining:
            done.add(name)
            parts += _struct(structs[name], structs)
    parts += ["## Without", "", "| verb | why |", "|---|---|"]
    parts += [f"| `{verb}` | {why} |" for verb, why in WITHOUT.items()]
    return "\n".join(parts) + "\n"


def _struct(kind: type[msgspec.Struct], structs: dict[str, type[msgspec.Struct]]) -> list[str]:
    about = " ".join((kind.__doc__ or "").split())
    config = kind.__struct_config__
    tag = [f'`{config.tag_field}`: "{config.tag}"'] if config.tag_field else []
    fields = tag + [
        f"`{field.encode_name}{'' if field.required else '?'}`: {_type(field.type, structs)}"
        for field in msgspec.structs.fields(kind)
    ]
    return [f"### {kind.__name__}", "", *([about, ""] if about and kind.__doc__ else []), "; ".join(fields), ""]


def _type(kind: Any, structs: dict[str, type[msgspec.Struct]]) -> str:
    """A type in words for the page."""
    info = msgspec.inspect.type_info(kind)
    return _info(info, structs)


def _info(info: msgspec.inspect.Type, structs: dict[str, type[msgspec.Struct]]) -> str:
    match info:
        case msgspec.inspect.StructType(cls):
            structs.setdefault(cls.__name__, cls)
            return f"[{cls.__name__}](#{cls.__name__.lower()})"
        case msgspec.inspect.ListType(item_type=item):
            return f"list of {_info(item, structs)}"
        case msgspec.inspect.DictType(value_type=value):
            return f"mapping of names to {_info(value, structs)}"
        case msgspec.inspect.UnionType(types):
            return " or ".join(_info(member_type, structs) for member_type in types)
        case msgspec.inspect.NoneType():
            return "null"
        case msgspec.inspect.AnyType():
            return "any"
    names = {"StrType": "text", "IntType": "integer", "FloatType": "number", "BoolType": "truth value"}
    return names[type(info).__name__]


if __name__ == "__main__":
    sys.stdout.write(page())


# Which structure of `documents` each verb prints with `-o json`, and why some print none. Not imported by any verb.


class Printed(NamedTuple):
    """What a verb prints: one `type`, or, with `lines`, one on each line."""

    type: Any
    lines: bool = False


# a verb, or a verb with its action
DOCUMENTS: Final[dict[str, Printed]] = {
    "init": Printed(File),
    "validate": Printed(Validated),
    "lint": Printed(list[Linted]),
    "push": Printed(list[Overlay]),
    "submit": Printed(list[Submitted]),
    "submit --follow": Printed(Followed | Watched, lines=True),
    "run": Printed(list[Submitted]),
    "status": Printed(list[Run]),
    "status --paid": Printed(list[Paid]),
    "status --watch": Printed(Watched, lines=True),
    "groups": Printed(list[Group]),
    "top": Printed(list[Used]),
    "queues": Printed(list[Queue]),
    "wait": Printed(list[Run]),
    "logs": Printed(LogLine, lines=True),
    "cancel": Printed(list[Cancelled]),
    "move": Printed(list[Moved]),
    "notify": Printed(list[Notification]),
    "reap": Printed(list[Reaped]),
    "retry": Printed(list[Submitted]),
    "retry --follow": Printed(Followed | Watched, lines=True),
    "rm": Printed(list[Gone]),
    "gc": Printed(list[Gone]),
    "gather": Printed(list[Gathered]),
    "cost": Printed(list[RunCosts]),
    "cost --by": Printed(list[SummedCosts]),
    "cost --storage": Printed(list[StoredCosts]),
    "cost --job": Printed(list[JobCosts]),
    "results": Printed(list[Metric]),
    "compare": Printed(list[Compared]),
    "diff": Printed(Diff),
    "report": Printed(File),
    "doctor": Printed(list[Checked]),
    "secrets list": Printed(list[Secret]),
    "images list": Printed(list[Image]),
    "images scan": Printed(list[Vulnerability]),
    "images check": Printed(list[ImageFinding]),
    "images verify": Printed(Verified),
    "cluster status": Printed(list[Part]),
    "local status": Printed(list[Local]),
}
WITHOUT: Final[dict[str, str]] = {
    "schema": "it prints the JSON Schema itself; with a field, a text for people",
    "render": "it prints the manifests themselves, and `-o` is where they are written",
    "dev": "the output is another program's; `status -l slipway-dev` lists sessions",
    "exec": "the output is another program's",
    "forward": "it prints nothing; it keeps a connection open",
    "monitor": "it prints an address; `status`, `results` and `cost` tell the same in JSON",
    "trace": "it prints only how many spans were sent; the collector has them",
    "completion": "it prints a shell's script",
    "secrets set": "it prints only where the value is kept",
    "secrets remove": "it prints nothing",
    "secrets rm": "another name of `secrets remove`",
    "images build": "its output is the progress of a build; `images list` shows the result",
    "images push": "its output is the progress of a push; `images list` shows the result",
    "images prune": "its output is the progress of a removal",
    "cluster up": "its output is progress and advice; `cluster status` shows the result",
    "cluster down": "it prints progress only",
    "local start": "it prints nothing",
    "local stop": "it prints nothing",
    "local install": "it writes a systemd unit; `--print` prints that",
    "local uninstall": "it prints nothing",
    "local logs": "it prints the supervisor's log unchanged",
}
