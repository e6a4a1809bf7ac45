"""Whatever stands in a file: it loads, resolves and renders, or is refused by BadInput; nothing else gets out."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from launcher.backends.base import renderer
from launcher.errors import BadInput
from launcher.spec.hashing import decode_job, encode_job
from launcher.spec.profile import load_profile
from launcher.spec.read.load import load
from launcher.spec.resolve.group import resolve
from tests.support.fuzz import Case, case

ENVIRONMENT = "e" * 64
SEED = int(os.environ.get("SLIPWAY_FUZZ_SEED", "0"))  # the first of the seeds that are tried


def tried(one: Case, folder: Path) -> str:
    """How far a case came: refused, or rendered."""
    (folder / "code").mkdir(exist_ok=True)
    (folder / "job.yaml").write_text(one.job, encoding="utf-8", errors="surrogatepass")
    (folder / "slipway.yaml").write_text(one.profile, encoding="utf-8", errors="surrogatepass")
    try:
        profile = load_profile(folder, None, {"HOME": str(folder)})
        loaded = load(["job.yaml"], overrides=one.overrides, cwd=folder)
        group = resolve(loaded, profile, environment=ENVIRONMENT, backend=one.backend)
        for job in group.runs:
            assert decode_job(encode_job(job)) == job
        assert len(group.origins) == len(group.runs)
        for name in {job.backend for job in group.runs}:
            if name in ("local", "docker", "kubernetes"):
                runs = [job for job in group.runs if job.backend == name]
                assert renderer(name, profile.backend_options(name))(runs).documents
    except BadInput as error:
        said = str(error)
    else:
        return "rendered"
    assert 0 < len(said) < 200_000
    return "refused"


def storm(first: int, count: int, folder: Path) -> dict[str, int]:
    ends = {"refused": 0, "rendered": 0}
    for seed in range(first, first + count):
        try:
            ends[tried(case(seed), folder)] += 1
        except Exception:
            pytest.fail(f"seed {seed}: {case(seed)}\n{traceback.format_exc()}")
    return ends


def test_nothing_but_bad_input_comes_out(tmp_path: Path) -> None:
    ends = storm(SEED, 1500, tmp_path)
    assert ends["rendered"] > 50, ends  # what is made is not all nonsense
    assert ends["refused"] > 500, ends


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(8))
def test_nothing_but_bad_input_comes_out_of_very_many(part: int, tmp_path: Path) -> None:
    """200,000 jobs together."""
    ends = storm(SEED + 1_000_000 * (part + 1), 25_000, tmp_path)
    assert ends["rendered"] > 500, ends
