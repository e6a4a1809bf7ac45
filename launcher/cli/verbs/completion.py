"""`launcher completion`: prints a shell's completion script, made from the verbs' parsers, and the names that it
offers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module

SUMMARY = (
    "Print a completion script for a shell. Names of runs, groups and jobs come from the local cache, as `launcher "
    "status`, `groups` and `submit` last saw them; no store is asked."
)
EXAMPLE = "source <(launcher completion bash)\n  launcher completion fish | source"
MOST = 200  # run ids to offer; if there are more, only jobs and groups are offered


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", choices=("bash", "zsh", "fish", "names"), help="the shell; names: what its script offers, one per line"
    )
    parser.add_argument("words", nargs="*", metavar="-- WORD", help="names: what was typed after `launcher` so far")


def run(args: argparse.Namespace) -> int:
    if args.shell == "names":
        for name in names(args.words):
            print(name)
        return 0
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](), end="")
    return 0


# what is offered


def names(words: Sequence[str]) -> list[str]:
    """The runs, groups and jobs whose names begin with the last of the typed words. It must be fast, so it asks neither
    a store nor a cluster. With invalid settings it offers nothing."""
    import os
    from pathlib import Path

    from launcher.errors import SlipwayError
    from launcher.spec.profile import load_profile
    from launcher.userdata.cache import Cache

    given = {option: words[k + 1] for k, option in enumerate(words[:-1]) if option in ("--store", "--profile")}
    begin = words[-1] if words else ""
    try:
        store = load_profile(Path.cwd(), given.get("--profile"), os.environ, given.get("--store")).store
    except SlipwayError:
        return []
    with Cache() as cache:
        runs, groups = cache.names(store, "run"), cache.names(store, "group")
    jobs = {run.rpartition("-")[0] for run in runs}
    runs = [run for run in runs if run.startswith(begin)]
    offered = {name for name in (*jobs, *groups) if name.startswith(begin)}
    return sorted(offered.union(runs) if len(runs) <= MOST else offered)


# what the scripts are made of


@dataclass
class _Verb:
    """What may follow a verb: words with their help; the values of each option (empty: any value); whether its
    arguments are names of runs or files."""

    line: str
    words: list[tuple[str, str]] = field(default_factory=list)
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    names: bool = False
    files: bool = False


NAMES = ("names", "name", "a", "b")  # arguments that name runs
FILES = ("paths", "path", "a", "b")


def verbs() -> dict[str, _Verb]:
    """Every verb of this version."""
    from launcher.cli import VERBS
    from launcher.spec.backends import backends

    known = {"--backend": tuple(backends())}  # checked where the job is read, so that one message names what is allowed
    table = {}
    for verb, (module, line) in VERBS.items():
        parser = argparse.ArgumentParser(prog=verb)
        try:
            import_module(module).add(parser)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            continue
        table[verb] = verb_of = _Verb(line, list(_words(parser)))
        for action in parser._actions:
            takes = action.option_strings and action.nargs != 0
            choices = tuple(map(str, action.choices)) if action.choices and takes else ()
            for option in action.option_strings if takes else ():
                verb_of.values[option] = choices or known.get(option, ())
            if not action.option_strings:
                verb_of.names |= action.dest in NAMES and not action.choices
                verb_of.files |= action.dest in FILES
    return table


def _words(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
        for option in action.option_strings:
            yield option, text % {**vars(action), "prog": parser.prog} if "%" in text else text
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name in action.choices:
                yield name, helps.get(name, "")
        elif action.choices and not action.option_strings:
            for choice in action.choices:
                yield str(choice), ""


def bash() -> str:
    every = verbs()
    cases = "\n".join(
        f"    {verb}) words='{' '.join(word for word, _ in entry.words)}' names={'1' if entry.names else ''}"
        f" files={'1' if entry.files else ''};;"
        for verb, entry in every.items()
    )
    values = "\n".join(
        f"    {' | '.join(_quoted(f'{verb} {option}') for option in options)})"
        f" COMPREPLY=($(compgen -W '{' '.join(choices)}' -- \"$current\")); return;;"
        for verb, entry in every.items()
        for choices, options in _by_choices(entry)
        if choices
    )
    free = " | ".join(_free(every))
    return f"""\
