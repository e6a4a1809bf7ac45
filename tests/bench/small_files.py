"""The upload of many small files as an output: CPU seconds of this process, beside obstore with a sha256 for each file.

    FILES=20000 OLD=<another checkout> python -m tests.bench.small_files

The server takes everything and keeps nothing, in a process of its own, so that only the client is measured.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FILES = int(os.environ.get("FILES", "20000"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SIZE = 2000  # bytes of a file
ANSWER = b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\nLast-Modified: Mon, 30 Nov 2026 12:00:00 GMT\r\n\r\n'


class Taking(asyncio.Protocol):
    """Answers each request once it is there as a whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.kept = transport, b""

    def data_received(self, data: bytes) -> None:
        self.kept += data
        while (end := self.kept.find(b"\r\n\r\n")) >= 0:
            head = self.kept[:end].lower()
            length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0] or b"0")
            if len(self.kept) < end + 4 + length:
                return
            self.kept = self.kept[end + 4 + length :]
            self.transport.write(ANSWER)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Taking, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def by_us(root: Path, endpoint: str) -> None:
    from launcher.store import open_store
    from tests.support.trees import write_tree

    store = open_store(f"s3://bucket/store?endpoint={endpoint}&region=r")
    write_tree(store, "out/", "out.manifest.json", root)


def by_obstore(root: Path, endpoint: str) -> None:
    import obstore
    from obstore.store import S3Store

    store = S3Store("bucket", endpoint=endpoint, region="r", prefix="store", client_options={"allow_http": True})

    def put(name: str) -> tuple[str, str]:
        body = (root / name).read_bytes()
        obstore.put(store, f"out/{name}", body, use_multipart=False)
        return name, hashlib.sha256(body).hexdigest()

    with ThreadPoolExecutor(8) as pool:
        listed = dict(pool.map(put, os.listdir(root)))  # noqa: PTH208
    obstore.put(store, "out.manifest.json", json.dumps(listed).encode(), mode="create")


def main() -> int:
    if sys.argv[1:] == ["server"]:
        asyncio.run(serve())
    if sys.argv[1:] == ["one"]:
        way = by_us if os.environ["WAY"] == "us" else by_obstore
        way(Path(os.environ["ONE"]), os.environ["ENDPOINT"])  # imports and connections
        began = used()
        way(Path(os.environ["ROOT"]), os.environ["ENDPOINT"])
        print(f"{used() - began:.2f}")
        return 0
    from tests.bench.checkouts import checkouts, measured

    server = subprocess.Popen([sys.executable, "-m", "tests.bench.small_files", "server"], stdout=subprocess.PIPE)
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as name:
        for part, files in (("one", 1), ("root", FILES)):
            (Path(name) / part).mkdir()
            for number in range(files):
                (Path(name) / part / f"{number:06d}.json").write_bytes(os.urandom(SIZE))
        os.environ |= {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
        os.environ |= {"ENDPOINT": f"http://127.0.0.1:{int(server.stdout.readline())}"}
        os.environ |= {"ROOT": f"{name}/root", "ONE": f"{name}/one"}
        codes = checkouts()
        figures: dict[str, list[str]] = {}
        for _ in range(ROUNDS):
            for code in [*codes, "obstore and sha256"]:
                os.environ["WAY"] = "us" if code in codes else "obstore"
                figures.setdefault(code, []).append(measured(__file__, codes.get(code, codes["now"])))
    server.kill()
    print(f"| upload of {FILES:,} files of {SIZE:,} bytes | CPU s, each time |\n|---|---:|")
    for code, each in figures.items():
        print(f"| {code} | {', '.join(each)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
