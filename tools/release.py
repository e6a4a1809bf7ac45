"""Makes a release: `python -m tools.release 0.1.0 [--dry-run]`, or `make release VERSION=0.1.0`.

It works in a clone of the commit that is checked out, below build/release/VERSION: there it writes the version and the
changelog, commits, and makes every file twice. Files that differ between the two end it. The commit and the tag come
into this repository last, so a release that fails leaves it as it was. `--dry-run` leaves them out; what forbids a
release is then only printed.

The images are built from the tag, which has no catalogue of them (tools/release_images.py). `--of-tag --catalogue FILE`
then makes the files of the tag with it: the wheel names the images.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from launcher.spec.images import catalogue
from tools.site import switch
from tools.wheel import EPOCH, plain

ROOT: Final = Path(__file__).resolve().parents[1]
PASSED: Final = "build/ci-passed"  # .ci/run writes the commit that it passed on
CHANGELOG: Final = "CHANGELOG.md"
VERSION_FILE: Final = "launcher/version.py"
UNRELEASED: Final = "## Unreleased\n"
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


def git(folder: Path, *words: str) -> str:
    """What a git command prints. Raises SystemExit with its message."""
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"release: git {' '.join(words[:2])}: {done.stderr.strip()}")
    return done.stdout.strip()


def released(root: Path) -> list[str]:
    """The versions that have a tag, the newest first."""
    found = [tag.removeprefix("v") for tag in git(root, "tag", "--list", "v*").splitlines()]
    return sorted(filter(_VERSION.fullmatch, found), key=_numbers, reverse=True)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def obstacles(root: Path, version: str) -> list[str]:
    """What forbids to make this release of the commit that is checked out."""
    found = []
    newest = next(iter(released(root)), None)
    if newest is not None and _numbers(version) <= _numbers(newest):
        found.append(f"version {version}: {newest} is out; allowed: a later one")
    if changed := git(root, "status", "--porcelain").splitlines():
        found.append(f"{len(changed)} files are not committed, {changed[0].split()[-1]} the first: commit them")
    passed = root / PASSED
    if not passed.is_file() or passed.read_text(encoding="utf-8").strip() != git(root, "rev-parse", "HEAD"):
        found.append(f"{PASSED} does not name this commit: run .ci/run here until it passes")
    for each in released(root):
        if not (root / known(each)).is_file():
            found.append(f"{known(each)} is missing: commit the file of the page of {each}")
    if not unreleased(root):
        found.append(f"{CHANGELOG}: nothing stands under Unreleased")
    return found


def known(version: str) -> str:
    """The file with the images of a release. Jobs that keep the release need it in every later one."""
    return f"{catalogue.FOLDER}/{catalogue.RELEASES}/{version}.yaml"


def unreleased(root: Path) -> str:
    """What the changelog says of the next release."""
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    _, found, rest = text.partition(UNRELEASED)
    return rest.partition("\n## ")[0].strip() if found else ""


def name_it(source: Path, version: str, day: str) -> None:
    """Writes the version and the changelog's heading into a clone."""
    code = (source / VERSION_FILE).read_text(encoding="utf-8")
    told = re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', code, flags=re.MULTILINE)
    (source / VERSION_FILE).write_text(told, encoding="utf-8")
    text = (source / CHANGELOG).read_text(encoding="utf-8")
    heading = f"{UNRELEASED}\n## {version} ({day})\n"
    (source / CHANGELOG).write_text(text.replace(UNRELEASED, heading, 1), encoding="utf-8")


def run(command: Sequence[str], folder: Path, **more: str) -> None:
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), **more}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"release: {' '.join(command[:4])}: exit code {done.returncode}\n{(done.stdout + done.stderr).decode()}"
        )


def make(source: Path, version: str, versions: Sequence[str], out: Path) -> None:
    """Writes the files of a release into a folder. `versions`: of the documents' switch, the newest first."""
    out.mkdir(parents=True)
    run([sys.executable, "-m", "tools.wheel", str(out)], source)
    archived(git_files(source, "k8s"), source, f"slipway-k8s-{version}", out)
    site = out / "site"
    run([str(ROOT / ".venv-docs/bin/mkdocs"), "build", "-q", "--strict", "-d", str(site / version)], source)
    for compressed in site.rglob("*.gz"):  # the site's map again, with the time of its compression in it
        compressed.unlink()
    switch(site, versions)
    archived(sorted(path for path in site.rglob("*") if path.is_file()), site, f"slipway-docs-{version}", out)
    shutil.rmtree(site)
    bill = json.dumps(materials(source, version), indent=1, sort_keys=True) + "\n"
    (out / f"slipway_cua-{version}.cdx.json").write_text(bill, encoding="utf-8")
    sums = "".join(f"{digest(file)}  {file.name}\n" for file in sorted(out.iterdir()))
    (out / "SHA256SUMS").write_text(sums, encoding="utf-8")


def git_files(source: Path, folder: str) -> list[Path]:
    return [source / name for name in git(source, "ls-files", "--", folder).splitlines()]


