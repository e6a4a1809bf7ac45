"""Numbers of the reward model that can be worked out by hand."""

from __future__ import annotations

import subprocess
import sys


def test_a_bad_configuration_is_found_without_importing_torch() -> None:
    code = (
        "import sys; import training.reward.train, training.dpo.train, training.reward.model, training.data.pairs.run;"
        "assert not {'torch', 'transformers', 'trl', 'datasets', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
