"""A registry of images that serves what it has by the OCI distribution specification, and no more.

The names of the media types and of the fields are the specification's; the shape of the index is that of the public
`debian:bookworm`, attestations included.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

INDEX: Final = "application/vnd.oci.image.index.v1+json"
IMAGE: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
TOKEN: Final = "for everybody"


class Registry:
    """`asked`: the paths of all requests. `guarded`: it wants a token, which it gives to everybody. `broken`: path's
    end -> (status, body) that it answers instead."""

    def __init__(self) -> None:
        self.blobs: dict[str, tuple[str, bytes]] = {}
        self.asked: list[str] = []
        self.guarded = False
        self.broken: dict[str, tuple[int, bytes]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                status, kind, body = registry.answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                if status == 401:
                    scope = 'service="here",scope="repository:team/tool:pull"'
                    self.send_header("WWW-Authenticate", f'Bearer realm="http://{registry.host}/token",{scope}')
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        for end, (status, body) in self.broken.items():
            if path.endswith(end):
                return status, "application/json", body
        if path.startswith("/token?"):
            assert "scope=repository%3Ateam%2Ftool%3Apull" in path
            return 200, "application/json", json.dumps({"token": TOKEN}).encode()
        if self.guarded and authorization != f"Bearer {TOKEN}":
            return 401, "application/json", b'{"errors":[{"code":"UNAUTHORIZED"}]}'
        if path == "/v2/":
            return 200, "application/json", b"{}"
        kind, body = self.blobs.get(path.rpartition("/")[2], ("", b""))
        return (200, kind, body) if body else (404, "application/json", b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')

    def keep(self, kind: str, value: Any) -> str:
        """The digest."""
        body = json.dumps(value).encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        self.blobs[digest] = kind, body
        return digest

    def image(self, architecture: str) -> str:
        """An image for one processor; its digest."""
        config = self.keep(CONFIG, {"architecture": architecture, "os": "linux", "rootfs": {"type": "layers"}})
        described = {"mediaType": CONFIG, "digest": config, "size": len(self.blobs[config][1])}
        return self.keep(IMAGE, {"schemaVersion": 2, "mediaType": IMAGE, "config": described, "layers": []})

    def saved(self, archive: Path) -> str:
        """The image of a `docker save`, with its layers, which an engine can pull; its digest."""
        with tarfile.open(archive) as tar:

            def part(name: str) -> bytes:
                found = tar.extractfile(name)
                assert found is not None
                return found.read()

            (described,) = json.loads(part("manifest.json"))
            config = self._blob(CONFIG, part(described["Config"]))
            layers = [self._blob(LAYER, part(name)) for name in described["Layers"]]
        return self.keep(IMAGE, {"schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": layers})

    def _blob(self, kind: str, body: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        self.blobs[digest] = kind, body
        return {"mediaType": kind, "digest": digest, "size": len(body)}

    def index(self, *architectures: str) -> str:
        """An image for several processors, with an attestation beside; its digest."""
        listed: list[dict[str, Any]] = []
        for architecture in (*architectures, "unknown"):
            digest = self.image(architecture)
            platform = {"architecture": architecture, "os": "unknown" if architecture == "unknown" else "linux"}
            listed.append({"mediaType": IMAGE, "digest": digest, "size": 1, "platform": platform})
        return self.keep(INDEX, {"schemaVersion": 2, "mediaType": INDEX, "manifests": listed})
