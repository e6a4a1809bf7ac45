"""Code overlays on every Python from 3.11.0 on: those below 3.11.4 have no filter of their own for archives."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.runtime.member.command import unpack
from launcher.runtime.settings import AttemptError

# the newer Pythons, which play an old one here, ask for a filter
pytestmark = pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")


@pytest.fixture(params=["filter", "without"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the filter of newer Pythons, and without it."""
    if request.param == "without":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has none")


def archive(path: Path, *members: tuple[str, Callable[[tarfile.TarInfo], None]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, change in members:
            info = tarfile.TarInfo(name)
            info.size = 1
            change(info)
            tar.addfile(info, io.BytesIO(b"x") if info.isreg() else None)
    return path


def plain(info: tarfile.TarInfo) -> None:
    info.mode = 0o6777


def kind(code: bytes, target: str = "") -> Callable[[tarfile.TarInfo], None]:
    def change(info: tarfile.TarInfo) -> None:
        info.type, info.linkname, info.size, info.mode = code, target, 0, 0o755

    return change


@pytest.mark.usefixtures("either")
def test_files_folders_and_links_within_come_out_without_special_rights(tmp_path: Path) -> None:
    folder = ("a", kind(tarfile.DIRTYPE))
    link = ("a/link", kind(tarfile.SYMTYPE, "../a/file"))
    unpack(archive(tmp_path / "t", folder, ("a/file", plain), link), tmp_path / "code")
    assert (tmp_path / "code/a/link").read_text() == "x"
    assert (tmp_path / "code/a/file").stat().st_mode & 0o7777 == 0o755


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    "members",
    [
        [("../out", plain)],
        [("/tmp/slipway-out", kind(tarfile.DIRTYPE)), ("../out", plain)],
        [("link", kind(tarfile.SYMTYPE, "..")), ("link/out", plain)],
        [("link", kind(tarfile.SYMTYPE, "/")), ("link/tmp/out", plain)],
        [("link", kind(tarfile.LNKTYPE, "../t"))],
        [("pipe", kind(tarfile.FIFOTYPE))],
        [("device", kind(tarfile.CHRTYPE))],
    ],
    ids=["parent", "absolute", "symlink", "absolute symlink", "hard link", "pipe", "device"],
)
def test_what_would_write_elsewhere_is_refused(
    tmp_path: Path, members: list[tuple[str, Callable[[tarfile.TarInfo], None]]]
) -> None:
    with pytest.raises(AttemptError, match="code: "):
        unpack(archive(tmp_path / "t", *members), tmp_path / "code")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "t"]
