"""Login programs of kubeconfigs (exec plugins): each is run for a token or a certificate, and again when that expires.

The exchange is the API group client.authentication.k8s.io: what the program needs to know is in KUBERNETES_EXEC_INFO,
and it prints an ExecCredential.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

from launcher.backends.kubernetes.access.credentials import ClientCertificate, Credentials, NoCredentials
from launcher.clock import boottime
from launcher.errors import BadInput

GROUP: Final = "client.authentication.k8s.io"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
MODES: Final = ("Never", "IfAvailable", "Always")
LONGEST: Final = 600.0  # seconds for a person to log in
QUICK: Final = 1.0  # seconds; a program that works longer may wait for a person, who must read what it says
PAUSE: Final = 5.0  # seconds before a program that failed is run again


@dataclass(frozen=True)
class ExecConfig:
    """The block `exec` of a kubeconfig's user."""

    command: str
    args: tuple[str, ...]
    environment: Mapping[str, str]
    version: str
    mode: str
    hint: str
    cluster: Mapping[str, Any] | None  # what the program is told of the cluster, with provideClusterInfo

    @classmethod
    def of(cls, block: Mapping[str, Any], cluster: Mapping[str, Any], where: str) -> ExecConfig:
        """`where`: the kubeconfig and the user, for messages. Raises BadInput."""
        version, mode = block.get("apiVersion"), block.get("interactiveMode")
        wrong = [] if block.get("command") else ["exec.command is missing; allowed: the name or path of a program"]
        if version not in VERSIONS:
            wrong.append(f"exec.apiVersion: {version!r} is not allowed; allowed: {', '.join(VERSIONS)}")
        if mode not in MODES and (mode is not None or version == VERSIONS[0]):
            shown = "it is missing" if mode is None else f"{mode!r} is not allowed"
            wrong.append(f"exec.interactiveMode: {shown}; allowed: {', '.join(MODES)}")
        args, env = block.get("args") or [], block.get("env") or []
        if not isinstance(args, list):
            wrong.append("exec.args: allowed: a list of texts")
        if not isinstance(env, list) or not all(isinstance(each, dict) and each.get("name") for each in env):
            wrong.append("exec.env: allowed: a list of {name: ..., value: ...}")
        if wrong:
            raise BadInput("\n".join(f"{where}: {each}" for each in wrong))
        return cls(
            command=str(block["command"]),
            args=tuple(map(str, args)),
            environment={str(each["name"]): str(each.get("value") or "") for each in env},
            version=str(version),
            mode=str(mode or "IfAvailable"),
            hint=str(block.get("installHint") or ""),
            cluster=_told(cluster) if block.get("provideClusterInfo") else None,
        )


