"""What a GRPO configuration may say, how it is refused, and what TRL gets of it."""

from __future__ import annotations

import subprocess
import sys


def test_a_bad_configuration_is_found_without_importing_torch() -> None:
    code = (
        "import sys; from training import grpo, rewards;"
        "assert not {'torch', 'transformers', 'trl', 'datasets', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