def archived(files: Sequence[Path], root: Path, name: str, out: Path) -> None:
    """Writes NAME.tar.gz with these files below `root`, in the folder NAME, without times and owners."""
    raw = out / f"{name}.tar"
    with tarfile.open(raw, "w") as tar:
        for file in files:
            tar.add(file, f"{name}/{file.relative_to(root)}")
    (out / f"{name}.tar.gz").write_bytes(plain(raw.read_bytes()))
    raw.unlink()


def materials(source: Path, version: str) -> dict[str, Any]:
    """The bill of materials (CycloneDX) of an installation by requirements.lock, as `make env` makes it."""
    sbom = runpy.run_path(str(source / "images/sbom.py"))
    lock = (source / "requirements.lock").read_text(encoding="utf-8")
    locked = {name.lower() for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    found = [one for one in sbom["python_components"]() if one.name in locked]
    bill: dict[str, Any] = sbom["bill"](f"slipway-cua {version}", sorted(found))
    bill["metadata"]["component"]["type"] = "application"
    bill["components"] = [one for one in bill["components"] if one["type"] != "operating-system"]  # any
    return bill


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def differing(one: Path, other: Path) -> list[str]:
    """The names of files that are not byte for byte in both folders."""
    names = {file.name for folder in (one, other) for file in folder.iterdir()}
    same = (name for name in names if (one / name).is_file() and (other / name).is_file())
    equal = {name for name in same if (one / name).read_bytes() == (other / name).read_bytes()}
    return sorted(names - equal)


def cloned(root: Path, version: str) -> Path:
    """A clone below build/release/VERSION, where nothing else is."""
    folder = root / "build/release" / version
    shutil.rmtree(folder, ignore_errors=True)
    git(root, "clone", "-q", str(root), str(folder / "source"))
    return folder / "source"


def twice(source: Path, version: str, versions: Sequence[str]) -> Path:
    """The folder with the files, beside the clone. Raises SystemExit where the second ones differ."""
    files, again = source.with_name("files"), source.with_name("again")
    for out in (files, again):
        make(source, version, versions, out)
    if names := differing(files, again):
        raise SystemExit(f"release: made twice, these differ: {', '.join(names)}: look at them in {source.parent}")
    shutil.rmtree(again)
    return files


def of_tag(root: Path, version: str, images: Path | None) -> Path:
    """The folder with the files of a version that has its tag: as they were made then, but for the catalogue of its
    images in the wheel and the sdist. Raises SystemExit."""
    tags = released(root)
    if version not in tags:
        raise SystemExit(f"release: version {version} has no tag; allowed: {', '.join(tags) or 'none'}")
    source = cloned(root, version)
    git(source, "checkout", "-q", f"v{version}")
    if images is not None:
        (file := source / known(version)).parent.mkdir(parents=True, exist_ok=True)
        catalogue.save(file, catalogue.load(images))
        git(source, "add", known(version))
    return twice(source, version, tags[tags.index(version) :])


def release(root: Path, version: str, dry: bool) -> Path:
    """The folder with the files. Raises SystemExit."""
    source = cloned(root, version)
    name_it(source, version, datetime.now(UTC).date().isoformat())
    git(source, "add", "--all")
    who = ("-c", "user.name=dry run", "-c", "user.email=dry@run") if dry else ()
    git(source, *who, "commit", "-q", "-m", f"Slipway {version}")
    files = twice(source, version, [version, *(each for each in released(root) if each != version)])
    if not dry:
        git(root, "fetch", "-q", str(source), "HEAD")
        git(root, "merge", "-q", "--ff-only", "FETCH_HEAD")
        git(root, "tag", "-s", f"v{version}", "-m", f"Slipway {version}")
    return files


def printed(files: Path) -> None:
    for file in sorted(files.iterdir()):
        print(f"{digest(file)}  {file.stat().st_size:>10}  {file.name}")
    print(f"made twice, with equal bytes: {files}")


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Make a release of Slipway.")
    parser.add_argument("version", help="MAJOR.MINOR.PATCH")
    parser.add_argument("--dry-run", action="store_true", help="make the files, but no commit and no tag")
    parser.add_argument("--of-tag", action="store_true", help="make the files of the version's tag again")
    parser.add_argument("--catalogue", type=Path, metavar="FILE", help="with --of-tag: the catalogue of its images")
    given = parser.parse_args(words)
    if not _VERSION.fullmatch(given.version):
        print(f"release: version {given.version}; allowed: MAJOR.MINOR.PATCH, as 0.1.0", file=sys.stderr)
        return 2
    if given.of_tag:
        if given.catalogue is not None and not given.catalogue.is_file():
            print(f"release: --catalogue: there is no file {given.catalogue}", file=sys.stderr)
            return 2
        printed(of_tag(root, given.version, given.catalogue))
        return 0
    found = obstacles(root, given.version)
    for line in found:
        print(f"{'a release would be refused' if given.dry_run else 'release'}: {line}", file=sys.stderr)
    if found and not given.dry_run:
        return 2
    printed(release(root, given.version, given.dry_run))
    if not given.dry_run:
        print(f"now: git push origin HEAD v{given.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
