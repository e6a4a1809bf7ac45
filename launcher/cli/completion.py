"""launcher completion: a shell's completion script, made from the verbs and their options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module

SUMMARY = "Prints a completion script for a shell."
EXAMPLE = "source <(launcher completion bash)"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> int:
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](), end="")
    return 0


def words() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """verb -> (its line, [(word, help)]): the words that may follow it, options and sub-verbs."""
    from launcher.cli import VERBS

    found = {}
    for verb, (module, line) in VERBS.items():
        parser = argparse.ArgumentParser(prog=verb)
        try:
            import_module(module).add(parser)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            continue
        found[verb] = line, list(_words(parser))
    return found


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
    cases = "\n".join(
        f"    {verb}) words='{' '.join(word for word, _ in found)}';;" for verb, (_, found) in words().items()
    )
    return f"""\
_launcher() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words=
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W '{" ".join(words())}' -- "$current"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _launcher launcher
"""


def zsh() -> str:
    verbs = "\n".join(f"    {_zsh(f'{verb}:{line}')}" for verb, (line, _) in words().items())
    cases = "\n".join(
        f"    {verb}) found=({' '.join(_zsh(_colon(word, text)) for word, text in found)});;"
        for verb, (_, found) in words().items()
    )
    return f"""\
#compdef launcher
_launcher() {{
  local -a verbs found
  verbs=(
{verbs}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  case $words[2] in
{cases}
  esac
  _describe option found
  _files
}}
compdef _launcher launcher
"""


def _colon(word: str, text: str) -> str:
    return f"{word}:{text}" if text else word


def _zsh(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish() -> str:
    lines = ["complete -c launcher -n __fish_use_subcommand -f"]
    for verb, (line, found) in words().items():
        lines.append(f"complete -c launcher -n __fish_use_subcommand -a {verb} -d {_fish(line)}")
        for word, text in found:
            where = f"complete -c launcher -n '__fish_seen_subcommand_from {verb}'"
            about = f" -d {_fish(text)}" if text else ""
            if word.startswith("--"):
                lines.append(f"{where} -l {word[2:]}{about}")
            elif word.startswith("-"):
                lines.append(f"{where} -s {word[1:]}{about}")
            else:
                lines.append(f"{where} -a {word}{about}")
    return "\n".join(lines) + "\n"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
