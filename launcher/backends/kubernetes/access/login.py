"""The login to a cluster: that of a context of the kubeconfig, or that of the pod in which this process runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from launcher.backends.kubernetes.access import oidc, plugin, proxies, waking
from launcher.backends.kubernetes.access.credentials import Credentials, TokenFile, of_user
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
        chosen = read_context(kubeconfigs, context)
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


def credentials_of(chosen: KubeContext) -> Credentials:
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


def _without_login(chosen: KubeContext) -> dict[str, Any]:
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


# The context of a kubeconfig: which cluster, as which user. Of several files the first to name a thing counts, as for
# kubectl.

# fields that name files: relative to the folder of the kubeconfig
CLUSTER_FILES: Final = ("certificate-authority",)
USER_FILES: Final = ("client-certificate", "client-key", "tokenFile")


@dataclass(frozen=True)
class KubeContext:
    """`cluster` and `user` are the entries of the kubeconfig, their paths made absolute; `user_file`: the kubeconfig
    that has the user."""

    name: str
    namespace: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    user_name: str
    user_file: Path


class _Entries(dict[str, tuple[Any, Path]]):
    """Name -> (entry, the file that has it)."""

    def add(self, config: Mapping[str, Any], kind: str, key: str, path: Path) -> None:
        for each in config.get(kind) or ():
            self.setdefault(each["name"], (each.get(key) or {}, path))


def read_context(kubeconfigs: Sequence[str], wanted: str | None) -> KubeContext:
    """The context `wanted`, or the current one. Raises BadInput for a context that is not there; ValueError, TypeError,
    AttributeError, LookupError, OSError and yaml.YAMLError for files that are no kubeconfigs."""
    import yaml

    clusters, users, contexts, current = _Entries(), _Entries(), _Entries(), ""
    for name in kubeconfigs:
        path = Path(name).absolute()
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if config is None:  # an empty file beside others
            continue
        if not isinstance(config, dict):
            raise ValueError("a mapping with clusters, users and contexts is needed")
        clusters.add(config, "clusters", "cluster", path)
        users.add(config, "users", "user", path)
        contexts.add(config, "contexts", "context", path)
        current = current or config.get("current-context") or ""
    joined = os.pathsep.join(kubeconfigs)
    listed = ", ".join(sorted(contexts)) or "none"
    if wanted is not None and wanted not in contexts:
        raise BadInput(f"no context `{wanted}` in {joined}; there is: {listed}")
    active = current if wanted is None else wanted
    if active not in contexts:
        raise ValueError(f"its current-context is `{active}`; there is: {listed}")
    context = contexts[active][0]
    cluster, user = context.get("cluster") or "", context.get("user") or ""
    if cluster not in clusters:
        raise ValueError(f"context `{active}` names the cluster `{cluster}`, which is not there")
    entry, user_file = users.get(user, ({}, Path()))  # without one, requests carry no login
    return KubeContext(
        name=str(active),
        namespace=str(context.get("namespace") or "default"),
        cluster=_absolute(*clusters[cluster], CLUSTER_FILES),
        user=_absolute(_with_program(entry, user_file), user_file, USER_FILES),
        user_name=str(user),
        user_file=user_file,
    )


def _absolute(entry: Mapping[str, Any], path: Path, fields: Sequence[str]) -> dict[str, Any]:
    return {key: str(path.parent / value) if key in fields and value else value for key, value in entry.items()}


def _with_program(user: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The login program: with a folder in its name it lies beside the kubeconfig, without one on the PATH."""
    program = user.get("exec")
    command = program.get("command") if isinstance(program, dict) else None
    if not isinstance(command, str) or os.sep not in command:
        return user
    return {**user, "exec": {**user["exec"], "command": str(path.parent / command)}}


# Acting as another user, as a kubeconfig asks for.

_HEADER: Final = "!#$&'*+-.^_`|~"  # marks in the name of a header (RFC 9110, 5.6.2), but for % itself


def impersonation(user: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    """The headers with which requests act as another user: `as`, `as-uid`, `as-groups` and `as-user-extra` of a
    kubeconfig's user, which the official client ignores. Raises BadInput where they cannot be used: acting as the
    login itself would have other rights than the file gives.

    >>> impersonation({"as": "jane", "as-groups": ["a", "b"]}, "config")
    (('Impersonate-User', 'jane'), ('Impersonate-Group', 'a'), ('Impersonate-Group', 'b'))
    """
    name, uid = user.get("as") or "", user.get("as-uid") or ""
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    for key, value, fits in (
        ("as", name, _texts([name])),
        ("as-uid", uid, _texts([uid])),
        ("as-groups", groups, _texts(groups)),
        ("as-user-extra", extra, isinstance(extra, dict) and all(map(_texts, extra.values()))),
    ):
        if not fits:
            allowed = {"as-groups": "a list of texts", "as-user-extra": "a list of texts for each key"}.get(
                key, "a text"
            )
            raise BadInput(f"kubeconfig {where}: {key}: {value!r} is not allowed; allowed: {allowed}")
    if not name and (uid or groups or extra):
        others = ", ".join(key for key in ("as-uid", "as-groups", "as-user-extra") if user.get(key))
        raise BadInput(f"kubeconfig {where}: {others} without `as`: name the user to act as")
    if not name:
        return ()
    headers = [("Impersonate-User", name), *([("Impersonate-Uid", uid)] if uid else [])]
    headers += [("Impersonate-Group", group) for group in groups]
    # a header's name is of letters, digits and marks; any other character of a key is percent-encoded
    headers += [
        (f"Impersonate-Extra-{quote(str(key), safe=_HEADER)}", value)
        for key, values in extra.items()
        for value in values
    ]
    return tuple(headers)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, str) and (each == "" or each.isprintable()) for each in value
    )
