"""setuptools' commands that put examples/, images/, k8s/ and docs/ into the wheel, under launcher/packed/, and into the
sdist (pyproject.toml, tool.setuptools.cmdclass). launcher/trees.py finds them.

Imports only setuptools: pip runs it in an environment that has nothing else.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

PACKED: Final = "launcher/packed"
# What the Dockerfiles copy besides the packages and images/, too; no pictures of the documents
TREES: Final = ("docs/*.md", "examples", "images", "k8s", "tools/desktop-packages.txt", "tools/uv.lock")
OWN: Final = ("tools/__init__.py", "tools/packing.py")


def packed_files() -> list[str]:
    """The files of TREES in the working folder, sorted: what Git tracks; in an sdist, which has no other, all."""
    if Path(".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z", "--", *TREES], capture_output=True, check=False)
        if not listed.returncode:
            return sorted(name for name in os.fsdecode(listed.stdout).split("\0") if name and Path(name).is_file())
    patterns = (f"{tree}/**/*" if Path(tree).is_dir() else tree.replace("/*", "/**/*") for tree in TREES)
    found = (path for pattern in patterns for path in Path().glob(pattern))
    return sorted(path.as_posix() for path in found if path.is_file() and "__pycache__" not in path.parts)


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # there the clone's own are used
            for name in packed_files():
                target = Path(self.build_lib) / PACKED / name
                self.mkpath(str(target.parent))
                self.copy_file(name, str(target), preserve_times=False)


class Sdist(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, sorted({*files, *packed_files(), *OWN}))
