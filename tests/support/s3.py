"""A real S3 server on loopback (versitygw over a folder; moto where it was not built) and stores in its buckets."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from launcher.store.base import Store
from launcher.store.opening import open_store
from tests.support.needs import required

ROOT = Path(__file__).resolve().parents[2]
KEY, SECRET, REGION = "testkey", "testsecret", "us-east-1"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": REGION}


@dataclass
class S3Server:
    """`real` is versitygw; its process can be stopped and continued, or killed and started again."""

    endpoint: str
    real: bool
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 180  # moto is Python, and imports for long on a busy machine
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                if self.process.poll() is None:  # otherwise that was somebody else's server
                    return
                raise OSError
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"no S3 server on {self.endpoint}: {self.log.read_text()[-2000:]}") from None
                time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def bucket(self) -> str:
        """A new, empty bucket's name."""
        import boto3

        name = f"test-{uuid4().hex[:12]}"
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )
        try:
            client.create_bucket(Bucket=name)
        finally:
            client.close()
        return name

    def url(self, bucket: str | None = None, prefix: str = "store", *, endpoint: str | None = None) -> str:
        """A store's URL, in a new bucket unless one is named; `endpoint` may be a proxy's."""
        query = urlencode({"endpoint": endpoint or self.endpoint, "region": REGION}, safe=":/")
        return f"s3://{bucket or self.bucket()}/{prefix}?{query}"


def free_port() -> int:
    """A port that nobody listens on, below those that the kernel gives to outgoing connections: of those, one may be in
    use again by the time a server is started there, or started there once more."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, max(lowest, 20_000))
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def versitygw() -> Path | None:
    """The server's program: built by tools/build.sh, or on PATH."""
    built = ROOT / ".tools" / "bin" / "versitygw"
    found = shutil.which("versitygw")
    return built if built.exists() else Path(found) if found else None


@contextmanager
def running() -> Iterator[S3Server]:
    """A server for as long as the context lasts; in use by benchmarks, too."""
    folder = Path(tempfile.mkdtemp(prefix="slipway-s3-"))
    (folder / "data").mkdir()
    program, port = versitygw(), free_port()
    if program is not None:
        access = ["--access", KEY, "--secret", SECRET, "--region", REGION]
        command = [str(program), "--port", f"127.0.0.1:{port}", *access, "--quiet", "posix", str(folder / "data")]
    else:
        if required("versitygw"):
            raise RuntimeError("versitygw is required here and not built: run `make tools` (needs Go)")
        print("S3 tests run against moto: versitygw is not built (`make tools`, needs Go)", file=sys.stderr)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = S3Server(f"http://127.0.0.1:{port}", program is not None, command, folder / "log")
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with running() as server:
        yield server


@pytest.fixture
def s3_url(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty store; the credentials are in the environment, for child processes as well."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return s3_server.url()


@pytest.fixture
def s3_store(s3_url: str) -> Store:
    return open_store(s3_url)
