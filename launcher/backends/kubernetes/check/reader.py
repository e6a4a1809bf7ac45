"""YAML as Kubernetes reads it, with the place of every value.

Kubernetes' parser follows YAML 1.1 (`on` is true, `0444` is 292), ours follows 1.2. Here numbers have Kubernetes'
meaning. A word that is a boolean to one parser and a string to the other is refused: in quotes, it means the same to
both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from launcher.spec.values.problems import Problems
from launcher.spec.values.source import Composer, Node, YamlDocument, read_text

_WORDS: Final = frozenset(
    form for word in ("y", "n", "yes", "no", "on", "off") for form in (word, word.capitalize(), word.upper())
)
_STARTS: Final = frozenset("yYnNoO+-0")


class ManifestComposer(Composer):
    """Reads scalars as YAML 1.1 where it differs from 1.2."""

    def scalar(self, event: Any) -> Node:
        text = event.value
        if text[:1] in _STARTS and event.tag is None and event.implicit[0]:
            if text in _WORDS:
                self.problem(
                    event, f"`{text}` is a boolean to Kubernetes and a text to others", f'"{text}" or true, false'
                )
            elif re.fullmatch(r"[-+]?0[0-7]+", text):
                return Node("scalar", int(text, 8), event.start_mark.line + 1, event.start_mark.column + 1, text)
        return super().scalar(event)


def read(texts: Mapping[str, str], problems: Problems) -> list[YamlDocument]:
    """The documents of all files. `texts`: file name -> text; a text that cannot be read is reported in `problems`."""
    documents: list[YamlDocument] = []
    for name, text in texts.items():
        documents += read_text(text, name, problems, composer=ManifestComposer)
    return documents
