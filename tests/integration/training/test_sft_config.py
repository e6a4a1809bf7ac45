"""What a configuration of training may say, and how it is refused."""

from __future__ import annotations

import subprocess
import sys


def test_a_bad_configuration_is_found_without_importing_torch() -> None:
    code = (
        "import sys; from training import sft, make_episodes, tiny;"
        "assert not {'torch', 'transformers', 'trl', 'datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
