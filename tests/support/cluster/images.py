"""Images for pods where no registry can be reached, made by hand from files of this machine as docker-archives.

pause     one static program
py        this machine's Python, a shell and a few tools: 60 MB, no network, a second
launcher  py with the launcher of this clone and what it depends on: `python -m launcher.runtime` runs; no torch

Layers are kept in .tools/cluster/images, by a hash of what is in them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

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


def layer(name: str, files: Files) -> Path:
    """A tar of these files, owned by root and readable by everyone; name -> file here, or its bytes."""
    told = hashlib.sha256()
    for target, source in sorted(files.items()):
        what = source if isinstance(source, bytes) else _stamp(source)
        told.update(f"{target}\0{what!r}\n".encode())
    made = FOLDER / f"{name}-{told.hexdigest()[:16]}.tar"
    if made.exists():
        return made
    FOLDER.mkdir(parents=True, exist_ok=True)
    fresh = made.with_suffix(f".{os.getpid()}")
    with tarfile.open(fresh, "w") as tar:
        for folder in sorted({str(parent) for target in files for parent in Path(target).parents} - {"."}):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(info)
        for target, source in sorted(files.items()):
            info = tarfile.TarInfo(target)
            if isinstance(source, bytes):
                info.size, info.mode = len(source), 0o644
                tar.addfile(info, io.BytesIO(source))
                continue
            status = source.stat()
            # the time of a source stays, or Python would not believe its compiled file
            info.size, info.mtime, info.mode = (
                status.st_size,
                int(status.st_mtime),
                0o755 if status.st_mode & 0o100 else 0o644,
            )
            with source.open("rb") as data:
                tar.addfile(info, data)
    for old in FOLDER.glob(f"{name}-*.tar"):
        old.unlink(missing_ok=True)  # of another state of this clone; who reads it keeps it
    fresh.rename(made)
    return made


def _stamp(file: Path) -> tuple[str, int, int]:
    status = file.stat()
    return str(file), status.st_size, status.st_mtime_ns


def archive(
    tag: str, layers: Iterable[Path], into: Path, command: list[str], env: Mapping[str, str], user: str = ""
) -> Path:
    """A docker-archive, as `docker save` makes one."""
    layers = list(layers)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(one)}" for one in layers]},
            "config": {"Cmd": command, "Env": [f"{key}={value}" for key, value in env.items()], "User": user},
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": [one.name for one in layers]}]).encode()
    with tarfile.open(into, "w") as tar:
        for entry, data in ((name, config), ("manifest.json", manifest)):
            info = tarfile.TarInfo(entry)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for one in layers:
            tar.add(one, one.name)
    return into


def _digest(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def pause_archive(into: Path) -> Path:
    return archive("test.local/pause:1", [layer("pause", {"pause": pause()})], into, ["/pause"], {}, user="65535:65535")


def py_archive(into: Path) -> Path:
    return archive("test.local/py:1", [python_layer()], into, ["sh"], {"PATH": PATH}, user="1000:1000")


def launcher_archive(into: Path) -> Path:
    env = {"PATH": PATH, "PYTHONPATH": "/opt/packages:/opt/slipway", "PYTHONDONTWRITEBYTECODE": "1"}
    layers = [python_layer(), packages_layer(), sources_layer()]
    return archive("test.local/launcher:1", layers, into, ["sh"], env, user="1000:1000")


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
    for needed in _libraries([*programs.values(), *extensions]):
        files[str(needed).lstrip("/")] = needed
    return layer("python", files)


def packages_layer() -> Path:
    """What the launcher depends on, from this environment."""
    from packaging.requirements import Requirement

    wanted, seen = ["boto3", "msgspec", "obstore", "pyyaml"], set[str]()
    files: dict[str, Path | bytes] = {}
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        found = metadata.distribution(name)
        for file in found.files or []:
            there = Path(str(file.locate()))
            if ".." not in file.parts and there.is_file():
                files[f"opt/packages/{file}"] = there
        for line in found.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                wanted.append(requirement.name)
    extensions = [file for file in files.values() if isinstance(file, Path) and ".so" in file.suffixes]
    files |= {str(needed).lstrip("/"): needed for needed in _libraries(extensions)}
    return layer("packages", files)


def sources_layer() -> Path:
    """The packages of this clone, as they are now."""
    files: dict[str, Path | bytes] = {}
    for package in ("launcher", "training", "eval"):
        for file in _below(ROOT / package):
            files[f"opt/slipway/{file.relative_to(ROOT)}"] = file
    return layer("sources", files)


def _below(folder: Path) -> list[Path]:
    """Its files, without tests and without compiled files that pytest made."""
    every = (file for file in folder.rglob("*") if file.is_file())
    return sorted(file for file in every if not SKIPPED.search(str(file.relative_to(folder))))


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries that these load, by the names by which they are looked for; the loader, too."""
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False)
    found = re.findall(r"(?:=> )?(/\S+) \(0x", done.stdout)
    return {Path(one) for one in found}
