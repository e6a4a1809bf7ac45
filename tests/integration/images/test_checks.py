"""What `launcher images check` finds, and the catalogue's file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.documented import ROOT


def installed(site: Path, package: str, files: dict[str, str]) -> None:
    """As an installer leaves it: what is in RECORD, the hash of each file included."""
    folder = site / f"{package}.dist-info"
    folder.mkdir(parents=True)
    rows = [f"{path},sha256={digest},1" for path, digest in files.items()]
    (folder / "RECORD").write_text("\n".join([*rows, f"{folder.name}/RECORD,,", ""]))


def test_a_build_refuses_packages_that_wrote_the_same_file_with_other_bytes(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "images" / "records.py"), str(tmp_path)]
    installed(tmp_path, "cuda_bindings-13.5.0", {"cuda/bindings/__init__.py": "a", "cuda/__init__.py": "same"})
    installed(tmp_path, "other-1", {"cuda/__init__.py": "same", "tests/__init__.py": "b"})
    installed(tmp_path, "another-1", {"tests/__init__.py": "c"})
    # as the locks of trl-grpo and vllm-serve have it; their builds were refused for it
    for name in ("flashinfer_python-0.7.0.post1", "torch_c_dlpack_ext-0.1.5"):
        installed(tmp_path, name, {"build_backend.py": name})
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    installed(tmp_path, "cuda_python-12.6.2.post1", {"cuda/bindings/__init__.py": "b", "cuda/nvrtc.pyx": "c"})
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    packages = "cuda_bindings-13.5.0 and cuda_python-12.6.2.post1"
    assert first == f"records: {packages} write 1 same files, such as cuda/bindings/__init__.py"
    assert "requirements.in" in second


def test_the_packages_of_this_environment_do_not_overlap() -> None:
    """The real RECORD files of torch, transformers, TRL and some ninety others."""
    import sysconfig

    done = subprocess.run(
        [sys.executable, str(ROOT / "images" / "records.py"), sysconfig.get_paths()["purelib"]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
