"""The Pod Security Standards, baseline and restricted, as the admission plugin of the chosen version enforces them.

Source: the checks of k8s.io/pod-security-admission v0.34 (their rules, not their text). Not checked: Windows pods.
Ephemeral containers are never part of a submit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.forms import Say, mapping, string, texts
from launcher.backends.kubernetes.check.rules.volumes import VOLUMES
from launcher.spec.values.problems import show

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
_PARTS: Final = ("initContainers", "containers")
# since 1.34 probes and hooks must not name a host
_HOSTS: Final = tuple(
    (*part, kind)
    for part in (
        ("livenessProbe",),
        ("readinessProbe",),
        ("startupProbe",),
        ("lifecycle", "postStart"),
        ("lifecycle", "preStop"),
    )
    for kind in ("httpGet", "tcpSocket")
)


def pod_security(say: Say, template: Mapping[str, Any], level: str) -> None:
    """Checks a pod or a pod template (metadata and spec) against a level."""
    if level == "privileged":
        return
    before = len(say.found)
    at, spec = say.into("spec"), mapping(template, "spec")
    for key, value in mapping(template, "metadata", "annotations").items():
        if key.startswith(_APPARMOR) and not str(value).startswith(("runtime/default", "localhost/")):
            where = ("metadata", "annotations", key)
            say(where, f"{show(value)} is not confined", "runtime/default, localhost/*")
    _baseline(at, spec)
    if level == "restricted":
        _restricted(at, spec)
    say.found[before:] = [item._replace(policy=policies.POD_SECURITY) for item in say.found[before:]]


def _baseline(say: Say, spec: Mapping[str, Any]) -> None:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name) is True:
            say(name, "Pod Security baseline allows no host namespaces", "leave it out")
    for at, value in say.each(spec, "volumes"):
        if "hostPath" in value:
            at("hostPath", "Pod Security baseline allows no hostPath volumes", "emptyDir, a claim")
    for at, item in say.each(spec, "securityContext.sysctls"):
        if string(item, "name") not in _SYSCTLS:
            at("name", f"{show(item.get('name'))} is not a safe sysctl", ", ".join(_SYSCTLS))
    _baseline_context(say.into("securityContext"), mapping(spec, "securityContext"))
    for at, value in say.each(spec, *_PARTS):
        _baseline_context(at.into("securityContext"), mapping(value, "securityContext"))
        for where, port in at.each(value, "ports"):
            if port.get("hostPort"):
                where("hostPort", "Pod Security baseline allows no host ports", "leave it out")
        for path in _HOSTS if say.version >= (1, 34) else ():
            if string(mapping(value, *path), "host"):
                at((*path, "host"), "Pod Security baseline allows no host in probes and hooks", "none")


def _baseline_context(say: Say, context: Mapping[str, Any]) -> None:
    if context.get("privileged") is True:
        say("privileged", "Pod Security baseline allows no privileged container", "false")
    if mapping(context, "windowsOptions").get("hostProcess") is True:
        say(("windowsOptions", "hostProcess"), "Pod Security baseline allows no host process", "false")
    for route, name in texts(context, "capabilities.add"):
        if name not in _CAPABILITIES:
            say(route, f"{show(name)} may not be added", ", ".join(_CAPABILITIES))
    options = mapping(context, "seLinuxOptions")
    if string(options, "type") not in _SELINUX:
        say(("seLinuxOptions", "type"), f"{show(options['type'])} is not allowed", ", ".join(_SELINUX[1:]))
    for name in ("user", "role"):
        if string(options, name):
            say(("seLinuxOptions", name), "Pod Security baseline allows no SELinux user or role", "leave it out")
    if string(context, "procMount") not in ("", "Default"):
        say("procMount", f"{show(context['procMount'])} is not allowed", "Default")
    for name in ("seccompProfile", "appArmorProfile"):
        if string(mapping(context, name), "type") == "Unconfined":
            say((name, "type"), "Pod Security baseline allows nothing unconfined", ", ".join(_CONFINED))


def _restricted(say: Say, spec: Mapping[str, Any]) -> None:
    for at, value in say.each(spec, "volumes"):
        kind = next((name for name in VOLUMES if name in value), "")
        if kind and kind not in _RESTRICTED_VOLUMES and kind != "hostPath":
            at(kind, f"Pod Security restricted allows no {kind} volume", ", ".join(_RESTRICTED_VOLUMES))
    pod = mapping(spec, "securityContext")
    whole = say.into("securityContext")
    if pod.get("runAsUser") == 0:
        whole("runAsUser", "Pod Security restricted allows no root", "a user other than 0")
    if pod.get("runAsNonRoot") is False:
        whole("runAsNonRoot", "Pod Security restricted allows no root", "true")
    for at, value in say.each(spec, *_PARTS):
        context, where = mapping(value, "securityContext"), at.into("securityContext")
        about = f"Pod Security restricted: {show(string(value, 'name') or 'a container')}"
        if context.get("allowPrivilegeEscalation") is not False:
            where("", f"{about} may gain privileges", "allowPrivilegeEscalation: false", key=True)
        if context.get("runAsUser") == 0:
            where("runAsUser", "Pod Security restricted allows no root", "a user other than 0")
        if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
            where("", f"{about} may run as root", "runAsNonRoot: true", key=True)
        confined = mapping(context, "seccompProfile") or mapping(pod, "seccompProfile")
        if string(confined, "type") not in _CONFINED:
            where("", f"{about} has no seccomp profile", "seccompProfile: {type: RuntimeDefault}")
        if "ALL" not in [name for _, name in texts(context, "capabilities.drop")]:
            where("", f"{about} keeps capabilities", "capabilities: {drop: [ALL]}", key=True)
        for route, added in texts(context, "capabilities.add"):
            if added != "NET_BIND_SERVICE" and added in _CAPABILITIES:
                where(route, f"Pod Security restricted: {show(added)} may not be added", "NET_BIND_SERVICE")
