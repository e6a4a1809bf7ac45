"""Which cluster is asked: by its certificates, and by its version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from launcher.backends.base import BackendObservation, Handle
from launcher.backends.kubernetes.access.login import Login
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.connection import authorities_of, nearest
from launcher.protocol.records import Placement, authorities
from launcher.runtime.settings import MemberAddress


def certificate(body: str, ends: str = "\n") -> str:
    return f"-----BEGIN CERTIFICATE-----{ends}{body}{ends}-----END CERTIFICATE-----{ends}"


ONE, TWO = certificate("AAAA\nBBBB"), certificate("CCCC")


def test_a_bundle_is_its_certificates_however_it_is_written() -> None:
    (one,) = authorities(ONE)
    assert authorities(certificate("AAAABBBB", "\r\n")) == (one,)
    assert set(authorities(f"# a comment\n{TWO}\n{ONE}{ONE}")) == {one, *authorities(TWO)}
    assert authorities("") == authorities("no certificate") == ()


def login(tmp_path: Any, text: str | bytes | None) -> Login:
    path = tmp_path / "ca.crt"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Login(SimpleNamespace(ssl_ca_cert=str(path) if text != b"" else None), "", "default")


@pytest.mark.parametrize("text", [None, b"", b"\xff\xfe", "no certificate"])
def test_a_login_without_root_certificates_knows_no_cluster(tmp_path: Any, text: str | bytes | None) -> None:
    assert authorities_of(login(tmp_path, text)) == frozenset()


class Known(KubernetesBackend):
    """The backend of a cluster of which no more than the login is asked."""

    def __init__(self, login: Login) -> None:
        super().__init__({})
        self._login = login

    @property
    def login(self) -> Login:
        return self._login


def claim(uid: str, bundle: str = "") -> Placement:
    """As the runtime of a pod makes it."""
    environ = {
        "SLIPWAY_STORE": "s3://b/p",
        "SLIPWAY_RUN": "x-000000000000",
        "SLIPWAY_PLACEMENT": f'{{"kind":"job","where":"{uid}"}}',
        "SLIPWAY_CLUSTER": bundle,
    }
    return MemberAddress.read(environ).placement


def seen(uid: str) -> BackendObservation:
    return BackendObservation(Handle("x-000000000000", "kubernetes", "x", "", {"uid": uid}), False)


def test_a_rank_is_of_this_cluster_by_its_object_or_by_its_certificates(tmp_path: Any) -> None:
    here = Known(login(tmp_path, ONE))
    assert here.here(claim("u1", ONE), None)
    assert here.here(claim("u1", ONE + TWO), None)  # while the authority is replaced
    assert here.here(claim("u1", ONE), seen("u2"))  # deleted, and made again
    assert here.here(claim("u1", TWO), seen("u1"))  # through a proxy with certificates of its own
    assert not here.here(claim("u1", TWO), None)
    assert not here.here(claim("u1", TWO), seen("u2"))
    assert not here.here(claim("u1"), seen("u2"))
    assert here.here(claim("u1"), None)  # nothing says that there is another
    assert here.here(None, seen("u1"))
    assert not here.here(None, None)  # it may wait in another cluster on the same store


@pytest.mark.parametrize(
    ("said", "chosen", "word"),
    [
        ("1.33", "1.33", ""),
        ("1.34+", "1.34", ""),
        ("1.35", "1.35", ""),
        ("1.38", "1.35", "newer"),
        ("1.29-gke", "1.33", "older"),
        ("2.0", "1.35", "newer"),
        (".", "1.34", ""),
    ],
)
def test_the_schemas_are_the_clusters_own_or_the_nearest(said: str, chosen: str, word: str) -> None:
    found = nearest(said, "c", ("1.33", "1.34", "1.35"))
    assert found.schemas == chosen
    assert word in found.note
    assert bool(found.note) is bool(word)
