"""Certificates of a test's own HTTPS servers, and of those who log in to them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.cluster.pki import Pki


class Authority(NamedTuple):
    """`server`: the TLS of a server on 127.0.0.1 that asks for a client's certificate and does without one."""

    ca: Path
    server: ssl.SSLContext
    pki: Pki

    def pair(self, name: str) -> tuple[str, str]:
        """Certificate and key, in PEM, of a client of this name."""
        self.pki.certificate(name, f"/CN={name}")
        return self.pki.cert(name).read_text(), self.pki.key(name).read_text()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    pki = Pki(tmp_path_factory.mktemp("tls") / "pki", "", "127.0.0.1")
    pki.folder.mkdir()
    pki._authority("ca")
    pki.certificate("server", "/CN=server", "DNS:localhost", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.cert("server"), pki.key("server"))
    context.load_verify_locations(pki.ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    return Authority(pki.ca, context, pki)
