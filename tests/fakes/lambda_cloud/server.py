"""The HTTP API of the stand-in, and /admin. Each answer is sent with one write: a header and a body in two packets
cost 40 ms on a machine with Nagle's algorithm and delayed acknowledgements."""

from __future__ import annotations

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tests.fakes.lambda_cloud.cloud import TYPES, Cloud, Refused, Settings
from tests.fakes.lambda_cloud.machines import Machine

BASE = "/api/v1"
TICK = 0.01  # seconds of the wall clock between two looks at the machines


class AdminClock:
    """Seconds that go `speed` times as fast as the wall clock, and jump when told to."""

    def __init__(self, speed: float) -> None:
        self.speed, self._base, self._began = speed, 0.0, time.monotonic()

    def now(self) -> float:
        return self._base + (time.monotonic() - self._began) * self.speed

    def add(self, seconds: float) -> None:
        self._base += seconds

    def run(self, speed: float) -> None:
        """Goes on from now at this speed; 0 stops it."""
        self._base, self._began, self.speed = self.now(), time.monotonic(), speed


class LambdaServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, key: str, speed: float, folder: Path, environ: dict[str, str] | None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.cloud, self.clock = Cloud(key, Settings()), AdminClock(speed)
        self.folder, self.environ = folder, environ  # without variables no instance runs anything
        self.machines: dict[str, Machine] = {}
        self.lock = threading.Lock()
        threading.Thread(target=self._ticks, daemon=True).start()

    def _ticks(self) -> None:
        while True:
            with self.lock:
                self.tick()
            time.sleep(TICK)

    def tick(self) -> None:
        """Starts the user data of instances that have booted, ends what was terminated or powered off."""
        now, cloud = self.clock.now(), self.cloud
        for instance in list(cloud.instances.values()):
            machine = self.machines.get(instance.id)
            if instance.terminating is not None:
                if machine is not None:
                    machine.kill()
                    del self.machines[instance.id]
                continue
            ready = now >= instance.launched + max(0.0, instance.boot - cloud.settings.lag)
            if ready and not instance.started and self.environ is not None:
                instance.started = True
                gpus = TYPES[instance.body["instance_type_name"]][0]
                folder = self.folder / instance.id
                self.machines[instance.id] = Machine(folder, instance.body.get("user_data", ""), gpus, self.environ)
                cloud.note(now, "started", id=instance.id, run=instance.tag("slipway:run"))
            if machine is not None and not instance.off:
                machine.wake(now)
                power = machine.power()
                late = power.startswith("+") and now + instance.jump >= instance.launched + 60.0 * float(power[1:])
                if power == "now" or late:
                    machine.kill()
                    instance.off = True
                    cloud.note(now, "off", id=instance.id, run=instance.tag("slipway:run"), late=late)

    def close(self) -> None:
        with self.lock:
            for machine in self.machines.values():
                machine.kill()


class Handler(BaseHTTPRequestHandler):
    server: LambdaServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def date_time_string(self, timestamp: float | None = None) -> str:
        server = self.server  # the header `Date`: by the clock that /admin moves
        return super().date_time_string(server.cloud.epoch + server.clock.now() if timestamp is None else timestamp)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        if path.startswith("/admin/"):
            with self.server.lock:
                self._send(200, self._admin(path, json.loads(body or b"{}")))
            return
        server = self.server
        with server.lock:
            authorization = self.headers.get("Authorization") or ""
            answer = respond(server.cloud, server.clock.now(), method, self.path, authorization, body)
            server.tick()  # what was terminated runs no more when the caller hears of it
        if answer is None:
            return self._drop()
        self._send(*answer)
        return None

    def _admin(self, path: str, given: dict[str, Any]) -> Any:
        server, cloud = self.server, self.server.cloud
        match path.removeprefix("/admin/"):
            case "clock":
                server.clock.add(float(given.get("add", 0)))
                server.clock.run(float(given.get("speed", server.clock.speed)))
                server.tick()
            case "settings":
                for name, value in given.items():
                    setattr(cloud.settings, name, value)
            case "instance":  # {"id": ..., "unhealthy": true}
                for name, value in given.items():
                    if name != "id":
                        setattr(cloud.instances[given["id"]], name, value)
            case "ledger":
                return cloud.ledger
            case "bodies":
                return [
                    {
                        "id": each.id,
                        "body": each.body,
                        "status": cloud.status(each, server.clock.now()),
                        "healthy": cloud.epoch + (cloud.healthy(each, server.clock.now()) or -cloud.epoch),
                    }
                    for each in cloud.instances.values()
                ]
        return {"now": server.clock.now()}

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def respond(
    cloud: Cloud, now: float, method: str, path: str, authorization: str, body: bytes
) -> tuple[int, Any] | None:
    """(the status, the JSON) of the answer to one request; None: the connection breaks."""
    plain, _, query = path.partition("?")
    call, given = _call(method, plain.removeprefix(BASE))
    try:
        cloud.admit(now, call, authorization)
        fault = cloud.fault(call)
        if fault == "drop_before":
            return None
        if fault == "500":
            raise Refused(500, "global/internal-error", "An internal error occurred.")
        if fault == "unknown":
            raise Refused(400, "global/unknown", "API encountered an unknown error.")
        if fault == "429":
            raise Refused(429, "global/too-many-requests", "Too many requests.")
        answer = _do(cloud, call, given, json.loads(body or b"{}"), dict(parse_qsl(query)), now)
    except Refused as error:
        return error.status, {"error": {"code": error.code, "message": error.message}}
    if fault == "drop_after":
        return None
    if fault == "unknown_after":
        return 400, {"error": {"code": "global/unknown", "message": "API encountered an error."}}
    return 200, {"data": answer}


def _call(method: str, path: str) -> tuple[str, str]:
    """The name of the call, and the id in its path."""
    plain = {
        ("GET", "/instances"): "list",
        ("GET", "/instance-types"): "types",
        ("GET", "/ssh-keys"): "keys",
        ("GET", "/images"): "images",
        ("GET", "/audit-events"): "audit",
        ("GET", "/file-systems"): "disks",
        ("POST", "/instance-operations/launch"): "launch",
        ("POST", "/instance-operations/terminate"): "terminate",
    }
    if (method, path) in plain:
        return plain[method, path], ""
    return ("get", path.rpartition("/")[2]) if method == "GET" and path.startswith("/instances/") else ("", "")


def _do(cloud: Cloud, call: str, given: str, body: dict[str, Any], query: dict[str, str], now: float) -> Any:
    match call:
        case "audit":
            return cloud.audit(query, now)
        case "list":
            return cloud.list(now)
        case "get":
            return cloud.get(given, now)
        case "types":
            return cloud.types()
        case "keys":
            return [{"id": cloud.ssh_key, "name": "laptop", "public_key": "ssh-ed25519 AAAA"}]
        case "images":
            return []
        case "disks":
            return [cloud.file_system(name, fields) for name, fields in cloud.settings.disks.items()]
        case "launch":
            return {"instance_ids": [cloud.launch(body, now)]}
        case "terminate":
            return {"terminated_instances": cloud.terminate(body.get("instance_ids", []), now)}
    raise Refused(404, "global/not-found", "The requested resource was not found.")
