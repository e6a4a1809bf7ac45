"""Which proxy leads to a server: the kubeconfig's `proxy-url`, otherwise HTTPS_PROXY, HTTP_PROXY and NO_PROXY by the
rules of Go's programs, kubectl among them (golang.org/x/net/http/httpproxy). They differ from those of Python's
packages: ALL_PROXY counts nowhere, this machine itself is never asked through a proxy of the environment, and NO_PROXY
says nothing about a `proxy-url`."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from launcher.errors import BadInput

SCHEMES: Final = ("http", "https", "socks5")
PORTS: Final = {"http": 80, "https": 443}


def proxy_of(server: str, proxy_url: str, environ: Mapping[str, str], where: str) -> str:
    """The proxy's URL; empty where the way is direct. `where`: the kubeconfig, for messages. Raises BadInput."""
    if proxy_url:
        return _checked(proxy_url, f"kubeconfig {where}: proxy-url")
    parts = urlsplit(server)
    name = f"{parts.scheme.upper()}_PROXY"
    value = environ.get(name) or environ.get(name.lower()) or ""
    host, port = (parts.hostname or "").rstrip("."), parts.port or PORTS.get(parts.scheme, 0)
    if not value or _is_here(host) or _is_direct(host, port, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
        return ""
    return _checked(value if "://" in value else f"http://{value}", name)


def login_of(proxy: str) -> str:
    """`user:password` of a proxy's URL; empty without one.

    >>> login_of("http://jane:p%40ss@proxy:3128"), login_of("http://proxy:3128")
    ('jane:p@ss', '')
    """
    parts = urlsplit(proxy)
    return f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""


def _checked(url: str, field: str) -> str:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:  # the URL may contain a password
        raise BadInput(f"{field}: not a proxy's URL; allowed: {', '.join(f'{each}://HOST:PORT' for each in SCHEMES)}")
    return url


def _is_here(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_direct(host: str, port: int, no_proxy: str) -> bool:
    address = _address(host)
    for entry in (each.strip().lower() for each in no_proxy.split(",")):
        if entry == "*":
            return True
        if not entry:
            continue
        if "/" in entry:
            try:
                if address is not None and address in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                pass  # not a range of addresses
            continue
        name, only = _with_port(entry)
        if only and only != port:
            continue
        if (literal := _address(name)) is not None:
            if literal == address:
                return True
            continue
        name = name.removeprefix("*") if name.startswith("*.") else name
        if host.endswith(name if name.startswith(".") else f".{name}") or host == name:
            return True
    return False


def _with_port(entry: str) -> tuple[str, int]:
    """(name, port) of an entry of NO_PROXY; port 0: any."""
    if _address(entry) is not None:
        return entry, 0
    name, colon, port = entry.rpartition(":")
    if colon and port.isdigit():
        return name.strip("[]"), int(port)
    return entry.strip("[]"), 0


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
