"""images/sbom.py: the bill names what a scanner matches packages by. This machine stands for an image.

The stand-in for a scanner reads a bill as trivy does (aquasecurity/trivy, pkg/sbom/io/decode.go at 08d67e7:
decodeComponents, fillSrcPkg, addOrphanPkgs): Debian's packages count only beside one component of the
type operating-system, and are matched by their source package.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.engine import ROOT


def test_a_system_without_a_name_makes_no_bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "images"))
    import sbom

    with pytest.raises(SystemExit, match="does not name the operating system"):
        sbom.operating_system(tmp_path / "none")
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_ID="12"\n')
    assert sbom.operating_system(tmp_path / "os-release") == ("debian", "12")


def test_programs_with_the_rights_of_others_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "images"))
    import sbom

    (tmp_path / "bin").mkdir()
    for name, mode in (("su", 0o4755), ("wall", 0o2755), ("ls", 0o755)):
        (tmp_path / "bin" / name).touch()
        (tmp_path / "bin" / name).chmod(mode)
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail").chmod(0o2775)  # new files get its group; nothing runs with it
    (tmp_path / "bin" / "link").symlink_to("su")
    assert sbom.privileged(tmp_path) == [str(tmp_path / "bin" / "su"), str(tmp_path / "bin" / "wall")]


@pytest.mark.parametrize("image", sorted(path.parent.name for path in (ROOT / "images").glob("*/Dockerfile")))
def test_whatever_installs_packages_for_an_image_takes_the_bits_away(image: str) -> None:
    """The packages of the stages that are copied from, such as the builder's, are in no image."""
    text = (ROOT / "images" / image / "Dockerfile").read_text(encoding="utf-8")
    stages = re.findall(
        r"^FROM (?:\$\{BASE\}|base) AS (base|runtime)\n(.*?)(?=^FROM |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert [name for name, _ in stages] == ["base", "runtime"]
    for name, stage in stages:
        for command in re.findall(r"^RUN (?:.*\\\n)*.*$", stage, re.MULTILINE):
            assert "apt-get install" not in command or "-perm /6000 -exec chmod ug-s {} +" in command, name
