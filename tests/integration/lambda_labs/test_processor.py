"""An image that does not run on a type's processor is refused before anything is launched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from launcher.backends.lambda_labs.processor import _place, processor
from launcher.errors import BadInput
from launcher.spec.model import Image, ResolvedJob
from launcher.spec.prices import rates
from tests.integration.lambda_labs.conftest import Account
from tests.support.registry import Registry

GRACE = "gpu_1x_gh200"


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    try:
        yield made
    finally:
        made.close()


def given(account: Account, registry: Registry, digest: str, *types: str) -> ResolvedJob:
    one = account.job("one", {"instance_types": list(types)})
    image = Image(reference=f"{registry.host}/team/tool:1", digest=digest)
    return replace(one, roles={name: replace(role, image=image) for name, role in one.roles.items()})


def test_an_image_without_arm64_is_refused_before_a_machine_with_arm64_is_launched(
    account: Account, registry: Registry
) -> None:
    one = given(account, registry, registry.image("amd64"), GRACE)
    with pytest.raises(BadInput) as refused:
        account.backend().check([one])
    assert str(refused.value) == (
        f"one: image: {registry.host}/team/tool:1 is made for amd64, gpu_1x_gh200 has arm64; "
        "allowed: an image for arm64, or other instance_types"
    )
    assert account.launches() == []


def test_one_of_the_types_is_enough_to_be_refused(account: Account, registry: Registry) -> None:
    """Which of them has capacity is not known before."""
    with pytest.raises(BadInput, match="is made for amd64, gpu_1x_gh200 has arm64"):
        account.backend().check([given(account, registry, registry.index("amd64"), "gpu_1x_a10", GRACE)])
    with pytest.raises(BadInput, match="is made for arm64, gpu_1x_a10 has amd64"):
        account.backend().check([given(account, registry, registry.index("arm64"), GRACE, "gpu_1x_a10")])


@pytest.mark.parametrize("guarded", [False, True], ids=["open", "with a token for everybody"])
def test_images_for_the_processor_are_taken(account: Account, registry: Registry, guarded: bool) -> None:
    registry.guarded = guarded
    for digest in (registry.image("arm64"), registry.index("amd64", "arm64")):
        account.backend().check([given(account, registry, digest, GRACE)])
        assert f"/v2/team/tool/manifests/{digest}" in registry.asked
    with pytest.raises(BadInput, match="is made for amd64"):
        account.backend().check([given(account, registry, registry.image("amd64"), GRACE)])


def test_a_job_without_arm64_asks_no_registry(account: Account, registry: Registry) -> None:
    account.backend().check([given(account, registry, registry.image("amd64"), "gpu_1x_a10", "gpu_1x_h100_pcie")])
    assert registry.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        (403, b"{}"),
        (404, b"{}"),
        (500, b"<html>"),
        (200, b"<html>"),
        (200, b"{}"),  # not the body of this digest
        (200, b"x" * (5 << 20)),
        (302, b""),
    ],
    ids=["forbidden", "not there", "broken", "no JSON", "another body", "endless", "redirected to nowhere"],
)
def test_a_registry_that_does_not_tell_refuses_nothing(
    account: Account, registry: Registry, answer: tuple[int, bytes]
) -> None:
    """The machine looks at the image once more, after it pulled it (script.py)."""
    digest = registry.image("amd64")
    registry.broken[digest] = answer
    account.backend().check([given(account, registry, digest, GRACE)])
    assert registry.asked


def test_a_registry_that_is_not_there_refuses_nothing(account: Account, registry: Registry) -> None:
    one = given(account, registry, registry.image("amd64"), GRACE)
    registry.close()
    account.backend().check([one])


def test_every_listed_type_has_its_processor() -> None:
    """NVIDIA's Grace, and nothing else: its GPUs' names begin with GH or GB."""
    table = Path(rates.__file__).with_name("table.yaml")
    listed = yaml.safe_load(table.read_text(encoding="utf-8"))["lambda"]["types"]
    assert {name for name in listed if processor(name) == "arm64"} == {GRACE}
    assert processor("gpu_4x_gb200") == "arm64"
    assert processor("gpu_8x_b200_sxm6") == "amd64"


@pytest.mark.parametrize(
    ("reference", "place"),
    [  # as https://docs.docker.com/reference/cli/docker/image/tag/ has the names
        ("debian", ("registry-1.docker.io", "library/debian")),
        ("debian:bookworm", ("registry-1.docker.io", "library/debian")),
        ("docker.io/vllm/vllm-openai:v1", ("registry-1.docker.io", "vllm/vllm-openai")),
        ("vllm/vllm-openai", ("registry-1.docker.io", "vllm/vllm-openai")),
        ("ghcr.io/a/b/c:1.2", ("ghcr.io", "a/b/c")),
        ("localhost:5000/tool", ("localhost:5000", "tool")),
        ("localhost/tool:1", ("localhost", "tool")),
    ],
)
def test_where_an_image_is(reference: str, place: tuple[str, str]) -> None:
    assert _place(reference) == place
