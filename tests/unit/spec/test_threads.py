"""The first job.json that a process reads may be read by several threads at once."""

from __future__ import annotations

import re
from pathlib import Path

from launcher import decoding


def test_only_one_module_decodes_into_a_type() -> None:
    """Elsewhere a thread could be the first to decode a class while another is."""
    package = Path(decoding.__file__).parent
    calls = re.compile(r"\.decode\([^\n]*type=|(json|msgpack)\.Decoder\(")
    found = {str(file.relative_to(package)) for file in package.rglob("*.py") if calls.search(file.read_text())}
    at_import = "backends/kubernetes/objects.py"
    assert found == {"decoding.py", at_import}
