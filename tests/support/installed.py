"""Slipway as somebody has it who made no clone: the wheel of these sources, in an environment of its own."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from tests.support.documented import tracked
from tests.support.made_once import made_once
from tests.unit.test_project import PROJECT
from tools import wheel

BASE: Final = tuple(re.split(r"[^\w.-]", line)[0] for line in PROJECT["project"]["dependencies"])
_INSTALL: Final = """
import sys, zipfile
from pathlib import Path
with zipfile.ZipFile(sys.argv[1]) as archive:
    for entry in archive.infolist():
        file = Path(archive.extract(entry, sys.argv[2]))
        if entry.external_attr >> 16 & 0o111:
            file.chmod(0o755)
"""


def needed(names: Iterable[str]) -> dict[str, Distribution]:
    """Distributions of this environment with all that they need, by name."""
    found: dict[str, Distribution] = {}
    wanted = list(names)
    while wanted:
        one = distribution(wanted.pop())
        if one.name not in found:
            found[one.name] = one
            # what only an extra brings, or another system, has a marker
            wanted += [re.split(r"[^\w.-]", line)[0] for line in one.requires or () if ";" not in line]
    return found


def _make(folder: Path, extras: bool, state: str) -> None:
    """`state`: of the sources; another one is another folder."""
    (file,) = (path for path in wheel.make(folder / "dist") if path.suffix == ".whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    subprocess.run([sys.executable, "-c", _INSTALL, str(file), str(site)], check=True)
    script = venv / "bin" / "launcher"
    script.write_text(f"#!{venv}/bin/python\nimport sys\nfrom launcher.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    here = Path(sysconfig.get_path("purelib"))
    if extras:  # a folder that a .pth adds is no place of further .pth files, such as that of this clone
        (site / "extras.pth").write_text(f"{here}\n")
        return
    for one in needed(BASE).values():
        for top in {path.parts[0] for path in one.files or () if ".." not in path.parts}:
            if top != "__pycache__" and not (site / top).exists():
                (site / top).symlink_to(here / top)


def environment(*, extras: bool) -> Path:
    """A virtual environment with the wheel; `extras`: with all packages of this one, else with the base dependencies
    alone. The wheel and the sdist lie in ../dist."""
    # `made_once` knows the sources of training and eval alone
    packed = ("launcher", "examples", "images", "k8s", "docs", "tools", "pyproject.toml", "README.md")
    state = hashlib.sha256(b"".join(f"{path}\0".encode() + path.read_bytes() for path in tracked(*packed))).hexdigest()
    return made_once("wheel-extras" if extras else "wheel-base", _make, extras, state) / "venv"


def environ(venv: Path, home: Path) -> dict[str, str]:
    """The environment of a new user's shell: nothing of this clone."""
    kept = ("OMP_NUM_THREADS", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "LANG", "TMPDIR")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PATH": f"{venv}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "NO_COLOR": "1",
    }


def run(line: str, venv: Path, folder: Path, timeout: float = 600.0) -> subprocess.CompletedProcess[str]:
    """A line as it is typed into a shell."""
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environ(venv, folder.parent / "home"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def stopped(venv: Path, folder: Path) -> Iterator[Path]:
    """An empty folder for a test, whose local queue is ended with it."""
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        run("launcher local stop --runs", venv, folder)
