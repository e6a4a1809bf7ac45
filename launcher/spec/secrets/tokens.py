"""Finds secrets in a text by their form. Reports their place and kind, never their value.

Every search takes time linear in the length of the text: no pattern backtracks over text that it has read before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple


class Token(NamedTuple):
    """text[start:end] looks like a secret; `kind` names it in words, such as "an AWS key"."""

    start: int
    end: int
    kind: str


class _Kind(NamedTuple):
    """
    marks     every match holds one of these; a text without any skips the pattern, which is slow to compile
    pattern   a regular expression; its last group, if it has groups, is the secret
    sure      a final check of the match
    """

    name: str
    marks: tuple[str, ...]
    pattern: str
    sure: Callable[[str], bool] = bool


_WORD: Final = r"(?<![A-Za-z0-9])"


def _api_key(text: str) -> bool:
    return any(char in "0123456789" for char in text)


def _literal(text: str) -> bool:
    """Whether a text is a literal, not a variable or a placeholder."""
    return text[:1] not in "$<{*" and "{" not in text


_KINDS: Final = (
    _Kind("a Hugging Face token", ("hf_",), _WORD + r"hf_[A-Za-z0-9]{16,}"),
    # if the first `sk-` of a word begins no key, a later `sk-` in that word begins none either
    _Kind("an API key", ("sk-",), _WORD + r"(sk-[A-Za-z0-9_-]*)", lambda text: len(text) >= 23 and _api_key(text)),
    _Kind("an API key", ("k_live_",), _WORD + r"[sr]k_live_[A-Za-z0-9]{16,}"),
    _Kind("an AWS key", ("AKIA", "ASIA"), _WORD + r"(?:AKIA|ASIA)[A-Z0-9]{16}"),
    _Kind(
        "an AWS secret key",
        ("secret_access_key", "SECRET_ACCESS_KEY"),
        r"(?:aws_secret_access_key|AWS_SECRET_ACCESS_KEY)[\"']?[ \t]*[=:][ \t]*[\"']?"
        r"([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    _Kind("a GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), _WORD + r"gh[pousr]_[A-Za-z0-9]{20,}"),
    _Kind("a GitHub token", ("github_pat_",), _WORD + r"github_pat_[A-Za-z0-9_]{20,}"),
    _Kind("a GitLab token", ("glpat-",), _WORD + r"glpat-[A-Za-z0-9_-]{20,}"),
    _Kind("a Slack token", ("xox",), _WORD + r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    # who knows such an address writes into the channel
    _Kind(
        "the address of a webhook",
        ("hooks.slack.com/", "webhook.office.com/", "/api/webhooks/"),
        r"(?:hooks\.slack\.com/(?:services|workflows|triggers)|[A-Za-z0-9-]\.webhook\.office\.com/webhookb2"
        r"|outlook\.office\.com/webhook|discord(?:app)?\.com/api/webhooks)(/[A-Za-z0-9/@_-]{20,})",
        _api_key,
    ),
    # a revision of git has the same form: the name before it decides (Weights & Biases, netrc)
    _Kind(
        "a key of 40 hexadecimal digits",
        ("ey", "EY", "ecret", "ECRET", "oken", "OKEN", "assw", "ASSW"),
        r"(?i)(?:api[_-]?key|access[_-]?key|secret[_-]?key|secret|token|passw(?:or)?d)[\"']?(?:[ \t]{0,9}[=:]|[ \t])"
        r"[ \t]{0,9}[\"']?([0-9a-f]{40})(?![0-9a-z])",
    ),
    _Kind("a Google API key", ("AIza",), _WORD + r"AIza[A-Za-z0-9_-]{35}"),
    _Kind("an npm token", ("npm_",), _WORD + r"npm_[A-Za-z0-9]{36}"),
    _Kind("a PyPI token", ("pypi-",), _WORD + r"pypi-[A-Za-z0-9_-]{50,}"),
    # linear: each word is read once as a first part and at most once as a second part
    _Kind(
        "a web token",
        ("eyJ",),
        _WORD + r"(eyJ[A-Za-z0-9_-]*(?:\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+)?)",
        lambda text: len(text.partition(".")[0]) >= 13 and "." in text,
    ),
    _Kind("a private key", ("-----BEGIN ",), r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    _Kind("the key of a kubeconfig", ("client-key-data",), r"client-key-data[\"']?:[ \t]*[\"']?([A-Za-z0-9+/=]{40,})"),
    _Kind("an Azure account key", ("AccountKey=",), r"AccountKey=([A-Za-z0-9+/=]{40,})"),
    _Kind(
        "the signature of a URL",
        ("ig=", "ignature="),
        r"(?i)[?&;](?:x-amz-|x-goog-)?sig(?:nature)?=([A-Za-z0-9%/+=_.~-]{20,})",
    ),
    _Kind(
        "a token in a URL",
        ("oken=", "OKEN=", "key=", "KEY=", "Key=", "assword=", "ecret="),
        r"(?i)[?&](?:x-amz-security-token|(?:access_|auth_|private_)?token|api_?key|client_secret|password)"
        r"=([A-Za-z0-9%/+=_.~-]{16,})",
        _api_key,
    ),
)
_URL: Final = "a password in a URL"
_UNTIL_AT: Final = r"://([^\s@\"'`<>|]*)(@?)"
_USER: Final = r"[^/\s:@\[\]]*:(?![0-9]{1,5}[/?#,;)\]])(.+)"


def find(text: str) -> list[Token]:
    """The tokens in a text, in order. A token within another is left out."""
    tokens = sorted(_find(text), key=lambda token: (token.start, -token.end)) if len(text) >= 8 else []
    out: list[Token] = []
    for token in tokens:
        if not out or token.start >= out[-1].end:
            out.append(token)
    return out


def has_token(text: str) -> bool:
    return len(text) >= 8 and next(_find(text), None) is not None


def mask(text: str) -> str:
    """The text with every token replaced by stars."""
    parts, at = [], 0
    for token in find(text):
        parts += [text[at : token.start], "***"]
        at = token.end
    return "".join([*parts, text[at:]]) if parts else text


def _find(text: str) -> Iterator[Token]:
    for kind in _KINDS:
        if any(mark in text for mark in kind.marks):
            for match in re.finditer(kind.pattern, text):
                group = match.lastindex or 0
                if kind.sure(match[group]):
                    yield Token(*match.span(group), kind.name)
    if "://" in text and "@" in text:
        yield from _urls(text)


def _urls(text: str) -> Iterator[Token]:
    """`user:password` in URLs. A password may hold forbidden characters, such as a slash. A port is not taken for a
    password."""
    for match in re.finditer(_UNTIL_AT, text):
        if match[2]:
            inside = match[1].rpartition("://")[2]
            user = re.fullmatch(_USER, inside)
            if user is not None and _literal(user[1]):
                yield Token(match.end(1) - len(inside), match.end(1), _URL)
