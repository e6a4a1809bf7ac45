"""The verbs submit, cancel, retry, local and completion, called as a user calls them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from launcher.cli import VERBS, main
from launcher.cli.verbs import completion
from tests.support.needs import need


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_verb_and_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    verbs = completion.verbs()
    assert set(verbs) <= set(VERBS)
    assert {"submit", "cancel", "retry", "secrets", "local"} <= set(verbs)
    for verb, one in verbs.items():
        assert verb in script
        for word, _ in one.words:
            assert word.lstrip("-") in script
    if shutil.which(shell):
        check = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
        assert (check.returncode, check.stderr) == (0, "")


def test_bash_completes(tmp_path: Path) -> None:
    need("bash")
    script = completion.bash() + 'COMP_WORDS=(launcher submit --f); COMP_CWORD=2; _launcher; echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"--fresh", "--follow"}
    assert re.search(r"complete .* launcher", completion.bash())
