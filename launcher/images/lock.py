"""Compiles the images' locks: `python -m launcher.images.lock [NAME...]`, with uv on the PATH. With `--check PLATFORM`
(`aarch64-manylinux_2_36`) it writes nothing and says which locks can be installed there as they are; exit code 1 where
one cannot.

A lock has hashes and no index, so it is the same for every registry or mirror. Its first line is the digest of its
inputs, so that `launcher images check` finds a lock that was not compiled again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from launcher.images.checks import INPUTS, inputs_digest, lock_inputs, locks
from launcher.spec.images.definition import project_root, select


def _resolve(wanted: Path, lock: Path, platform: str) -> list[str]:
    """The command that resolves what a file asks for, with the overrides of a lock."""
    command = ["uv", "pip", "compile", "-q", str(wanted), "--no-header", "--no-annotate", "--no-emit-index-url"]
    command += ["--python-version", "3.11", "--python-platform", platform]
    return [*command, *(word for file in lock_inputs(lock)[1:] for word in ("--override", str(file)))]


def compile_lock(lock: Path) -> None:
    """Compiles a lock again and replaces it atomically. Raises CalledProcessError where the inputs conflict."""
    command = [*_resolve(lock_inputs(lock)[0], lock, "x86_64-unknown-linux-gnu"), "--generate-hashes"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    temporary = lock.with_name(f".{lock.name}")
    temporary.write_text(f"{INPUTS}{inputs_digest(lock)}\n{output}", encoding="utf-8")
    temporary.replace(lock)


def unfit_for(lock: Path, platform: str) -> str:
    """Why a lock cannot be installed on another platform as it is; empty where it can. A package of which the lock has
    one file only is the same everywhere (sources, or a wheel for all): of any other there must be a wheel."""
    text = lock.read_text(encoding="utf-8")
    entries = re.findall(r"^([a-z0-9-]+)==\S+ .*\n((?: +--hash.*\n?)+)", text, re.MULTILINE)
    command = [*_resolve(lock, lock, platform), *(f"--only-binary={n}" for n, h in entries if h.count("--hash") > 1)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split()).partition(" hint: ")[0]
        return said.rpartition("cause: ")[2]
    missing = sorted(_pinned(done.stdout) - _pinned(text))
    return f"it lacks {', '.join(missing)}" if missing else ""


def _pinned(text: str) -> set[str]:
    return set(re.findall(r"^[a-z0-9-]+==[^\s;\\]+", text, re.MULTILINE))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m launcher.images.lock", description="Compile the images' locks.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", metavar="PLATFORM", help="only say whether the locks can be installed there")
    given, code = parser.parse_args(argv), 0
    for definition in select(project_root(Path.cwd()), given.names):
        for lock in locks(definition.folder):
            if given.check is None:
                compile_lock(lock)
                print(f"{definition.name}: {lock.name}")
                continue
            why = unfit_for(lock, given.check)
            code = 1 if why else code
            print(f"{definition.name}: {lock.name}: {f'not for {given.check}: {why}' if why else 'fits'}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
