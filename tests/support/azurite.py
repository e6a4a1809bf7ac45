"""Azurite, Microsoft's own stand-in for Azure's storage, on loopback, and stores in its containers.

It is a program of Node. tests/support/needs.py has the command that puts it where it is looked for; PATH will do, too.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from launcher.store.base import Store
from launcher.store.opening import open_store
from tests.support.needs import lacking
from tests.support.s3 import ROOT, free_port

ACCOUNT = "devstoreaccount1"
# of every Azurite, as its documentation says
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def program() -> str | None:
    built = ROOT / ".tools" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    return str(built) if built.exists() else shutil.which("azurite-blob")


class Azurite:
    def __init__(self, folder: Path, command: str) -> None:
        self.endpoint = f"http://127.0.0.1:{free_port()}/{ACCOUNT}"
        port = self.endpoint.rpartition(":")[2].partition("/")[0]
        self.log = folder / "log"
        given = ["--blobHost", "127.0.0.1", "--blobPort", port, "--location", str(folder), "--silent"]
        given += ["--skipApiVersionCheck", "--disableTelemetry"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([command, *given], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(port)), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise RuntimeError(f"Azurite did not start: {self.log.read_text()[-2000:]}") from None
                time.sleep(0.05)

    def container(self) -> str:
        """A new, empty container's name."""
        from azure.storage.blob import BlobServiceClient

        name = f"test-{uuid4().hex[:12]}"
        with BlobServiceClient(self.endpoint, credential=KEY) as client:
            client.create_container(name)
        return name

    def url(self, prefix: str = "store") -> str:
        query = urlencode({"account": ACCOUNT, "endpoint": self.endpoint}, safe=":/")
        return f"az://{self.container()}/{prefix}?{query}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    found = program()
    if found is None:
        lacking("azurite")
    with tempfile.TemporaryDirectory(prefix="slipway-azurite-") as folder:
        server = Azurite(Path(folder), found)
        try:
            yield server
        finally:
            server.close()


@pytest.fixture
def az_store(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    return open_store(azurite.url())
