"""Finds secrets that a job or a store's URL would show in job.json and in every manifest made from it.

`tokens` recognises a secret by its form; this module by its name (DB_PASSWORD, --api-key) or its place (the user in a
URL). A variable, a path or a placeholder only points to a secret and is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.spec.secrets.tokens import has_token

Route = tuple[str | int, ...]
Found = tuple[Route, str, str]  # (route, what is wrong, what is allowed)

_WORDS: Final = r"[_\-.]+|(?<=[a-z0-9])(?=[A-Z])"
_LAST: Final = frozenset(("password", "passwd", "passphrase", "secret", "token", "apikey", "credential", "credentials"))
_KEYS: Final = frozenset(
    (
        *("access", "account", "api", "auth", "client", "encryption", "master", "private", "secret", "shared"),
        *("signing", "ssh", "storage"),
    )
)
# an assignment of a variable in a text
_OF_TEXT: Final = frozenset(
    (
        *("add", "audio", "bos", "cls", "decoder", "disable", "end", "eos", "first", "image", "implicit", "last"),
        *("mask", "max", "min", "next", "num", "pad", "per", "prompt", "sep", "skip", "special", "start", "stop"),
        *("think", "trigger", "unk", "use", "video"),
    )
)
_NO_SECRET: Final = frozenset(
    (
        *("", "0", "1", "auto", "default", "disabled", "enabled", "false", "no", "none", "null", "off", "on"),
        *("optional", "required", "true", "yes"),
    )
)
_ELSEWHERE: Final = r"(?<!\$)\$[A-Za-z_{(]"
_PATH: Final = r"(?:\.{0,2}|~)/|file:"
_PLACEHOLDER: Final = r"<.*>|\[.*\]|\{\{.*\}\}|\*+|\.\.\.|…"
_SMALL_NUMBER: Final = r"-?[0-9]{1,6}(?:\.[0-9]*)?"
_AWS_SECRET: Final = r"[A-Za-z0-9/+]{40}"
_OPTION: Final = r"--?([A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?"
_ASSIGNED: Final = r"""(?:^|[\s;&|(`])([A-Z_][A-Z0-9_]*)=("[^"]*"|'[^']*'|[^\s;&|()"'`]+)"""
_LONG: Final = 8  # characters; a shorter value in config or arguments is not taken for a secret
_IN_CLEAR: Final = "its name says that it is a secret, and its value is written here in plain text"
_OF_URL: Final = "the URL without it; a command that needs it takes it from `secrets:`"
OF_STORE: Final = "scheme://bucket/prefix; keys come from the environment (AWS_ACCESS_KEY_ID, ...)"


def secret_name(name: str) -> bool:
    """Whether a name shows that its value is a secret.

    >>> [secret_name(name) for name in ("DB_PASSWORD", "apiKey", "MAX_TOKENS", "PAD_TOKEN", "TOKEN_FILE")]
    [True, True, False, False, False]
    """
    words = [word.lower() for word in re.split(_WORDS, name) if word]
    if not words:
        return False
    *before, last = words
    above = before[-1] if before else ""
    if last == "token":
        return above not in _OF_TEXT
    if last == "key":
        return above in _KEYS
    return last in _LAST or (last == "pwd" and above not in ("", "old")) or (above, last) == ("connection", "string")


def literal(value: object, name: str = "") -> bool:
    """Whether a value is the secret itself, rather than a reference to it."""
    if value is None or isinstance(value, bool):
        return False
    text = str(value).strip()
    if text.lower() in _NO_SECRET or re.search(_ELSEWHERE, text) or re.fullmatch(_PLACEHOLDER, text):
        return False
    if name.lower().endswith("token") and re.fullmatch(_SMALL_NUMBER, text):
        return False
    return re.match(_PATH, text) is None or re.fullmatch(_AWS_SECRET, text) is not None


def disclosures(document: Any) -> Iterator[Found]:
    """The secrets in a job (as written, or resolved and plain) that are recognised by name or place."""
    if not isinstance(document, Mapping):
        return
    yield from _kind_of_role(document, ())
    roles = document.get("roles")
    for name, role in roles.items() if isinstance(roles, Mapping) else ():
        if isinstance(role, Mapping):
            yield from _kind_of_role(role, ("roles", name))
    yield from _config(document.get("config"), ("config",))
    matrix = document.get("matrix")
    for path, values in matrix.items() if isinstance(matrix, Mapping) else ():
        head, _, last = str(path).rpartition(".")
        for index, value in enumerate(values) if isinstance(values, list) else ():
            if head == "env" or head.endswith(".env"):
                yield from _variable(last, value, ("matrix", path, index))
            elif head.startswith("config"):
                for _, message, allowed in _config({last: value}, ()):
                    yield ("matrix", path, index), message, allowed
    inputs = document.get("inputs")
    for name, item in inputs.items() if isinstance(inputs, Mapping) else ():
        url = item.get("url") if isinstance(item, Mapping) else item
        if isinstance(url, str) and _user(url):
            yield ("inputs", name), "the URL names a user or a password", _OF_URL
    store = document.get("store")
    if isinstance(store, str) and (message := of_store(store)):
        yield ("store",), message, OF_STORE


def of_store(url: str) -> str:
    """What is wrong with a store's URL that holds credentials; empty if it holds none. Never shows the credentials."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "file":
        return ""
    place, _, query = rest.partition("?")
    # a key may hold a slash, where URL parsers end the host; a bucket's name has no colon, but the address of a server
    # that somebody wrote in its place has a port
    host = place.partition("/")[0]
    if "@" in host or re.fullmatch(r"[^:]*:(?![0-9]{1,5}\Z).*", host) or has_token(url):
        return "the URL holds credentials, which would be written into every job"
    if not query:
        return ""
    from urllib.parse import parse_qsl

    for name, value in parse_qsl(query, keep_blank_values=True):
        if (
            name.lower().endswith(("sig", "signature", "key"))
            or secret_name(name)
            or (name == "endpoint" and _user(value))
        ):
            return "the URL holds credentials, which would be written into every job"
    return ""


def _user(url: str) -> bool:
    """Whether the URL of a server or a bucket holds a user name."""
    scheme, separator, rest = url.partition("://")
    return (
        bool(separator)
        and scheme in ("s3", "gs", "az", "http", "https")
        and "@" in re.split("[/?#]", rest, maxsplit=1)[0]
    )


def _kind_of_role(role: Mapping[str, Any], route: Route) -> Iterator[Found]:
    env = role.get("env")
    for name, value in env.items() if isinstance(env, Mapping) else ():
        yield from _variable(str(name), value, (*route, "env", name))
    command = role.get("command")
    if isinstance(command, list | tuple):
        yield from _command(command, (*route, "command"))


def _variable(name: str, value: object, route: Route) -> Iterator[Found]:
    if secret_name(name) and not isinstance(value, dict | list) and literal(value, name):
        yield route, _IN_CLEAR, _secret(name)


def _command(command: list[Any] | tuple[Any, ...], route: Route) -> Iterator[Found]:
    option = ""  # the previous argument, if it is an option whose value comes next
    for index, text in enumerate(command):
        if not isinstance(text, str):
            option = ""
            continue
        match = re.fullmatch(_OPTION, text, re.DOTALL)
        if option and match is None and len(text) >= _LONG and literal(text, option):
            yield (*route, index), f"`{option}`: {_IN_CLEAR}", _secret(option)
        option = match[1] if match and match[2] is None and secret_name(match[1]) else ""
        assignments = (
            [(match[1], match[2])] if match and match[2] else re.findall(_ASSIGNED, text) if "=" in text else []
        )
        for name, value in assignments:
            bare = value.strip("\"'")
            if secret_name(name) and len(bare) >= _LONG and literal(bare, name):
                yield (*route, index), f"`{name}`: {_IN_CLEAR}", _secret(name)


def _config(value: Any, route: Route) -> Iterator[Found]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, str):
                if len(item) >= _LONG and secret_name(str(key)) and " " not in item.strip() and literal(item, str(key)):
                    yield (*route, key), _IN_CLEAR, _secret(str(key))
            else:
                yield from _config(item, (*route, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _config(item, (*route, index))


def _secret(name: str) -> str:
    variable = re.sub(r"[^A-Z0-9_]", "_", name.upper())
    return f"`secrets: [{variable}]`, its value set by `launcher secrets set {variable}`; or a variable, or a path"
