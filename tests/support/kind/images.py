"""Images for a kind cluster, made from files of this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from launcher.spec.images.definition import Definition
from tests.support.cluster.images import reaper_image
from tests.support.cluster.programs import BIN, ROOT
from tests.support.kind import archive
from tests.support.kind.engine import KindEngine

ENV = "PATH=/usr/local/bin:/usr/bin:/bin PYTHONPATH=/opt/more:/opt/packages:/opt/slipway PYTHONDONTWRITEBYTECODE=1"


def small_cpu_image(engine: KindEngine) -> str:
    """slipway-cpu without torch, in seconds: this Python with the launcher, its Kubernetes client and Pillow. The
    reaper, and what makes the login example's episodes, run in it."""
    tag = f"slipway-cpu:{Definition('slipway-cpu', ROOT).version()}"
    image, whole = reaper_image(), engine.state / "small"
    subprocess.run(["rm", "-rf", whole], check=True)
    whole.mkdir(mode=0o755)
    try:
        for _, folder in image.layers:
            subprocess.run(["cp", "-a", f"{folder}/.", whole], check=True)
        with subprocess.Popen(["tar", "-C", whole, "-c", "."], stdout=subprocess.PIPE) as tar:
            command = ["docker", "import", f"--change=ENV {ENV}", "--change=USER 1000:1000", "-", tag]
            subprocess.run(command, stdin=tar.stdout, env=engine.environment, check=True, capture_output=True)
    finally:
        subprocess.run(["rm", "-rf", whole], check=True)
    return tag


def controller_image(engine: KindEngine, manifest: Path, program: str) -> str:
    """The image that a controller's manifest names, with the program of `make kind-tools` in it."""
    names = [line.split()[-1] for line in manifest.read_text().splitlines() if line.strip().startswith("image: ")]
    (tag,) = {name for name in names if "/" in name}
    file = engine.state / f"{program}.tar"
    archive.write(file, tag, {"manager": BIN / program}, entrypoint=["/manager"], user="65532:65532")
    with file.open("rb") as stream:
        subprocess.run(["docker", "load", "-q"], stdin=stream, env=engine.environment, check=True, capture_output=True)
    file.unlink()
    return tag
