"""What tells one cluster from another: the root certificates of its API server, which every namespace holds a copy of
(ConfigMap kube-root-ca.crt) and most kubeconfigs carry. A cluster has no other name that its pods could know."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")


def authorities(bundle: str) -> tuple[str, ...]:
    """PEM -> a short digest of each certificate, in order of the digests. Two clusters have one in common only if they
    were given the same authority; while one is replaced by another, a cluster has both."""
    bodies = {"".join(found.split()) for found in _CERTIFICATE.findall(bundle)}
    return tuple(sorted(hashlib.sha256(body.encode()).hexdigest()[:12] for body in bodies))
