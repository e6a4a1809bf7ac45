"""A Python environment in place of an image: what a lock must be, and that it is a part of what the run is."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from launcher import install
from launcher.errors import BadInput
from launcher.runtime.member.command import unpack
from launcher.spec.hashing import encode_job, run_id, work_hash
from launcher.spec.resolve.group import Group
from tests.unit.spec.support import PROFILE, group

HASH = "    --hash=sha256:" + "a" * 64
LOCK = "".join(f"{name}==1.0 \\\n{HASH}\n" for name in ("boto3", "msgspec", "obstore", "PyYAML"))
JOB = """
name: a
command: [x]
backend: lambda
limits: {deadline: 1h}
lambda:
  venv: {lock: LOCK, python: "3.12"}
"""


def made(folder: Path, lock: str = LOCK, job: str = JOB) -> Group:
    (folder / "r.lock").write_text(lock)
    return group(job.replace("LOCK", "r.lock"), folder)


def test_the_lock_and_the_python_are_a_part_of_the_run(tmp_path: Path) -> None:
    one = made(tmp_path).runs[0]
    image = one.roles["main"].image
    assert (image.reference, image.digest) == ("", "")
    assert image.environment.startswith("sha256:")
    assert [encode_job(each) for each in made(tmp_path).runs] == [encode_job(one)]
    other_lock = made(tmp_path, LOCK.replace("obstore==1.0", "obstore==1.1")).runs[0]
    other_python = made(tmp_path, job=JOB.replace("3.12", "3.13")).runs[0]
    works = {work_hash(one), work_hash(other_lock), work_hash(other_python)}
    assert len(works) == len({run_id(one), run_id(other_lock), run_id(other_python)}) == 3


def test_the_archive_is_the_lock_and_the_source_of_the_installed_packages(tmp_path: Path) -> None:
    packed = made(tmp_path)
    (digest,) = packed.packed
    assert packed.packed[digest].pack(tmp_path / "archive") == digest
    assert hashlib.sha256((tmp_path / "archive").read_bytes()).hexdigest() == digest
    unpack(tmp_path / "archive", tmp_path / "out")
    assert (tmp_path / "out" / "requirements.lock").read_text() == LOCK
    assert (tmp_path / "out" / "python").read_text() == "3.12\n"
    package = Path(install.__file__).parent
    unpacked = tmp_path / "out" / "source" / "launcher"
    for path in ("install.py", "runtime/__main__.py", "backends/lambda_labs/uv.lock"):
        assert (unpacked / path).read_bytes() == (package / path).read_bytes()
    assert not [*unpacked.rglob("*.pyc")]


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        (LOCK + "torch==2.13.0\n", "r.lock:9:1: lambda.venv.lock: `torch` has no hash; allowed: `--hash=sha256:...`"),
        (LOCK + f"torch==2 \\\n{HASH[:-1]}\n", "r.lock:9:1: lambda.venv.lock: `torch` has no hash"),
        (LOCK + "# torch==2\n-e .\n", "r.lock:10:1: lambda.venv.lock: `-e` names a file that the machine has not"),
        (LOCK + "-r more.txt\n", "r.lock:9:1: lambda.venv.lock: `-r` names a file"),
        (f"--index-url https://me:pass@pypi.test/x\n{LOCK}", "r.lock:1:1: lambda.venv.lock: a URL with credentials"),
        (LOCK + "!\n", "r.lock:9:1: lambda.venv.lock: `!` is no requirement"),
        (
            LOCK.replace("obstore", "obs"),
            "job.yaml:7:16: lambda.venv.lock: lacks obstore, which Slipway's runtime needs",
        ),
    ],
)
def test_a_lock_that_cannot_be_used_is_told_with_its_line(tmp_path: Path, lock: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        made(tmp_path, lock)
    assert said in str(refused.value)
    assert "me:pass" not in str(refused.value)


def test_a_lock_may_name_an_index_and_urls_with_hashes(tmp_path: Path) -> None:
    made(tmp_path, f"--index-url https://pypi.test/simple\n{LOCK}x @ https://a.test/x.whl \\\n{HASH}  # own\n")


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (JOB.replace("LOCK", "no.lock"), "job.yaml:7:16: lambda.venv.lock: "),
        (
            JOB.replace('"3.12"', '"3.9"'),
            "job.yaml:7:32: lambda.venv.python: `3.9` is not a version of Python; allowed: 3.11",
        ),
        (JOB.replace(', python: "3.12"', ""), "job.yaml:7:9: lambda.venv.python: is missing"),
        (JOB.partition("lambda:\n")[0], "image: is missing: lambda runs images; allowed: an image, or `lambda: {venv:"),
        (JOB.replace("backend: lambda", "backend: [lambda, kubernetes]"), "is missing: kubernetes runs images"),
    ],
)
def test_a_wrong_block_is_told_with_its_line(tmp_path: Path, job: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        made(tmp_path, job=job)
    assert said in str(refused.value)


def test_a_profile_s_lock_lies_beside_the_profile_and_an_image_needs_none(tmp_path: Path) -> None:
    there = tmp_path / "above"
    there.mkdir()
    expected = made(tmp_path).runs[0].roles["main"].image
    shutil.move(tmp_path / "r.lock", there / "r.lock")
    profile = replace(
        PROFILE,
        blocks={"lambda": {"venv": {"lock": "r.lock", "python": "3.12"}}},
        origins={"lambda.venv": f"{there}/slipway.yaml:4"},
        read_in=(str(tmp_path), ""),
    )
    plain = JOB.partition("lambda:\n")[0]
    assert group(plain, tmp_path, profile=profile).runs[0].roles["main"].image == expected
    image = f"registry.test/x@sha256:{'1' * 64}"
    with_image = group(f"{plain}image: {image}\n", tmp_path, profile=profile)
    assert (with_image.runs[0].roles["main"].image.environment, with_image.packed) == ("", {})
    (there / "r.lock").write_text("x")
    with pytest.raises(BadInput, match=r"above/r\.lock:1:1: lambda\.venv\.lock: `x` has no hash"):
        group(plain, tmp_path, profile=profile)
    (there / "r.lock").unlink()
    with pytest.raises(BadInput, match=r"above/slipway\.yaml:4:1: lambda\.venv\.lock: .*r\.lock: No such file"):
        group(plain, tmp_path, profile=profile)
