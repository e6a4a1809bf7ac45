"""Which proxy leads to a cluster: what the proxy itself sees of us, and of kubectl with the same environment."""

from __future__ import annotations

import base64
import os
import select
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.access.proxies import proxy_of
from launcher.backends.kubernetes.api import Api
from launcher.errors import BadInput, SlipwayError
from tests.integration.k8s_tree.building import OWN_KUBECTL, kubectl
from tests.integration.kubernetes.authorities import Authority, authority
from tests.integration.kubernetes.speaker import Answer, Speaker, speaking

__all__ = ["authority"]

NAMES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy")


class Proxy:
    """An HTTP proxy that tunnels (CONNECT). `asked`: (target, Proxy-Authorization) of each tunnel. Whatever the target,
    the tunnel ends at `server`."""

    def __init__(self, server: Speaker) -> None:
        self.server = server
        self.asked: list[tuple[str, str]] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=32)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._tunnel, args=(connection,), daemon=True).start()

    def _tunnel(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            reader = connection.makefile("rb", buffering=0)
            target = reader.readline().decode().split()[1]
            held = ""
            while (line := reader.readline().decode().strip()) != "":
                name, _, value = line.partition(":")
                if name.lower() == "proxy-authorization":
                    held = value.strip()
            self.asked.append((target, held))
            with socket.create_connection(("127.0.0.1", self.server.server_port)) as there:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                ends = {connection: there, there: connection}
                while True:
                    for end in select.select(list(ends), [], [])[0]:
                        data = end.recv(65536)
                        if not data:
                            return
                        ends[end].sendall(data)


def version(method: str, path: str, query: dict[str, str]) -> Answer:
    return 200, {"major": "1"}


@pytest.fixture
def server(authority: Authority) -> Iterator[Speaker]:
    with speaking(version, authority.server, str(authority.ca)) as speaker:
        yield speaker


@pytest.fixture
def proxy(server: Speaker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    proxy = Proxy(server)
    yield proxy
    proxy.close()


FAR = {"server": "https://cluster.test:6443", "tls-server-name": "localhost"}


@pytest.mark.parametrize(
    ("environment", "cluster", "expected"),
    [
        ({"HTTPS_PROXY": "http://{proxy}"}, FAR, [("cluster.test:6443", "")]),
        ({"https_proxy": "{proxy}"}, FAR, [("cluster.test:6443", "")]),
        (
            {"HTTPS_PROXY": "http://jane:p%40ss@{proxy}"},
            FAR,
            [("cluster.test:6443", "Basic " + base64.b64encode(b"jane:p@ss").decode())],
        ),
        # this machine is not asked through a proxy of the environment: kind on a company's laptop
        ({"HTTPS_PROXY": "http://{proxy}"}, {}, []),
        ({"HTTPS_PROXY": "http://{proxy}"}, {"server": "https://localhost:{port}"}, []),
        ({"HTTP_PROXY": "http://{proxy}", "ALL_PROXY": "http://{proxy}"}, {}, []),
        # proxy-url is the file's own word: neither NO_PROXY nor this machine's addresses go past it
        ({"NO_PROXY": "cluster.test"}, {**FAR, "proxy-url": "http://{proxy}"}, [("cluster.test:6443", "")]),
        ({"NO_PROXY": "*"}, {"proxy-url": "http://{proxy}"}, [("127.0.0.1:{port}", "")]),
        ({"HTTPS_PROXY": "http://127.0.0.1:1"}, {**FAR, "proxy-url": "http://{proxy}"}, [("cluster.test:6443", "")]),
        (
            {},
            {**FAR, "proxy-url": "http://jane:secret@{proxy}"},
            [("cluster.test:6443", "Basic " + base64.b64encode(b"jane:secret").decode())],
        ),
    ],
)
def test_the_way_is_kubectls(
    server: Speaker,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    cluster: dict[str, Any],
    expected: list[tuple[str, str]],
) -> None:
    def filled(text: str) -> str:
        return text.replace("{proxy}", proxy.address).replace("{port}", str(server.server_port))

    path = server.kubeconfig(tmp_path, user={"token": "t"}, **{key: filled(text) for key, text in cluster.items()})
    monkeypatch.setenv("KUBECONFIG", str(path))
    for name, value in environment.items():
        monkeypatch.setenv(name, filled(value))
    tunnels = [(filled(target), held) for target, held in expected]
    Api(login()).get("/version")
    assert proxy.asked == tunnels
    command = [kubectl(), "get", "--raw", "/version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    asked = proxy.asked[len(tunnels) :]
    assert asked == tunnels or (not OWN_KUBECTL.is_file() and set(asked) == set(tunnels))


@pytest.mark.parametrize(
    ("no_proxy", "server", "direct"),
    [
        ("", "https://a.example.com", False),
        ("example.com", "https://a.example.com", True),
        ("example.com", "https://example.com", True),
        ("example.com", "https://badexample.com", False),
        (".example.com", "https://a.example.com", True),
        (".example.com", "https://example.com", False),
        ("*.example.com", "https://a.example.com", True),
        ("*.example.com", "https://example.com", False),
        (" EXAMPLE.com , other", "https://a.example.com", True),
        ("example.com:6443", "https://a.example.com:6443", True),
        ("example.com:6443", "https://a.example.com", False),
        ("example.com:443", "https://a.example.com", True),
        ("10.0.0.0/8", "https://10.1.2.3:6443", True),
        ("10.0.0.0/8", "https://11.1.2.3:6443", False),
        ("10.1.2.3", "https://10.1.2.3:6443", True),
        ("10.1.2.3:443", "https://10.1.2.3:6443", False),
        ("10.1.2.3", "https://210.1.2.3", False),
        ("*", "https://a.example.com", True),
        ("[fd00::1]", "https://[fd00::1]:6443", True),
        ("fd00::/8", "https://[fd00::1]:6443", True),
        ("nonsense/8", "https://a.example.com", False),
    ],
)
def test_names_that_need_no_proxy(no_proxy: str, server: str, direct: bool) -> None:
    """The cases of golang.org/x/net/http/httpproxy's documentation and tests, by which kubectl goes."""
    environ = {"HTTPS_PROXY": "http://proxy.test:3128", "NO_PROXY": no_proxy}
    assert (proxy_of(server, "", environ, "config") == "") is direct


@pytest.mark.parametrize("url", ["ftp://proxy.test:1", "http://", "proxy.test:3128", "http://proxy.test:99999"])
def test_a_proxy_url_that_cannot_be_used_is_said_without_its_password(url: str) -> None:
    with pytest.raises(BadInput, match=r"kubeconfig config: proxy-url: not a proxy's URL; allowed: http://HOST:PORT"):
        proxy_of("https://a.example.com", url, {}, "config")
    with pytest.raises(BadInput) as caught:
        proxy_of("https://a.example.com", "ftp://jane:secret@proxy.test", {}, "config")
    assert "secret" not in str(caught.value)


def test_a_proxy_that_is_not_there_is_one_line(
    server: Speaker, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.close()
    path = server.kubeconfig(tmp_path, **{"proxy-url": f"http://jane:secret@{proxy.address}"})
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(SlipwayError) as caught:
        Api(login()).request("GET", "/version", patience=0.0)
    assert f"the proxy {proxy.address} does not answer" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
