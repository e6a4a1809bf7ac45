"""A proxy whose hosts are this server itself: after CONNECT it speaks TLS and answers. Other hosts are refused, so the
SDK reaches nothing else. Each answer is sent with one write."""

from __future__ import annotations

import fnmatch
import json
import signal
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes.azureml import certificates
from tests.fakes.azureml.answers import TOKEN, refused, respond
from tests.fakes.azureml.cloud import NODE_WORD, TERMINAL, VAULT_TOKEN, Cloud, Refused, StandInJob, seconds
from tests.fakes.azureml.nodes import Nodes

TICK: Final = 0.01  # seconds of the wall clock between two looks at the jobs
LOGIN: Final = "https://login.microsoftonline.com"


def new_cloud() -> Cloud:
    """Its instances say times of today, from which launchers count; its clock begins with the server."""
    cloud = Cloud()
    cloud.made.epoch = time.time()
    return cloud


class AzureServer(ThreadingHTTPServer):
    """`program`: stands in for `python` in the images; None: no job runs anything."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder: Path, speed: float, program: Path | None, environ: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.cloud, self.speed, self.folder = new_cloud(), speed, folder
        self.program, self.environ = program, environ
        self.authority, pem = certificates.make(folder)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(pem)
        self.lock = threading.Lock()
        self.nodes: dict[str, Nodes] = {}
        self.refused: list[str] = []
        self._began, self._base = time.monotonic(), 0.0
        threading.Thread(target=self._ticks, daemon=True).start()

    def now(self) -> float:
        return self._base + (time.monotonic() - self._began) * self.speed

    def add(self, more: float) -> None:
        self._base += more

    def _ticks(self) -> None:
        while True:
            with self.lock:
                self.cloud.made.advance(self.now())
                for job in self.cloud.lost_jobs():
                    self._end(job, "Failed", self.now())
                for job in self.cloud.jobs.values():
                    if job.status not in TERMINAL and not job.held:
                        self._tick(job, self.now())
            time.sleep(TICK)

    def _tick(self, job: StandInJob, now: float) -> None:
        settings, nodes = self.cloud.settings, self.nodes.get(job.name)
        if job.status == "CancelRequested":
            if nodes is not None and nodes.outcome() is None and now < job.ending + settings.grace:
                nodes.signal(signal.SIGTERM)
                return
            if now >= job.ending + settings.cancel:
                self._end(job, "Canceled", now)
        elif nodes is not None:
            code = nodes.outcome()
            if code is not None:
                self._end(job, "Failed" if code else "Completed", now, code=code)
            elif now > job.running + seconds(job.body["properties"]["limits"]["timeout"]):
                job.status, job.ending = "CancelRequested", now
                self.cloud.note(now, "timeout", name=job.name)
        elif job.status != "Running":
            waited = now - job.queued
            job.status = "NotStarted" if waited < 0.2 * settings.queue else "Queued"
            if waited >= settings.queue and not settings.stuck:
                job.status, job.running, job.starts = "Running", now, job.starts + 1
                self.cloud.note(now, "started", name=job.name)
                if self.program is not None:
                    folder = self.folder / job.name / str(job.starts)
                    properties = job.body["properties"]
                    self.nodes[job.name] = Nodes(
                        folder, properties, self.program, self.environ | self._node(properties)
                    )

    def _node(self, properties: Mapping[str, Any]) -> dict[str, str]:
        """What a node has of Azure: the way to other hosts, and the identity of the job."""
        here = f"http://127.0.0.1:{self.server_address[1]}"
        way = {"HTTPS_PROXY": here, "SSL_CERT_FILE": str(self.authority), "NO_PROXY": "127.0.0.1"}
        if not properties.get("identity"):
            return way
        return {**way, "MSI_ENDPOINT": f"{here}/node/token", "MSI_SECRET": NODE_WORD}

    def _end(self, job: StandInJob, status: str, now: float, **more: Any) -> None:
        nodes = self.nodes.pop(job.name, None)
        if nodes is not None:
            nodes.kill()
        job.status = status
        self.cloud.note(now, "ended", name=job.name, status=status, **more)

    def preempt(self, name: str) -> None:
        """The nodes of a job are taken back without a word; it waits for others."""
        job = self.cloud.jobs[name]
        if (nodes := self.nodes.pop(name, None)) is not None:
            nodes.kill()
        job.status, job.queued = "Queued", self.now()
        self.cloud.note(self.now(), "preempted", name=name)

    def close(self) -> None:
        for nodes in self.nodes.values():
            nodes.kill()


class Handler(BaseHTTPRequestHandler):
    server: AzureServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass

    def do_CONNECT(self) -> None:
        host = self.path.partition(":")[0]
        if not any(fnmatch.fnmatch(host, known) for known in certificates.HOSTS):
            self.server.refused.append(self.path)
            self._send(403, {"error": {"code": "Refused", "message": f"{host} is not here"}})
            return
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self.wfile.flush()
        try:
            self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        except OSError:
            self.close_connection = True
            return
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb")
        self.close_connection = False

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        host = (self.headers.get("Host") or "").partition(":")[0]
        server = self.server
        with server.lock:
            try:
                if path.startswith("/admin/") and not isinstance(self.connection, ssl.SSLSocket):
                    return self._send(200, self._admin(path.removeprefix("/admin/"), json.loads(body or b"{}")))
                if path == "/node/token" and not isinstance(self.connection, ssl.SSLSocket):
                    return self._send(200, self._identity())
                if host.endswith(".vault.azure.net"):
                    given = self.headers.get("Authorization") or ""
                    if not given:  # Microsoft's client asks first for whom its token must be
                        challenge = f'Bearer authorization="{LOGIN}/t", resource="https://vault.azure.net"'
                        return self._send(401, {}, {"WWW-Authenticate": challenge})
                    return self._send(200, server.cloud.secret(host, path, given, server.now()))
                if host == "login.microsoftonline.com":
                    return self._send(200, self._login(path))
                if host != "management.azure.com":
                    raise Refused(404, "NotFound", path)
                given = self.headers.get("Authorization") or ""
                answer = respond(server.cloud, server.now(), self.command, self.path, given, body)
                return self._drop() if answer is None else self._send(*answer)
            except Refused as error:
                return self._send(*refused(error))
            except Exception:
                return self._send(500, {"error": {"code": "StandIn", "message": traceback.format_exc()}})

    def _login(self, path: str) -> Any:
        tenant = path.split("/")[1]
        if path.endswith("/discovery/instance"):
            names = {"preferred_network": "login.microsoftonline.com", "preferred_cache": "login.windows.net"}
            metadata = [{**names, "aliases": ["login.microsoftonline.com"]}]
            endpoint = f"{LOGIN}/t/v2.0/.well-known/openid-configuration"
            return {"tenant_discovery_endpoint": endpoint, "api-version": "1.1", "metadata": metadata}
        if path.endswith("openid-configuration"):
            base = f"{LOGIN}/{tenant}"
            return {
                "token_endpoint": f"{base}/oauth2/v2.0/token",
                "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                "device_authorization_endpoint": f"{base}/oauth2/v2.0/devicecode",
                "issuer": f"{base}/v2.0",
            }
        if not self.server.cloud.settings.token:
            raise Refused(401, "invalid_client", "AADSTS7000222: The provided client secret keys are expired.")
        return {"token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 3599, "access_token": TOKEN}

    def _identity(self) -> Any:
        """As the token service of a node answers."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if self.headers.get("secret") != NODE_WORD or query.get("resource") != "https://vault.azure.net":
            raise Refused(400, "BadRequest", "no identity for this")
        token = {"access_token": VAULT_TOKEN, "expires_on": str(int(time.time()) + 3600)}
        return {**token, "resource": query["resource"], "token_type": "Bearer"}

    def _admin(self, what: str, given: dict[str, Any]) -> Any:
        server, cloud = self.server, self.server.cloud
        match what:
            case "clock":
                server.add(float(given.get("add", 0)))
            case "settings":
                for name, value in given.items():
                    setattr(cloud.settings, name, value)
            case "ledger":
                return cloud.ledger
            case "bodies":
                return {name: job.body for name, job in cloud.jobs.items()}
            case "status":
                return {name: job.status for name, job in cloud.jobs.items()}
            case "set":  # {"name": ..., "status": ...}
                cloud.jobs[given["name"]].status = given["status"]
                cloud.jobs[given["name"]].held = True
            case "made":  # {"making": ..., "quota": ..., "failing": ...}
                for name, value in given.items():
                    setattr(cloud.made, name, value)
                there = {name: each.state for name, each in cloud.made.there.items()}
                return {"there": there, "most": cloud.made.most, "bodies": [cloud.made.there[n].body for n in there]}
            case "preempt":
                server.preempt(given["name"])
            case "add":  # a job that somebody else has created
                cloud.jobs[given["name"]] = StandInJob(given["name"], given["body"], server.now(), server.now())
            case "reset":
                server.close()
                server.nodes.clear()
                server.cloud = new_cloud()
            case "refused":
                return server.refused
        return {}

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, answer: Any, headers: Mapping[str, str] | None = None) -> None:
        body = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
