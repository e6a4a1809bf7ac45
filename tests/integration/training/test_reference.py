"""Every field of a configuration is explained, and every entry point explains its own."""

from __future__ import annotations

import pytest

from eval.config import Config
from eval.config.help import rows
from eval.environments.registry import ENVIRONMENTS
from eval.run import RunConfig
from training.common.measuring.in_training import EvaluationConfig
from training.make_episodes import MakeEpisodesConfig
from training.reference import ENTRIES
from training.rl.config import RlConfig


@pytest.mark.parametrize("kind", [RunConfig, EvaluationConfig, MakeEpisodesConfig, RlConfig])
def test_a_field_that_names_an_environment_lists_all_of_them(kind: type[Config]) -> None:
    (words,) = (row.kind for row in rows(kind) if row.name == "environment")
    assert words == f"{', '.join(ENVIRONMENTS)}, or one of your own as `package.module:name`"


def test_importing_all_configurations_loads_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, training.reference; assert not {'torch', 'transformers', 'trl', 'datasets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(ENTRIES) == 25
