"""Whether the images of a job run on the processors of the machines that it names.

Lambda's API does not say which processor a type has, its name does: GH200, GB200 and their like have NVIDIA's Grace
(arm64), all others x86. What an image is made for is asked of its registry, by the OCI distribution specification and
without a login: a machine has none either when it pulls. Where the registry does not tell, nothing is refused here, and
the machine looks at what it pulled.
"""

from __future__ import annotations

import hashlib
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from launcher.decoding import decode
from launcher.spec.model import Image, ResolvedJob

ARM: Final = "arm64"
X86: Final = "amd64"
TIMEOUT: Final = 10.0  # seconds of one request
LARGEST: Final = 4 << 20  # bytes of an answer; the specification's limit for a manifest
HUB: Final = "registry-1.docker.io"  # where the images are whose name has no registry
_GRACE: Final = re.compile(r"(?:^|[_-])g[hb]\d{3}")
_TYPES: Final = ", ".join(
    f"application/vnd.{name}+json"
    for name in (
        *("oci.image.index.v1", "docker.distribution.manifest.list.v2"),
        *("oci.image.manifest.v1", "docker.distribution.manifest.v2"),
    )
)


class Platform(msgspec.Struct, frozen=True):
    architecture: str = ""


class Descriptor(msgspec.Struct, frozen=True):
    digest: str = ""
    platform: Platform = Platform()


class ImageManifest(msgspec.Struct, frozen=True):
    """An index of images, each for one processor, or one image with its configuration."""

    manifests: list[Descriptor] = []
    config: Descriptor = Descriptor()


class RegistryToken(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


def processor(instance_type: str) -> str:
    """arm64 or amd64, by the type's name."""
    return ARM if _GRACE.search(instance_type) else X86


def refusals(job: ResolvedJob) -> list[str]:
    """A line for each image that does not run on one of the job's types. The registry is asked only where a job names a
    type with arm64, or one of each."""
    types = {processor(name): name for name in reversed(job.options.get("instance_types", ()))}
    if ARM not in types:
        return []
    lines = []
    for image in {role.image.digest: role.image for role in job.roles.values()}.values():
        made_for = processors(image)
        lines += [
            f"image: {image.reference} is made for {', '.join(made_for)}, {name} has {kind}; "
            f"allowed: an image for {kind}, or other instance_types"
            for kind, name in sorted(types.items())
            if made_for and kind not in made_for
        ]
    return lines


def processors(image: Image) -> Sequence[str]:
    """The processors for which an image is made, as its registry says; empty where it does not say."""
    if not image.digest:
        return ()
    host, name = _place(image.reference)
    repository = _Repository(host, name)
    try:
        body = repository.get(f"manifests/{image.digest}")
        if f"sha256:{hashlib.sha256(body).hexdigest()}" != image.digest:
            return ()
        manifest = decode(body, ImageManifest)
        if manifest.manifests:
            found = {each.platform.architecture for each in manifest.manifests}
        else:
            found = {decode(repository.get(f"blobs/{manifest.config.digest}"), Platform).architecture}
    except (OSError, HTTPException, ValueError, msgspec.MsgspecError):  # ValueError: an address that is none
        return ()
    return sorted(found - {"", "unknown"})  # "unknown": attestations, which BuildKit lists beside the images


def _place(reference: str) -> tuple[str, str]:
    """(the registry's host, the repository's name) of a reference, as Docker reads it."""
    first, slash, rest = reference.partition("/")
    if slash and (any(sign in first for sign in ".:") or first == "localhost"):
        host, name = first, rest
    else:
        host, name = "docker.io", reference if slash else f"library/{reference}"
    folder, _, last = name.rpartition("/")
    name = f"{folder}/{last.partition(':')[0]}" if folder else last.partition(":")[0]
    return HUB if host in ("docker.io", "index.docker.io") else host, name


class _Repository:
    """One repository of a registry, without a login: with the token that it gives to everybody."""

    def __init__(self, host: str, name: str) -> None:
        local = urlsplit(f"//{host}").hostname in ("localhost", "127.0.0.1", "::1")
        self.url = f"{'http' if local else 'https'}://{host}/v2/{name}"
        self.token = ""

    def get(self, path: str) -> bytes:
        """Raises OSError, HTTPException, ValueError."""
        try:
            return self._get(f"{self.url}/{path}")
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate", "")
            if error.code != 401 or self.token or not challenge.lower().startswith("bearer "):
                raise
        given = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        if urlsplit(realm := given.pop("realm", "")).scheme not in ("http", "https"):
            raise ValueError(realm)
        query = urlencode({key: given[key] for key in ("service", "scope") if key in given})
        answer = decode(self._get(f"{realm}?{query}"), RegistryToken)
        self.token = answer.token or answer.access_token
        return self._get(f"{self.url}/{path}")

    def _get(self, url: str) -> bytes:
        request = urllib.request.Request(url, headers={"Accept": f"{_TYPES}, */*"})
        if self.token:  # not to the address that a registry redirects to
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            body: bytes = answer.read(LARGEST + 1)
        if len(body) > LARGEST:
            raise ValueError(url)
        return body
