"""Debian's packages as a part of the version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launcher.images import debian
from launcher.images.build import BuildOptions
from launcher.spec.images.definition import Definition, names
from tests.unit.images.project import project

ROOT = Path(__file__).parents[3]
# As dpkg writes it; copied in small from a Debian 12.
STATUS = """\
Package: base-files
Essential: yes
Status: install ok installed
Priority: required
Maintainer: Santiago Vila <sanvila@debian.org>
Architecture: amd64
Version: 12.4+deb12u15
Conffiles:
 /etc/debian_version c35c9bd0f9d3b8a1d8f1a9d3d1d5ba7d
 /etc/issue 96ec3cf2ebde6bb3ba9a9d1f1ffd2a9d
Description: Debian base system miscellaneous files
 Status: this line is text.

Package: libold
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: zlib1g
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Version: 1:1.2.13.dfsg-1
"""
STAGE = "FROM scratch AS debian\nCOPY --from=common /var/lib/dpkg/status /runtime\n"


@pytest.fixture
def tiny(tmp_path: Path) -> Definition:
    return Definition("tiny", project(tmp_path))


def of(status: str) -> str:
    return debian.digest({"runtime": status.encode()})


def test_the_digest_is_that_of_what_is_installed_in_which_version() -> None:
    paragraphs = STATUS.split("\n\n")
    assert of(STATUS) == of("\n\n".join(reversed([one.strip("\n") for one in paragraphs])))
    assert of(STATUS) == of(STATUS.replace("Priority: required", "Priority: optional"))
    assert of(STATUS) == of(STATUS.replace("Version: 1.0\n", "Version: 1.1\n"))  # of a package that is not installed
    for old, new in (
        ("deb12u15", "deb12u16"),
        ("amd64", "arm64"),
        ("zlib1g", "zlib"),
        ("deinstall ok config-files", "install ok installed"),
    ):
        assert of(STATUS) != of(STATUS.replace(old, new)), new
    assert of(STATUS) != debian.digest({"packages": STATUS.encode()})
    assert of(STATUS) != debian.digest({"runtime": STATUS.encode(), "other": b"1:1.3.0-1"})


def test_two_days_of_debian_are_two_versions_and_a_snapshot_is_one(tiny: Definition, tmp_path: Path) -> None:
    options = BuildOptions(logs=tmp_path)
    monday = options.with_debian({"runtime": STATUS.encode()})
    tuesday = options.with_debian({"runtime": STATUS.replace("deb12u15", "deb12u16").encode()})
    assert len({options.version(tiny), monday.version(tiny), tuesday.version(tiny)}) == 3
    pinned = BuildOptions(logs=tmp_path, arguments={"SNAPSHOT": "20261122T000000Z"})
    assert pinned.version(tiny) != options.version(tiny)


def test_a_build_asks_what_debian_gave_where_only_the_build_knows(tiny: Definition) -> None:
    assert not debian.open_ended(tiny, {})  # this one has no such stage
    tiny.dockerfile.write_text(tiny.text() + STAGE)
    assert debian.open_ended(tiny, {"VARIANT": "cpu"})
    assert debian.open_ended(tiny, {"SNAPSHOT": ""})
    assert not debian.open_ended(tiny, {"SNAPSHOT": "20261122T000000Z"})
    assert not debian.open_ended(tiny, {"DEBIAN": "0123"})


@pytest.mark.parametrize("name", names(ROOT))
def test_every_image_has_the_stage_with_the_lists_and_the_label(name: str) -> None:
    text = Definition(name, ROOT).text()
    assert debian.open_ended(Definition(name, ROOT), {})
    for part in debian.LISTS:
        assert f"COPY --from={part} /var/lib/dpkg/status /{part}\n" in text
    assert f'{debian.LABEL}="${{{debian.ARGUMENT}}}"' in text
    assert re.search(rf"^ARG {debian.SNAPSHOT}=$", text, re.MULTILINE)
    # what is fetched without dpkg's knowing is in a list of its own
    assert ("apt-get download" in text) == (f"/{debian.OTHER}\n" in text)


@pytest.mark.parametrize("name", names(ROOT))
def test_an_index_that_cannot_be_fetched_ends_the_build(name: str) -> None:
    """Without the flag apt-get only warns, and goes on with the packages of the other indexes."""
    lines = [line for line in Definition(name, ROOT).text().splitlines() if "apt-get update" in line]
    assert lines
    assert all("apt-get update -q --error-on=any" in line for line in lines)
