"""A small project with one image."""

from __future__ import annotations

from pathlib import Path

from launcher.images.bake import FILE, bake
from launcher.images.checks import INPUTS, inputs_digest

BASE = f"docker.io/library/debian:bookworm-slim@sha256:{'ab' * 32}"
COMMON = (
    f"ARG BASE={BASE}\nARG SOURCE_DATE_EPOCH=7\nFROM ${{BASE}} AS common\n# --- end of images/common.Dockerfile ---\n"
)
OWN = """\
COPY images/tiny/requirements.lock /tmp/
COPY --from=common /etc/passwd \\
  /etc/copy
COPY --chown=1000:1000 source ./settings.txt /opt/
"""


def project(root: Path) -> Path:
    """Writes it; gives its folder."""
    folder = root / "images" / "tiny"
    folder.mkdir(parents=True)
    (root / "images" / "common.Dockerfile").write_text(COMMON)
    (folder / "Dockerfile").write_text(COMMON + OWN)
    (folder / "requirements.in").write_text("pyyaml>=6  # why\n")
    lock = folder / "requirements.lock"
    lock.write_text(f"{INPUTS}{inputs_digest(lock)}\npyyaml==6.0.3 --hash=sha256:00\n")
    (root / "source" / "deep" / "__pycache__").mkdir(parents=True)
    (root / "source" / "main.py").write_text("print(1)\n")
    (root / "source" / "deep" / "more.py").write_text("")
    (root / "source" / "deep" / "__pycache__" / "more.pyc").write_bytes(b"x")
    (root / "settings.txt").write_text("a: 1\n")
    (root / "unrelated.txt").write_text("")
    (root / "images" / FILE).write_text(bake(root))
    return root