_launcher() {{
  local IFS=$' \\t\\n' current=${{COMP_WORDS[COMP_CWORD]}} words= names= files=
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W '{" ".join(every)}' -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}
    {free}) return;;
  esac
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  if [[ $names && $current != -* ]]; then
    words=$("${{COMP_WORDS[0]}}" completion names -- "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null)
    [[ $files ]] || compopt +o default
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _launcher launcher
"""


def _by_choices(verb: _Verb) -> list[tuple[tuple[str, ...], list[str]]]:
    """(values, the options that take them)."""
    by_choices: dict[tuple[str, ...], list[str]] = {}
    for option, choices in verb.values.items():
        by_choices.setdefault(choices, []).append(option)
    return list(by_choices.items())


def _free(table: Mapping[str, _Verb]) -> list[str]:
    """`verb --option` for every option that takes any value."""
    return [
        _quoted(f"{verb} {option}")
        for verb, entry in table.items()
        for option, values in entry.values.items()
        if not values
    ]


def zsh() -> str:
    table = verbs()
    lines = "\n".join(f"    {_quoted(f'{verb}:{entry.line}')}" for verb, entry in table.items())
    values = "\n".join(
        f"    {'|'.join(_quoted(f'{verb} {option}') for option in options)}) compadd -- {' '.join(choices)}; return;;"
        for verb, entry in table.items()
        for choices, options in _by_choices(entry)
        if choices
    )
    free = "|".join(_free(table))
    cases = "\n".join(
        f"    {verb}) found=({' '.join(_quoted(_colon(word, text)) for word, text in entry.words)})"
        f" names={'1' if entry.names else ''} files={'1' if entry.files or not entry.names else ''};;"
        for verb, entry in table.items()
    )
    return f"""\
#compdef launcher
_launcher() {{
  local -a verbs found known
  local names= files=
  verbs=(
{lines}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  case "$words[2] $words[CURRENT-1]" in
{values}
    {free}) _files; return;;
  esac
  case $words[2] in
{cases}
  esac
  if [[ -n $names && $words[CURRENT] != -* ]]; then
    known=(${{(f)"$($words[1] completion names -- "${{(@)words[2,CURRENT]}}" 2>/dev/null)"}})
    compadd -a known
  else
    _describe option found
  fi
  [[ -n $files ]] && _files
}}
compdef _launcher launcher
"""


def _colon(word: str, text: str) -> str:
    return f"{word}:{text}" if text else word


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish() -> str:
    lines = ["complete -c launcher -n __fish_use_subcommand -f"]
    offered = "(launcher completion names -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)"
    for verb, entry in verbs().items():
        lines.append(f"complete -c launcher -n __fish_use_subcommand -a {verb} -d {_fish(entry.line)}")
        where = f"complete -c launcher -n '__fish_seen_subcommand_from {verb}'"
        if entry.names:
            lines.append(f"{where}{'' if entry.files else ' -f'} -a {_fish(offered)}")
        for word, text in entry.words:
            about = f" -d {_fish(text)}" if text else ""
            takes = ""
            if word in entry.values:
                takes = f" -x -a {_fish(' '.join(entry.values[word]))}" if entry.values[word] else " -r"
            if word.startswith("--"):
                lines.append(f"{where} -l {word[2:]}{takes}{about}")
            elif word.startswith("-"):
                lines.append(f"{where} -s {word[1:]}{takes}{about}")
            else:
                lines.append(f"{where} -a {word}{about}")
    return "\n".join(lines) + "\n"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
