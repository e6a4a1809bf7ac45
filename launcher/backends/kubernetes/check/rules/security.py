"""The Pod Security Standards, baseline and restricted, as the admission plugin of the chosen version enforces them.

Source: the checks of k8s.io/pod-security-admission v0.34 (their rules, not their text). Not checked: Windows pods.
Ephemeral containers are never part of a submit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.rules.forms import Say, items, mapping, string, texts
from launcher.backends.kubernetes.check.rules.volumes import VOLUMES
from launcher.spec.values.problems import show
from launcher.spec.values.source import Route

LEVELS: Final = ("privileged", "baseline", "restricted")
DEFAULT: Final = "restricted"
_CAPABILITIES: Final = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
_SELINUX: Final = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_SYSCTLS: Final = (
    *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"),
    *("net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports"),
    *("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
    *("net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
)
_RESTRICTED_VOLUMES: Final = (
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"),
    "secret",
)
_CONFINED: Final = ("RuntimeDefault", "Localhost")
_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"


def pod_security(say: Say, template: Mapping[str, Any], route: Route, level: str) -> None:
    """Checks a pod or a pod template (metadata and spec) against a level."""
    if level == "privileged":
        return
    before = len(say.found)
    _pod_security(say, template, route, level)
    say.found[before:] = [item._replace(policy=policies.POD_SECURITY) for item in say.found[before:]]


def _pod_security(say: Say, template: Mapping[str, Any], route: Route, level: str) -> None:
    spec, at = mapping(template, "spec"), (*route, "spec")
    _baseline(say, template, route, spec, at)
    if level == "restricted":
        _restricted(say, spec, at)


def _containers(spec: Mapping[str, Any], route: Route) -> Iterator[tuple[Route, dict[str, Any]]]:
    for part in ("initContainers", "containers"):
        yield from items(spec, part, route)


def _contexts(spec: Mapping[str, Any], route: Route) -> Iterator[tuple[Route, dict[str, Any]]]:
    """Every security context: the pod's, then the containers'."""
    yield (*route, "securityContext"), mapping(spec, "securityContext")
    for at, value in _containers(spec, route):
        yield (*at, "securityContext"), mapping(value, "securityContext")


def _baseline(say: Say, template: Mapping[str, Any], whole: Route, spec: Mapping[str, Any], route: Route) -> None:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name) is True:
            say((*route, name), "Pod Security baseline allows no host namespaces", "leave it out")
    for at, value in items(spec, "volumes", route):
        if "hostPath" in value:
            say((*at, "hostPath"), "Pod Security baseline allows no hostPath volumes", "emptyDir, a claim")
    for key, value in mapping(template, "metadata", "annotations").items():
        if key.startswith(_APPARMOR) and not str(value).startswith(("runtime/default", "localhost/")):
            say(
                (*whole, "metadata", "annotations", key),
                f"{show(value)} is not confined",
                "runtime/default, localhost/*",
            )
    for at, context in _contexts(spec, route):
        _baseline_context(say, context, at)
    for at, item in items(mapping(spec, "securityContext"), "sysctls", (*route, "securityContext")):
        if string(item, "name") not in _SYSCTLS:
            say((*at, "name"), f"{show(item.get('name'))} is not a safe sysctl", ", ".join(_SYSCTLS))
    for at, value in _containers(spec, route):
        for where, port in items(value, "ports", at):
            if port.get("hostPort"):
                say((*where, "hostPort"), "Pod Security baseline allows no host ports", "leave it out")
        if say.version >= (1, 34):
            _hosts(say, value, at)


def _hosts(say: Say, value: Mapping[str, Any], route: Route) -> None:
    """Since 1.34 probes and hooks must not name a host."""
    hooks = [("lifecycle", name) for name in ("postStart", "preStop")]
    for path in [("livenessProbe",), ("readinessProbe",), ("startupProbe",), *hooks]:
        for kind in ("httpGet", "tcpSocket"):
            if string(mapping(value, *path, kind), "host"):
                say((*route, *path, kind, "host"), "Pod Security baseline allows no host in probes and hooks", "none")


def _baseline_context(say: Say, context: Mapping[str, Any], route: Route) -> None:
    if context.get("privileged") is True:
        say((*route, "privileged"), "Pod Security baseline allows no privileged container", "false")
    if mapping(context, "windowsOptions").get("hostProcess") is True:
        say((*route, "windowsOptions", "hostProcess"), "Pod Security baseline allows no host process", "false")
    for at, name in texts(mapping(context, "capabilities"), "add", (*route, "capabilities")):
        if name not in _CAPABILITIES:
            say(at, f"{show(name)} may not be added", ", ".join(_CAPABILITIES))
    options, at = mapping(context, "seLinuxOptions"), (*route, "seLinuxOptions")
    if string(options, "type") not in _SELINUX:
        say((*at, "type"), f"{show(options['type'])} is not allowed", ", ".join(_SELINUX[1:]))
    for name in ("user", "role"):
        if string(options, name):
            say((*at, name), "Pod Security baseline allows no SELinux user or role", "leave it out")
    if string(context, "procMount") not in ("", "Default"):
        say((*route, "procMount"), f"{show(context['procMount'])} is not allowed", "Default")
    for name in ("seccompProfile", "appArmorProfile"):
        if string(mapping(context, name), "type") == "Unconfined":
            say((*route, name, "type"), "Pod Security baseline allows nothing unconfined", ", ".join(_CONFINED))


def _restricted(say: Say, spec: Mapping[str, Any], route: Route) -> None:
    for at, value in items(spec, "volumes", route):
        kind = next((name for name in VOLUMES if name in value), "")
        if kind and kind not in _RESTRICTED_VOLUMES and kind != "hostPath":
            say((*at, kind), f"Pod Security restricted allows no {kind} volume", ", ".join(_RESTRICTED_VOLUMES))
    pod = mapping(spec, "securityContext")
    whole = (*route, "securityContext")
    if pod.get("runAsUser") == 0:
        say((*whole, "runAsUser"), "Pod Security restricted allows no root", "a user other than 0")
    if pod.get("runAsNonRoot") is False:
        say((*whole, "runAsNonRoot"), "Pod Security restricted allows no root", "true")
    confined = string(mapping(pod, "seccompProfile"), "type") in _CONFINED
    for at, value in _containers(spec, route):
        context, where = mapping(value, "securityContext"), (*at, "securityContext")
        name = show(string(value, "name") or "a container")
        if context.get("allowPrivilegeEscalation") is not False:
            say(
                where,
                f"Pod Security restricted: {name} may gain privileges",
                "allowPrivilegeEscalation: false",
                key=True,
            )
        if context.get("runAsUser") == 0:
            say((*where, "runAsUser"), "Pod Security restricted allows no root", "a user other than 0")
        if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
            say(where, f"Pod Security restricted: {name} may run as root", "runAsNonRoot: true", key=True)
        own = mapping(context, "seccompProfile")
        if not (confined if not own else string(own, "type") in _CONFINED):
            say(
                where,
                f"Pod Security restricted: {name} has no seccomp profile",
                "seccompProfile: {type: RuntimeDefault}",
            )
        capabilities = mapping(context, "capabilities")
        if "ALL" not in [name for _, name in texts(capabilities, "drop", ())]:
            say(where, f"Pod Security restricted: {name} keeps capabilities", "capabilities: {drop: [ALL]}", key=True)
        for there, added in texts(capabilities, "add", (*where, "capabilities")):
            if added != "NET_BIND_SERVICE" and added in _CAPABILITIES:
                say(there, f"Pod Security restricted: {show(added)} may not be added", "NET_BIND_SERVICE")
