"""The login to a cluster: the kubeconfig's, or that of the pod in which this process runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from launcher.backends.kubernetes.access import kubeconfig, oidc, plugin, proxies, waking
from launcher.backends.kubernetes.access.credentials import Credentials, TokenFile, of_user
from launcher.backends.kubernetes.impersonation import impersonation
from launcher.errors import BadInput, Unreachable

CONNECTIONS: Final = 32  # kept open; also the most requests at the same time
IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Login:
    """A cluster and how to reach it. `context`: of the kubeconfig; empty inside a cluster."""

    configuration: Any
    context: str
    namespace: str  # the context's namespace, or `default`
    kubeconfig: str = ""
    impersonates: tuple[tuple[str, str], ...] = ()  # headers; a name may come more than once
    credentials: Credentials = field(default_factory=Credentials)


def login(context: str | None = None) -> Login:
    """The login from $KUBECONFIG, ~/.kube/config, or the service account of the pod that this process runs in.

    Runs no login program and asks no issuer: the first request does. Raises BadInput for an unknown context and for
    fields that cannot be used, Unreachable for a file that is no kubeconfig.
    """
    try:  # imported only where a cluster is called: `launcher render` needs no SDK
        from kubernetes import config
        from kubernetes.client import Configuration
        from kubernetes.config.config_exception import ConfigException
        from yaml import YAMLError
    except ModuleNotFoundError as error:
        from launcher.install import install

        message = (
            f"backend `kubernetes` needs its SDK beside launcher: `{install('kubernetes')}` (missing: {error.name})"
        )
        raise BadInput(message) from None

    configuration = Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    configuration.socket_options = waking.socket_options()
    # the client read $KUBECONFIG when it was imported, which may be long ago
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    kubeconfigs = [path for path in files.split(os.pathsep) if path and Path(path).is_file()]
    try:
        if not kubeconfigs:
            if context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(client_configuration=configuration)
                account = TokenFile(IN_CLUSTER / "token")
                return Login(configuration, "", _read(IN_CLUSTER / "namespace") or "default", credentials=account)
            raise BadInput(f"no cluster: there is no kubeconfig at {files}; set KUBECONFIG")
        joined = os.pathsep.join(kubeconfigs)
        chosen = kubeconfig.read(kubeconfigs, context)
        # the official client sets the server and TLS up; what it makes of logins and proxies is not what kubectl does
        config.load_kube_config_from_dict(
            _without_login(chosen), client_configuration=configuration, persist_config=False
        )
        if not str(configuration.host).startswith(("http://", "https://")):
            raise ValueError(f"the server of context `{chosen.name}` is {configuration.host!r}; a URL is needed")
        _through_proxy(configuration, str(chosen.cluster.get("proxy-url") or ""), joined)
        credentials = credentials_of(chosen)
    except BadInput:
        raise
    except ConfigException as error:
        raise Unreachable(f"kubeconfig {files}: {error}") from None
    except (YAMLError, TypeError, AttributeError, LookupError, ValueError) as error:  # the file is not a kubeconfig
        raise Unreachable(f"kubeconfig {files}: not one: {' '.join(str(error).split())}") from None
    as_whom = impersonation(chosen.user, joined)
    return Login(configuration, chosen.name, chosen.namespace, joined, as_whom, credentials)


def credentials_of(chosen: kubeconfig.KubeContext) -> Credentials:
    """What requests of a context's user carry. Raises BadInput, ValueError, AttributeError."""
    user, where = chosen.user, f"kubeconfig {chosen.user_file}: user `{chosen.user_name}`"
    held, program, provider = of_user(user, chosen.user_name), user.get("exec"), user.get("auth-provider")
    if program and provider:
        raise BadInput(f"{where} has two logins, exec and auth-provider; allowed: one")
    if program:
        config = plugin.ExecConfig.of(program, chosen.cluster, where)
        return held or plugin.ExecPlugin(config)
    if provider:
        return held or oidc.provider(provider, chosen.user_file, chosen.user_name)
    return held or Credentials()


def _without_login(chosen: kubeconfig.KubeContext) -> dict[str, Any]:
    """A kubeconfig of one context, with the certificate of its user and no other login."""
    kept = ("client-certificate", "client-certificate-data", "client-key", "client-key-data")
    user = {key: chosen.user[key] for key in kept if chosen.user.get(key)}
    cluster = {key: value for key, value in chosen.cluster.items() if key != "proxy-url"}
    return {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def _through_proxy(configuration: Any, proxy_url: str, where: str, environ: Mapping[str, str] = os.environ) -> None:
    proxy = proxies.proxy_of(str(configuration.host), proxy_url, environ, where)
    configuration.proxy = proxy or None
    configuration.no_proxy = None  # decided above
    if not proxy:
        return
    if proxy.startswith("socks5"):
        from importlib.util import find_spec

        from launcher.install import install

        if find_spec("socks") is None:
            raise BadInput(f"kubeconfig {where}: a SOCKS proxy needs PySocks: `{install('pysocks')}`")
        configuration.proxy = proxy.replace("socks5://", "socks5h://", 1)  # the proxy looks names up, as for kubectl
    elif held := proxies.login_of(proxy):
        from urllib3 import make_headers

        configuration.proxy_headers = make_headers(proxy_basic_auth=held)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
