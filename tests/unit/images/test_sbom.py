"""images/sbom.py: the bill names what a scanner matches packages by. This machine stands for an image.

The stand-in for a scanner reads a bill as trivy does (aquasecurity/trivy, pkg/sbom/io/decode.go at 08d67e7:
decodeComponents, fillSrcPkg, addOrphanPkgs): Debian's packages count only beside one component of the
type operating-system, and are matched by their source package.
"""

from __future__ import annotations

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
