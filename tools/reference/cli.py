"""Makes docs/reference/cli.md from the parsers of the command line. `make golden` writes it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from unittest import mock

from launcher.cli import VERBS
from launcher.cli.arguments import parser
from training.data.__main__ import VERBS as DATA_VERBS
from training.reference import ENTRIES

INTRO: Final = """\
# The command line

Written by `make golden` from the parsers themselves; do not edit. `launcher VERB --help` prints the same.

```text
launcher VERB [options]
```

Every verb takes `--help`. `-o json` prints one document, which [What `-o json` prints](json.md) describes. Names of
runs may be shortened to any unique beginning.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the run failed |
| 2 | bad input: the message names the file, the line and the field |
| 3 | not found |
| 4 | the backend or the store does not answer, or a record in it cannot be read |
| 5 | conflict: another object has this name |
| 70 | a fault of the launcher itself |

"""


PROGRAMS_INTRO: Final = """\
## Programs of training and evaluation

A job's command calls these. What stands in the file of `--config` is in [Configurations](training-config.md). They end
with 0, with 1 when the work failed, and with 78 for a wrong configuration, which no retry can mend.

| program | what it does |
|---|---|"""
OTHERS: Final = ("training.plan", "eval.replay")
PROGRAMS: Final = (*(f"training.data {verb}" for verb in DATA_VERBS), *ENTRIES, *OTHERS)


def page() -> str:
    """The text of docs/reference/cli.md."""
    lines = ["| verb | what it does |", "|---|---|"]
    lines += [f"| [`{verb}`](#launcher-{verb}) | {_cell(summary)} |" for verb, (_, summary) in VERBS.items()]
    for verb, (module, _) in VERBS.items():
        lines += ["", *_section(parser(verb, module))]
    programs = [program_parser(name) for name in dict.fromkeys(PROGRAMS)]
    lines += ["", PROGRAMS_INTRO]
    lines += [f"| `{program.prog}` | {_cell(program.description or '')} |" for program in programs]
    for program in programs:
        lines += ["", *_section(program, epilog=False, level=3)]
    return INTRO + "\n".join(lines) + "\n"


class _Parsed(Exception):
    """Passes the parser of a program out of its `main`."""

    def __init__(self, command: argparse.ArgumentParser) -> None:
        self.command = command


def program_parser(name: str) -> argparse.ArgumentParser:
    """The parser of `python -m NAME`; `NAME` may end with a verb."""
    module, *arguments = name.split()
    if hasattr(import_module(module), "__path__") and find_spec(f"{module}.__main__") is not None:
        module += ".__main__"

    def stop(command: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise _Parsed(command)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", stop):
        try:
            import_module(module).main(arguments)
        except _Parsed as parsed:
            return parsed.command
    raise ValueError(f"python -m {name} reads its arguments in another way")


def _section(command: argparse.ArgumentParser, *, epilog: bool = True, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} {command.prog}"
    if command.description:
        yield f"\n{_sentence(command.description)}"
    yield f"\n```text\n{_usage(command)}\n```"
    rows = [row for action in command._actions if (row := _row(command, action))]
    if rows:
        yield "\n| argument | meaning |\n|---|---|"
        yield from rows
    if command.epilog and epilog:
        yield f"\n```text\n{command.epilog.strip()}\n```"
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in dict.fromkeys(action.choices.values()):
                yield ""
                yield from _section(inner)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!", ":")) else ".")


def _usage(command: argparse.ArgumentParser) -> str:
    """The usage on one line, the same in every version of Python, unlike `format_usage`."""
    words = [command.prog]
    options = [action for action in command._actions if action.option_strings and action.dest != "help"]
    words += [" ".join((action.option_strings[-1], *_value(action))) for action in options if action.required]
    words += ["[options]"] if any(not action.required for action in options) else []
    for action in command._actions:
        if action.option_strings:
            continue
        name = _value(action)[0]
        if isinstance(action, argparse._SubParsersAction):
            name = "{" + ",".join(action.choices) + "}"
        words.append({"*": f"[{name} ...]", "+": f"{name} [{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name))
    return " ".join(words)


def _row(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    if action.help == argparse.SUPPRESS or action.dest == "help":
        return ""
    if isinstance(action, argparse._SubParsersAction):
        return ""
    shown = ", ".join(action.option_strings) if action.option_strings else ""
    name = " ".join(filter(None, (shown, *_value(action))))
    meaning = command._get_formatter()._expand_help(action).removesuffix(", below") if action.help else ""
    if action.choices is not None:
        meaning += f"{'; ' if meaning else ''}one of {', '.join(map(str, action.choices))}"
    return f"| `{_cell(name)}` | {_cell(meaning)} |"


def _value(action: argparse.Action) -> tuple[str, ...]:
    """The name of the value that an argument takes; empty for a flag."""
    if action.nargs == 0:
        return ()
    if isinstance(action.metavar, tuple):
        return action.metavar
    return (action.metavar or (action.dest.upper() if action.option_strings else action.dest),)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
