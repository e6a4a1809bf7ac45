"""Describes every field of a job from its declaration: docs/reference/job.md and `launcher schema FIELD`.

`python -m launcher.spec.reference > docs/reference/job.md` writes the page; a test keeps it current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from launcher.errors import BadInput
from launcher.spec.check.schema import BLOCKS, JOB
from launcher.spec.code.shadowed import EXTEND
from launcher.spec.profile import PROFILE
from launcher.spec.values.problems import near
from launcher.spec.values.structures import Field, Forms, ListOf, MapOf, Reviewed, Struct
from launcher.spec.values.types import Quantity, Text, Type

_INTRO = """\
# The job file

Written by `python -m launcher.spec.reference`; do not edit. `launcher schema FIELD` prints one entry,
`launcher schema > job.schema.json` gives editors completion and checks.

A file holds one job or, separated by `---`, several; a folder of files counts as one file. Inputs from other jobs make
a pipeline of them. Unknown fields, wrong types and texts that look like secrets are errors, all reported at once with
file, line and column. YAML is read as YAML 1.2: `on` and `no` are texts, `0777` is 777, duplicate keys are errors.

`$SLIPWAY_NAME` (or `${SLIPWAY_NAME}`) is replaced in `command`, `config` and `env`; `$$SLIPWAY_NAME` stands for that
text itself; every other `$` is left alone. Durations: `90s`, `15m`, `6h`, `1h30m`, `2d`. Sizes: `500M`, `64Gi`.
"""
_OVERLAY: Final = f"""\
## Code of your own

Of the folder, what git tracks or would track is packed, submodules included; without git, what no `.gitignore` names.
A `.slipwayignore` (the grammar of `.gitignore`) leaves out more. What the launcher wrote into the folder (reports,
gathered runs, rendered jobs, results, the file of its own output) stays out unless git tracks it. What is left out is
told in a line.

The command starts in the folder that `code` names, and Python looks for modules there before it looks at what the image
holds. So give your own packages names other than `training`, `eval` and `launcher`. A package of one of these names
hides Slipway's whole package from the command; a job whose command needs a hidden module is refused.

To replace one module of Slipway on purpose, put your version under the same path, for example
`training/data/samples.py`, and this line into the `__init__.py` of every package above it, here `training/__init__.py`
and `training/data/__init__.py`. Modules that your folder lacks are then taken from Slipway:

```python
{EXTEND}
```

Without an `__init__.py` a folder replaces nothing: Python uses Slipway's package.
"""
_PROFILE_INTRO = """\
## slipway.yaml

Defaults that belong to a project, a user or a machine. The first that sets a field wins: the command line
(`--store`, `--backend`), `SLIPWAY_STORE`, `SLIPWAY_BACKEND`, the project's `slipway.yaml` (in the working folder or a
parent), the user's (`$XDG_CONFIG_HOME/slipway/slipway.yaml`). Mappings are merged key by key. `--profile NAME` (or
`SLIPWAY_PROFILE`) puts a named profile above the rest of its file. What a run needs of all this is written into its
job.json; `launcher render FILE --explain` says where each value came from.
"""


def page() -> str:
    """The text of docs/reference/job.md."""
    parts = [
        _INTRO,
        "## Fields\n",
        _table(JOB, ""),
        _OVERLAY,
        _PROFILE_INTRO,
        _table(PROFILE, "", skip=(*BLOCKS, "profiles")),
    ]
    local = PROFILE.fields["local"].type
    assert isinstance(local, Struct)
    parts += [
        _table(local, "local", parent=PROFILE.fields["local"]),
        "Blocks of the other backends hold defaults for the job's block of that name.\n",
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def _table(struct: Struct, prefix: str, skip: tuple[str, ...] = (), parent: Field | None = None) -> str:
    rows = ["| field | type | without it | what it is |", "|---|---|---|---|"]
    if parent is not None:
        rows.append(_row(prefix, parent))
    rows += [_row(path, item) for path, item in fields(struct, prefix) if path.split(".")[0] not in skip]
    return "\n".join(rows) + "\n"


def _row(path: str, item: Field) -> str:
    default = "required" if item.required else item.default
    return f"| `{path}` | {_cell(type_name(item.type))} | {_cell(default)} | {_cell(item.doc)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def type_name(kind: Type) -> str:
    """A type in words, with the allowed values."""
    if isinstance(kind, Forms):
        short = [type_name(form) for form, _ in kind.short.values()]
        return ", or ".join([*short, *(["a mapping"] if kind.long else [])])
    allowed = getattr(kind, "allowed", "")
    if isinstance(kind, Text | Quantity) or allowed:
        return f"{kind.name} ({allowed})" if allowed else kind.name
    return kind.name


def fields(struct: Struct, prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Every field below a structure, with its dotted path; `NAME` stands for a key, `[]` for an index of a list."""
    for name, item in struct.fields.items():
        path = f"{prefix}.{name}" if prefix else name
        yield path, item
        for inner, deeper in _inside(item.type, path):
            yield from fields(inner, deeper)


def _inside(kind: Type, path: str) -> Iterator[tuple[Struct, str]]:
    if isinstance(kind, Struct):
        yield kind, path
    elif isinstance(kind, MapOf):
        yield from _inside(kind.item, f"{path}.NAME")
    elif isinstance(kind, ListOf):
        yield from _inside(kind.item, f"{path}[]")
    elif isinstance(kind, Reviewed):
        yield from _inside(kind.type, path)
    elif isinstance(kind, Forms):
        for struct in kind.long.values():
            yield from _inside(struct, path)


def explain(field: str, struct: Struct) -> str:
    """The meaning of one field, and the fields within it. Raises BadInput for an unknown field."""
    known: dict[str, list[Field]] = {}
    for path, item in fields(struct):
        known.setdefault(path, []).append(item)
    # `inputs.model.step` is `inputs.NAME.step`
    field = next((path for path in known if _matches(path.split("."), field.split("."))), field)
    if field not in known:
        raise BadInput(
            f"no field `{field}`{near(field, known)}; allowed: {', '.join(struct.fields)}, or a path into them"
        )
    lines = []
    for item in known[field]:
        lines += [field, f"  {item.doc}", f"  type: {type_name(item.type)}"]
        default = "required" if item.required else item.default
        lines += [f"  without it: {default}"] if default else []
        inner = {path: nested for part, at in _inside(item.type, field) for path, nested in fields(part, at)}
        width = max(map(len, inner), default=0)
        lines += [f"    {path:<{width}}  {nested.doc}" for path, nested in inner.items()]
    return "\n".join(lines)


def _matches(pattern: list[str], path: list[str]) -> bool:
    return len(pattern) == len(path) and all(p in (k, "NAME") for p, k in zip(pattern, path, strict=True))


if __name__ == "__main__":
    sys.stdout.write(page())
