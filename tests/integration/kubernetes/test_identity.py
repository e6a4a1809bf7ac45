"""What a real cluster says of itself, and what another namespace of it holds."""

from __future__ import annotations

import pytest

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.connection import Version, authorities_of, version_of
from launcher.protocol.records import authorities
from tests.integration.kubernetes.conftest import Place
from tests.integration.kubernetes.submitter import small

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_its_pods_know_it_by_what_a_kubeconfig_knows_it_by(place: Place) -> None:
    config_map, key = names.ROOT_CA
    there = place.cluster.wait_for("the certificates", lambda: place.get("configmap", config_map), 60)
    known = authorities_of(place.backend.login)
    assert known
    assert known.issuperset(authorities(there["data"][key]))


def test_its_version_is_asked_for(place: Place) -> None:
    assert version_of(place.backend.api) == Version(place.cluster.version())


def test_what_lies_in_another_namespace_is_ended_there(place: Place) -> None:
    """As the reaper does, which lists all namespaces where it may."""
    one = small("one", place.namespace)
    (run,) = place.backend.submit(place.backend.render([one]), [one])
    elsewhere = KubernetesBackend({"namespace": "default"})
    (seen,) = [one for one in elsewhere.mine() if one.handle.run == run]
    elsewhere.cancel([seen.handle])
    place.cluster.wait_for("the Job to go", lambda: not place.cluster.get("jobs", None, place.namespace) or None, 60)
