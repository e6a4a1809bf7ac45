"""Images for pods where no registry can be reached, made by hand from files of this machine.

pause     one static program
py        this machine's Python, a shell and a few tools
launcher  py with the launcher of this clone and what it depends on: `python -m launcher.runtime` runs; no torch
monitor   launcher with what `launcher monitor` needs, and a Kubernetes client
reaper    launcher with a Kubernetes client and Pillow: `launcher reap` and `python -m training.make_episodes` run

Layers are kept in .tools/cluster/images, by a hash of what is in them, and linked into nodes (linking.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from tests.support.cluster.linking import Image, chain_ids
from tests.support.cluster.programs import ROOT, STATE, pause
from tests.support.engine import BUNDLE

FOLDER = STATE / "images"
TOOLS = ("sh", "cat", "ls", "sleep", "env", "id", "true", "false", "kill", "mkdir", "rm", "touch", "tar", "df", "head")
SKIPPED = re.compile(
    r"(^|/)(test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|site-packages|dist-packages|config-[^/]*)(/|$)"
    r"|-pytest-|\.opt-|\.a$"
)
PATH = "/usr/local/bin:/usr/bin:/bin"
ETC = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/work:/bin/sh\n",
    "etc/group": b"root:x:0:\nuser:x:1000:\n",
    "etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
}
Files = Mapping[str, Path | bytes]
KEPT = 3600  # seconds for which a layer of another state of this clone stays: somebody may be linking it


def layer(name: str, files: Files, programs: Iterable[Path] = ()) -> Path:
    """A folder of these files, readable by everyone; name -> file here, or its bytes.

    The libraries that `programs` load come with them; they are looked for only where the folder is made.
    """
    told = hashlib.sha256()
    for target, source in sorted(files.items()):
        what = source if isinstance(source, bytes) else _stamp(source)
        told.update(f"{target}\0{what!r}\n".encode())
    made = FOLDER / f"{name}-{told.hexdigest()[:16]}"
    if made.exists():
        return made
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob(f"{name}-*"):
        if time.time() - old.stat().st_mtime > KEPT:
            shutil.rmtree(old, ignore_errors=True)
    fresh = made.with_suffix(f".{os.getpid()}")
    libraries = {str(needed).lstrip("/"): needed for needed in _libraries(programs)}
    for target, source in (*files.items(), *libraries.items()):
        file = fresh / target
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, bytes):
            file.write_bytes(source)
        else:
            shutil.copyfile(source, file)
            status = source.stat()
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # or Python would not believe compiled files
        file.chmod(0o755 if isinstance(source, Path) and source.stat().st_mode & 0o100 else 0o644)
    for folder in (fresh, *(one for one in fresh.rglob("*") if one.is_dir())):
        folder.chmod(0o1777 if folder == fresh / "tmp" else 0o755)
    try:
        fresh.rename(made)
    except OSError:  # another process was quicker
        shutil.rmtree(fresh)
    return made


def _stamp(file: Path) -> tuple[str, int, int]:
    status = file.stat()
    return str(file), status.st_size, status.st_mtime_ns


def image(layers: Sequence[Path], command: list[str], env: Mapping[str, str], user: str) -> Image:
    """What a node takes; a layer's ID is made from its name, which has the hash of what is in it."""
    ids = [f"sha256:{hashlib.sha256(one.name.encode()).hexdigest()}" for one in layers]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": ids},
        "config": {"Cmd": command, "Env": [f"{key}={value}" for key, value in env.items()], "User": user},
    }
    return Image(json.dumps(config).encode(), tuple(zip(chain_ids(ids), layers, strict=True)))


def pause_image() -> Image:
    return image([layer("pause", {"pause": pause()})], ["/pause"], {}, "65535:65535")


def py_image() -> Image:
    return image([python_layer()], ["sh"], {"PATH": PATH}, "1000:1000")


