"""The environment of a runtime's process: a few variables of the submitter's shell, credentials for the store, the
job's secrets, and the run's address. Nothing else is inherited, neither from the supervisor nor from its shell, so that
the first submitter's terminal does not affect the runs of others.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from launcher.backends.local.entry import where
from launcher.runtime.process.procs import MARK
from launcher.spec.hashing import encode_job
from launcher.spec.model import ResolvedJob
from launcher.spec.resolve.threads import THREADS, threads

INLINE_JOB = 96 * 1024  # bytes; one environment string holds at most 128 KiB on Linux

_SITE = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TZ|TMPDIR|LD_LIBRARY_PATH|PYTHONPATH|VIRTUAL_ENV"
    r"|DOCKER_(HOST|TLS_VERIFY|CERT_PATH)|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|no_proxy|NO_PROXY"
    r"|DO_NOT_TRACK|SLIPWAY_(TUNING|ONE_BODY|TEXTFILES)"
    r"|(LC|XDG|HF|TRANSFORMERS|TORCH|PYTORCH|OMP|MKL|MALLOC|CUDA|NCCL|UNSLOTH|VLLM)_[A-Za-z0-9_]*)"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY", re.IGNORECASE)
# credentials of stores; proxies belong here because their URLs may hold a password
_PRIVATE = re.compile(r"(AWS|AZURE|GOOGLE|GCS)_[A-Z0-9_]+|https?_proxy|HTTPS?_PROXY|all_proxy|ALL_PROXY")


def site_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of the submitter that are kept in a readable file: no secrets."""
    return {
        name: value
        for name, value in environ.items()
        if _SITE.fullmatch(name) and not _SECRET.search(name) and name != "CUDA_VISIBLE_DEVICES"
    }


def private_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of the submitter that are kept in a 0600 file until the run leaves the queue."""
    return {name: value for name, value in environ.items() if _PRIVATE.fullmatch(name)}


def adopt_store_variables(private: Mapping[str, str]) -> None:
    """Puts the credentials of a run into this process's environment, to open its store."""
    os.environ.update(private)


@cache
def machine() -> str:
    """The id of this machine, the same after a reboot; two hosts that share a home folder differ."""
    for file in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        try:
            return f"{socket.gethostname()}-{file.read_text().strip()[:12]}"
        except OSError:
            continue
    return socket.gethostname()


def mark(state_id: str, run: str, member: str) -> str:
    """The mark that every process of a member carries, in all its starts."""
    return f"{state_id}:{run}:{member}"


def runtime_environment(
    job: ResolvedJob,
    run: str,
    member: str,
    *,
    state_id: str,
    site: Mapping[str, str],
    private: Mapping[str, str],
    secrets: Mapping[str, str],
    gpus: tuple[str, ...],
    work: Path,
    python: str,
) -> dict[str, str]:
    role, _, rank = member.rpartition("-")
    encoded = encode_job(job)
    environment = {
        # without this, a rank that asked for one CPU starts a thread for each core
        THREADS: str(threads(job.roles[role])),
        **site,
        **private,
        **secrets,
        # `python` in a command is the submitter's interpreter
        "PATH": os.pathsep.join([str(Path(python).parent), site.get("PATH", os.defpath)]),
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "PYTHONUNBUFFERED": "1",
        "SLIPWAY_STORE": job.store,
        "SLIPWAY_RUN": run,
        "SLIPWAY_ROLE": role,
        "SLIPWAY_RANK": rank,
        "SLIPWAY_PLACEMENT": json.dumps({"kind": "process", "where": where(state_id, run, machine())}),
        "SLIPWAY_WORKDIR": str(work),
        MARK: mark(state_id, run, member),
    }
    if len(encoded) <= INLINE_JOB:
        environment["SLIPWAY_JOB"] = encoded.decode()
    return environment


def own_site() -> dict[str, str]:
    return site_variables(os.environ)


def python() -> str:
    """The interpreter that starts runtimes. Links are not resolved: a venv's python is a link, and its location
    matters."""
    return sys.executable


def umask() -> int:
    """This process's. Read from /proc: to ask the kernel for it means to set it, for every thread."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077