def _told(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """A cluster's entry as the program gets it (v1, type Cluster)."""
    fields = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    info = {name: cluster[name] for name in fields if cluster.get(name)}
    bundle = cluster.get("certificate-authority")
    if bundle and "certificate-authority-data" not in info:
        info["certificate-authority-data"] = base64.b64encode(Path(bundle).read_bytes()).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == f"{GROUP}/exec":
            info["config"] = extension.get("extension")
    return info


@dataclass(frozen=True)
class _Answer:
    """`expires`: seconds since 1970; None: when the server refuses it."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: float | None = None

    @property
    def header(self) -> str:
        return f"Bearer {self.token}" if self.token else ""


class ExecPlugin(Credentials):
    """Runs the program when there is no answer yet, when it has expired, and after the server refused it."""

    def __init__(self, config: ExecConfig) -> None:
        self.config = config
        self._lock = threading.Lock()  # one program at a time: it may ask a person
        self._answer: _Answer | None = None
        self._failed: tuple[float, NoCredentials] | None = None
        self._told: set[str] = set()  # lines of the program that were shown
        self._files: tuple[tuple[str, str], ClientCertificate] | None = None

    def header(self) -> str:
        with self._lock:
            return self._current().header

    def certificate(self) -> ClientCertificate | None:
        with self._lock:
            answer = self._current()
            if not answer.certificate:
                return None
            texts = (answer.certificate, answer.key)
            if self._files is None or self._files[0] != texts:
                folder = tempfile.mkdtemp(prefix="slipway-login-")  # of this user only
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                pair = ClientCertificate(Path(folder, "cert.pem"), Path(folder, "key.pem"))
                for path, text in zip(pair, texts, strict=True):
                    path.write_text(text)
                try:
                    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*pair)
                except (ssl.SSLError, OSError):
                    self._answer = None
                    raise self._fails("printed a certificate and a key that do not fit, or are not PEM") from None
                self._files = (texts, pair)
            return self._files[1]

    def refuse(self, header: str) -> None:
        with self._lock:
            if self._answer is not None and self._answer.header == header:
                self._answer = None

    def _current(self) -> _Answer:
        answer = self._answer
        if answer is not None and (answer.expires is None or time.time() < answer.expires):
            return answer
        if self._failed is not None and boottime() - self._failed[0] < PAUSE:
            raise self._failed[1]
        self._answer = self._read(self._run())
        return self._answer

    def _fails(self, how: str) -> NoCredentials:
        """The error of a program that gives no login; it is kept for a moment, so that it is not run for each of many
        requests."""
        error = NoCredentials(f"the login program `{self.config.command}` {how}")
        self._failed = (boottime(), error)
        return error

    def _run(self) -> str:
        """What the program prints. Its complaints are shown once it works longer than a moment, and when it succeeds;
        otherwise the last of them is in the error."""
        config = self.config
        terminal = sys.stdin is not None and sys.stdin.isatty()
        if config.mode == "Always" and not terminal:
            raise self._fails("asks a person, and the input is no terminal")
        interactive = terminal and config.mode != "Never"
        spec: dict[str, Any] = {"interactive": interactive}
        if config.cluster is not None:
            spec["cluster"] = config.cluster
        info = {"apiVersion": config.version, "kind": "ExecCredential", "spec": spec}
        environment = {**os.environ, **config.environment, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        program = shutil.which(config.command)
        if program is None:
            hint = f": {config.hint}" if config.hint else ""
            place = "does not exist" if os.sep in config.command else "is not on the PATH"
            raise self._fails(f"{place}, or cannot be run{hint}")
        try:
            process = subprocess.Popen(
                [program, *config.args],
                env=environment,
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise self._fails(f"cannot be run: {error.strerror}") from None
        assert process.stdout is not None
        assert process.stderr is not None
        complaints = _Lines(process.stderr)
        output = _Lines(process.stdout)
        began = boottime()
        try:
            while process.poll() is None:
                if boottime() - began > LONGEST:
                    raise self._fails(f"did not end within {LONGEST:g} s")
                if boottime() - began > QUICK:
                    self._show(complaints)
                time.sleep(0.02)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.join()
        complaints.join(QUICK)  # a browser that the program has started may hold it open
        if process.returncode:
            last = f": {complaints.lines[-1].strip()}" if complaints.lines else ""
            raise self._fails(f"failed with exit code {process.returncode}{last}")
        self._show(complaints)
        return "".join(output.lines)

    def _show(self, complaints: _Lines) -> None:
        for line in list(complaints.lines):
            if line.strip() and line not in self._told:
                self._told.add(line)
                print(line.rstrip("\n"), file=sys.stderr, flush=True)

    def _read(self, output: str) -> _Answer:
        version = self.config.version
        try:
            said = json.loads(output)
            if not isinstance(said, dict):
                raise ValueError
        except ValueError:
            raise self._fails(f"printed no ExecCredential but {output.strip()[:60]!r}") from None
        if (said.get("kind"), said.get("apiVersion")) != ("ExecCredential", version):
            raise self._fails(
                f"printed {said.get('apiVersion')!r} {said.get('kind')!r}; the kubeconfig asks for {version} "
                "ExecCredential"
            )
        status = said.get("status")
        if not isinstance(status, dict):
            raise self._fails("printed an ExecCredential without a status")
        texts = [status.get(name) or "" for name in ("token", "clientCertificateData", "clientKeyData")]
        token, certificate, key = texts
        if not all(isinstance(each, str) for each in texts) or not (token.isprintable() and token.isascii()):
            raise self._fails("printed a token or a certificate that is no text")
        if bool(certificate) != bool(key):
            raise self._fails("printed only one of certificate and key; both are needed")
        if not token and not certificate:
            raise self._fails("printed neither a token nor a certificate")
        stamp, expires = status.get("expirationTimestamp"), None
        if stamp:
            try:
                expires = datetime.fromisoformat(str(stamp)).timestamp()
            except ValueError:
                raise self._fails(f"printed the expirationTimestamp {stamp!r}; RFC 3339 is needed") from None
        return _Answer(token, certificate, key, expires)


class _Lines(threading.Thread):
    """Reads a program's stream to its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self._stream = stream
        self.start()

    def run(self) -> None:
        with self._stream:
            for line in self._stream:
                self.lines.append(line.decode("utf-8", "replace"))
