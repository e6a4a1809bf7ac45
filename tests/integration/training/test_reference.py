"""Every field of a configuration is explained, and every entry point explains its own."""

from __future__ import annotations

from training.reference import ENTRIES


def test_importing_all_configurations_loads_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, training.reference; assert not {'torch', 'transformers', 'trl', 'datasets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(ENTRIES) == 20