def launcher_image() -> Image:
    env = {"PATH": PATH, "PYTHONPATH": "/opt/packages:/opt/slipway", "PYTHONDONTWRITEBYTECODE": "1"}
    return image([python_layer(), packages_layer(), sources_layer()], ["sh"], env, "1000:1000")


def reaper_image() -> Image:
    env = {"PATH": PATH, "PYTHONPATH": "/opt/more:/opt/packages:/opt/slipway", "PYTHONDONTWRITEBYTECODE": "1"}
    more = packages_layer("more", ("kubernetes", "pillow"))
    return image([python_layer(), packages_layer(), more, sources_layer()], ["sh"], env, "1000:1000")


def monitor_image() -> Image:
    env = {"PATH": PATH, "PYTHONPATH": "/opt/monitor:/opt/packages:/opt/slipway", "PYTHONDONTWRITEBYTECODE": "1"}
    more = packages_layer("monitor", ("kubernetes", "alembic", "jinja2", "sqlalchemy", "starlette", "uvicorn"))
    return image([python_layer(), packages_layer(), more, sources_layer()], ["sh"], env, "1000:1000")


def python_layer() -> Path:
    """This Python as /usr/local/bin/python, and some of this machine's programs, each with its libraries."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = Path(sysconfig.get_path("stdlib"))
    files: dict[str, Path | bytes] = {"tmp/.keep": b"", "work/.keep": b"", **ETC}
    if BUNDLE.exists():
        files[str(BUNDLE).lstrip("/")] = BUNDLE  # clients of object stores do not start without certificates
    programs = {f"bin/{name}": Path(found).resolve() for name in TOOLS if (found := shutil.which(name))}
    python = Path(sys.base_prefix, "bin", version).resolve()
    programs |= {f"usr/local/bin/{name}": python for name in ("python", "python3", version)}
    for file in _below(library):
        files[f"usr/local/lib/{version}/{file.relative_to(library)}"] = file
    extensions = [file for file in files.values() if isinstance(file, Path) and file.suffix == ".so"]
    files |= programs
    return layer("python", files, [*programs.values(), *extensions])


def packages_layer(name: str = "packages", wanting: Sequence[str] = ("boto3", "msgspec", "obstore", "pyyaml")) -> Path:
    """Packages with what they depend on, from this environment, below /opt/NAME. The default: those of the launcher."""
    from packaging.requirements import Requirement

    wanted, seen = list(wanting), set[str]()
    files: dict[str, Path | bytes] = {}
    while wanted:
        package = wanted.pop()
        if package in seen:
            continue
        seen.add(package)
        found = metadata.distribution(package)
        for file in found.files or []:
            there = Path(str(file.locate()))
            if ".." not in file.parts and there.is_file():
                files[f"opt/{name}/{file}"] = there
        for line in found.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                wanted.append(requirement.name)
    extensions = [file for file in files.values() if isinstance(file, Path) and ".so" in file.suffixes]
    return layer(name, files, extensions)


def sources_layer() -> Path:
    """The packages of this clone, as they are now."""
    files: dict[str, Path | bytes] = {}
    for package in ("launcher", "training", "eval"):
        for file in _below(ROOT / package):
            files[f"opt/slipway/{file.relative_to(ROOT)}"] = file
    return layer("sources", files)


def _below(folder: Path) -> list[Path]:
    """Its files, without tests and without compiled files that pytest made."""
    found: list[Path] = []
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not SKIPPED.search(name)]
        found += [Path(here, name) for name in names if not SKIPPED.search(name)]
    return sorted(found)


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries that these load, by the names by which they are looked for; the loader, too."""
    if not (names := [str(one) for one in programs]):
        return set()
    done = subprocess.run(["ldd", *names], capture_output=True, text=True, check=False)
    found = re.findall(r"(?:=> )?(/\S+) \(0x", done.stdout)
    return {Path(one) for one in found}
