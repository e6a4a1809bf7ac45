"""The phone's shell: quotes, `;`, `&&` and `$?`, and nothing else. Any other sign of a shell that is not quoted is an
error here, so that a client which quotes too little is found out, and nothing of it ever reaches a real shell."""

from __future__ import annotations

from collections.abc import Callable

STATUS = "\0"  # stands for $? in a word
SPECIAL = set("$`|&<>()*?[]{}#~!\n\\\"'")


class BadShell(Exception):
    """What this shell does not know."""


def words_of(line: str) -> list[str | list[str]]:
    """Operators as they are, and words each as a list of one text."""
    out: list[str | list[str]] = []
    word: str | None = None
    at = 0
    while at < len(line):
        char = line[at]
        if char == "'":
            end = line.find("'", at + 1)
            if end < 0:
                raise BadShell("no closing quote")
            word, at = (word or "") + line[at + 1 : end], end + 1
        elif char == '"':
            word, at = _double(line, at + 1, word or "")
        elif line.startswith("$?", at):
            word, at = (word or "") + STATUS, at + 2
        elif char == "\\":
            word, at = (word or "") + line[at + 1 : at + 2], at + 2
        elif char in " ;" or line.startswith("&&", at):
            if word is not None:
                out.append([word])
                word = None
            if char != " ":
                out.append(";" if char == ";" else "&&")
            at += 2 if char == "&" else 1
        elif char in SPECIAL:
            raise BadShell(f"syntax error: unexpected {char!r}")
        else:
            word, at = (word or "") + char, at + 1
    if word is not None:
        out.append([word])
    return out


def _double(line: str, at: int, word: str) -> tuple[str, int]:
    while at < len(line) and line[at] != '"':
        if line.startswith("$?", at):
            word, at = word + STATUS, at + 2
        elif line[at] in "$`":
            raise BadShell(f"{line[at]!r} in double quotes")
        elif line[at] == "\\" and line[at + 1 : at + 2] in ("$", "`", '"', "\\"):
            word, at = word + line[at + 1], at + 2
        else:
            word, at = word + line[at], at + 1
    if at >= len(line):
        raise BadShell("no closing quote")
    return word, at + 1


def run(line: str, program: Callable[[list[str]], tuple[int, bytes, bytes]]) -> tuple[int, bytes, bytes, bytes]:
    """Exit status, output, errors, and both as they came, of a line. `program` runs one command."""
    try:
        tokens = words_of(line)
    except BadShell as error:
        told = f"sh: {error}\n".encode()
        return 2, b"", told, told
    status, out, err, both, skip = 0, b"", b"", b"", False
    command: list[str] = []
    for token in [*tokens, ";"]:
        if isinstance(token, list):
            command.append(token[0])
            continue
        if command and not skip:
            done = program([word.replace(STATUS, str(status)) for word in command])
            status, out, err, both = done[0], out + done[1], err + done[2], both + done[1] + done[2]
        command = []
        skip = token == "&&" and status != 0
    return status, out, err, both
