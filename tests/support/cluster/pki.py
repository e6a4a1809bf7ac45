"""Certificates and kubeconfigs of a cluster, made by openssl: a client certificate for everyone by one authority, and
one by another with which the API server says on whose behalf it asks the servers behind it."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster.sandbox import run

DAYS = "30"


@dataclass
class Pki:
    """
    folder  keys and certificates
    server  the API server's URL
    """

    folder: Path
    server: str
    address: str

    def make(self) -> None:
        self.folder.mkdir()
        for name in ("ca", "front-ca"):
            self._authority(name)
        run("openssl", "genrsa", "-out", self.folder / "sa.key", "2048")
        run("openssl", "rsa", "-in", self.folder / "sa.key", "-pubout", "-out", self.folder / "sa.pub")
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        addresses = ("127.0.0.1", "10.96.0.1", self.address)
        alternatives = [*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)]
        self.certificate("apiserver", "/CN=kube-apiserver", *alternatives)
        self.certificate("webhook", "/CN=webhook", "DNS:localhost", "IP:127.0.0.1")
        self.certificate("admin", "/O=system:masters/CN=admin")
        self.certificate("controllers", "/CN=system:kube-controller-manager")
        self.certificate("scheduler", "/CN=system:kube-scheduler")
        self.certificate("front", "/CN=front", authority="front-ca")

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def cert(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def _authority(self, name: str) -> None:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        files = ["-keyout", self.key(name), "-out", self.cert(name), "-subj", f"/CN=slipway-test-{name}"]
        use = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        run("openssl", "req", "-x509", *curve, *files, "-days", DAYS, *use)

    def certificate(self, name: str, subject: str, *alternatives: str, authority: str = "ca") -> None:
        """NAME.key and NAME.crt, good for servers and clients."""
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        lines = ["keyUsage=digitalSignature", "extendedKeyUsage=clientAuth,serverAuth"]
        if alternatives:
            lines.append("subjectAltName=" + ",".join(alternatives))
        extensions.write_text("\n".join(lines) + "\n")
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key(name)]
        run("openssl", "req", "-new", *key, "-out", request, "-subj", subject)
        signed = ["-CA", self.cert(authority), "-CAkey", self.key(authority)]
        signed += ["-set_serial", str(secrets.randbits(63))]
        made = ["-days", DAYS, "-out", self.cert(name), "-extfile", extensions]
        run("openssl", "x509", "-req", "-in", request, *signed, *made)

    def kubeconfig(self, name: str, user: str | None = None, server: str | None = None) -> Path:
        """NAME.kubeconfig beside the folder, with the certificate of `user` and the address of `server`."""
        user = user or name
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": server or self.server, "certificate-authority": str(self.ca)},
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {"client-certificate": str(self.cert(user)), "client-key": str(self.key(user))},
                }
            ],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        file = self.folder.parent / f"{name}.kubeconfig"
        file.write_text(json.dumps(config, indent=1))
        return file
