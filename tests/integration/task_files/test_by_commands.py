"""The player that leaves a solution's files by shell commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.solutions import commands
from eval.desktops.tools import MAX_GIVEN

LEAVING = [
    name
    for name, template in TEMPLATES.items()
    if not template.about.infeasible and (instance(name, "test", 0).targets() or instance(name, "test", 0).removed())
]


@pytest.mark.parametrize("name", LEAVING)
def test_the_commands_leave_the_right_files(name: str, tmp_path: Path) -> None:
    template = instance(name, "test", 0)
    for path in [*template.targets(), *template.removed()]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"what was there before, and longer than what comes" * 9)
    for command in commands(template):
        subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert {path: (tmp_path / path).read_bytes() for path in template.targets()} == dict(template.targets())
    assert not any((tmp_path / path).exists() for path in template.removed())


def test_a_large_file_with_an_odd_name_is_whole(tmp_path: Path) -> None:
    class Large:
        def targets(self) -> dict[str, bytes]:
            return {'a folder/it\'s "$(x)" ; -n.bin': bytes(range(256)) * 500}

        def removed(self) -> tuple[str, ...]:
            return ()

    told = commands(Large())  # type: ignore[arg-type]
    assert len(told) > 3
    assert all(len(command) <= MAX_GIVEN for command in told)  # the tool refuses longer ones
    for command in told:
        subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    (path,) = (tmp_path / "a folder").iterdir()
    assert path.read_bytes() == bytes(range(256)) * 500
