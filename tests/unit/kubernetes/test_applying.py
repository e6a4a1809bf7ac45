"""How the tests' cluster applies objects: again where a loaded machine was too slow, once where it is refused. The
words are those of kubectl 1.34."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cluster import cluster as module
from tests.support.cluster.cluster import Cluster

SLOW = (
    'Error from server (Timeout): error when creating "STDIN": Timeout: request did not complete within requested '
    "timeout - context deadline exceeded",
    "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
    "Error from server (TooManyRequests): the server has received too many requests and has asked us to try again",
    "Error from server (Conflict): error when applying patch: Operation cannot be fulfilled on clusterqueues: the "
    "object has been modified; please apply your changes to the latest version and try again",
    'Error from server (InternalError): error when creating "STDIN": Internal error occurred: failed calling webhook '
    '"mclusterqueue.kb.io": failed to call webhook: Post "https://kueue/mutate": context deadline exceeded',
    "Error from server: etcdserver: request timed out",
    "Unable to connect to the server: net/http: TLS handshake timeout",
)
REFUSED = (
    'Error from server (Forbidden): pods "x" is forbidden: violates PodSecurity "restricted:latest"',
    'The Job "x" is invalid: spec.template: Required value',
    'Error from server (InternalError): Internal error occurred: failed calling webhook "x": x509: unknown authority',
    'Error from server (Conflict): Apply failed with 1 conflict: conflict with "kueue": .spec.cohort',
    'Error from server (NotFound): namespaces "gone" not found',
)


class KubectlThatFails(Cluster):
    """A cluster whose kubectl fails with these words, one after the other, and then succeeds."""

    def __init__(self, *failures: str) -> None:
        self.failures, self.calls = list(failures), 0

    def kubectl(self, *_: Any, **__: Any) -> str:
        self.calls += 1
        if self.failures:
            raise RuntimeError(f"kubectl apply: 1\n{self.failures.pop(0)}")
        return "applied"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda _: None)


@pytest.mark.parametrize("words", SLOW)
def test_what_passes_is_sent_again(words: str) -> None:
    place = KubectlThatFails(words, words)
    assert (place.apply({"kind": "X"}), place.calls) == ("applied", 3)


@pytest.mark.parametrize("words", REFUSED)
def test_a_refusal_stands(words: str) -> None:
    place = KubectlThatFails(words)
    with pytest.raises(RuntimeError, match="kubectl apply: 1"):
        place.apply({"kind": "X"})
    assert place.calls == 1


def test_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", -1.0)
    place = KubectlThatFails(SLOW[0])
    with pytest.raises(RuntimeError, match="did not complete"):
        place.apply({"kind": "X"})
