"""Libraries whose patterns are compiled at their first use."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from launcher import imports


def test_a_library_s_pattern_is_compiled_at_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slipway_patterns.py").write_text(
        "import re\nWORD = re.compile(r'(?P<first>[a-z])[a-z]*', re.I)\nWRONG = re.compile('(')\n"
    )
    (tmp_path / "slipway_fails.py").write_text("raise ValueError('while it loads')\n")
    monkeypatch.syspath_prepend(tmp_path)
    true = re.compile
    imports._load("slipway_patterns")
    with pytest.raises(ValueError, match="while it loads"):
        imports._load("slipway_fails")
    assert re.compile is true
    library = sys.modules.pop("slipway_patterns")
    assert library.WORD.match("Ab1")["first"] == "A"
    assert (library.WORD.sub("-", "1b2"), library.WORD.groups) == ("1-2", 1)
    with pytest.raises(re.error, match="missing \\)"):
        library.WRONG.match("")


def test_a_library_that_is_loaded_stays_as_it_is() -> None:
    import yaml

    imports.load_yaml()
    assert isinstance(yaml.reader.Reader.NON_PRINTABLE, re.Pattern)
