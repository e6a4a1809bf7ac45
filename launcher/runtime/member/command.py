"""The command of a rank: its environment, its arguments, its process. If the runtime is killed, the kernel kills the
command too."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from launcher.errors import BadInput
from launcher.reasons import Reason
from launcher.runtime.folders import Folders
from launcher.runtime.inputs.hub import names_commit
from launcher.runtime.secrets.credentials import for_command
from launcher.runtime.settings import AttemptError, MemberAddress
from launcher.spec.check.variables import endpoint, expand, port
from launcher.spec.code.environment import IGNORED, PYTHON, is_local, other_packages
from launcher.spec.model import ResolvedJob, Role
from launcher.spec.resolve.threads import PROCESSES, THREADS, threads, whole

if TYPE_CHECKING:
    import tarfile

SELF = "SLIPWAY_SELF"  # names the member of a process; a later attempt on this machine finds leftover processes by it
# variables for the runtime only, set by the backend
_PRIVATE = tuple(
    f"SLIPWAY_{name}"
    for name in ("JOB", "JOB_FILE", "PLACEMENT", "CLUSTER", "STAGE", "WORKDIR", "TUNING", "ONE_BODY", "IMAGES")
)
_PR_SET_PDEATHSIG = 1
_SCORE = "/proc/self/oom_score_adj"
_LATER = 500  # of 1,000, which is all of the memory: a runtime never has half of it more than its command


class Peers(msgspec.Struct, frozen=True):
    """Addresses that are known before the command starts.

    master     host and port of the leading role's rank 0; None when the role has one rank
    endpoints  role -> host:port of each of its ranks
    ports      port name -> number, of this rank itself
    """

    master: tuple[str, int] | None = None
    endpoints: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    ports: Mapping[str, int] = msgspec.field(default_factory=dict)


def variables(
    job: ResolvedJob,
    address: MemberAddress,
    folders: Folders,
    attempt: int,
    resume: Path | None,
    peers: Peers,
    digests: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The SLIPWAY_* variables of a command (docs/reference/runtime.md). SLIPWAY_RESUME is empty if there is no
    checkpoint to continue from. `digests`: by input, as they were verified."""
    verified = {
        name: {"digest": digest, "pinned": job.inputs[name].digest is not None or names_commit(job.inputs[name].url)}
        for name, digest in (digests or {}).items()
    }
    values = {
        "SLIPWAY_CONFIG": str(folders.config) if job.config is not None else "",
        "SLIPWAY_INPUTS": str(folders.inputs),
        "SLIPWAY_INPUT_DIGESTS": json.dumps(verified, sort_keys=True),
        "SLIPWAY_OUTPUTS": str(folders.outputs),
        "SLIPWAY_RESUME": str(resume) if resume else "",
        "SLIPWAY_RUN": address.run,
        "SLIPWAY_ATTEMPT": str(attempt),
        "SLIPWAY_ROLE": address.role,
        "SLIPWAY_RANK": str(address.rank),
        "SLIPWAY_NODES": str(job.roles[address.role].replicas),
        "SLIPWAY_METRICS": str(folders.metrics),
        "SLIPWAY_PROGRESS": str(folders.progress),
    }
    for name, number in peers.ports.items():
        values[port(name)] = str(number)
    for role in job.roles:
        if role != address.role:
            values[endpoint(role)] = ",".join(peers.endpoints.get(role, ()))  # empty unless this role needs that one
    return values


def environment(
    job: ResolvedJob,
    address: MemberAddress,
    folders: Folders,
    own: dict[str, str],
    peers: Peers,
    attempt: int,
    environ: Mapping[str, str],
) -> dict[str, str]:
    """The whole environment of the command. `own`: its `variables`."""
    role = job.roles[address.role]
    given: dict[str, str] = expand(role.env, own)
    env = {name: value for name, value in for_command(environ, job).items() if name not in _PRIVATE}
    env.setdefault("PYTHONUNBUFFERED", "1")  # so that the log shows each line at once
    # torchrun ends its processes 30 s after SIGTERM, whatever they have to save
    env.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(math.ceil(job.limits.grace)))
    if address.placement.is_process:  # without an image: the one that the profile names, else the launcher's
        python = Path(environ.get(PYTHON) or sys.executable)
        env["PATH"] = os.pathsep.join([str(python.parent), env.get("PATH") or os.defpath])
    if images := _images(job, address):
        env["SLIPWAY_IMAGES"] = json.dumps(images, sort_keys=True)
    if job.code:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folders.code), env.get("PYTHONPATH")]))
    if address.role == job.leading and role.replicas > 1:
        env |= _torchrun(role.replicas, address.rank, peers)
    if role.resources.gpus > 1 or (address.role == job.leading and role.replicas > 1):
        env[PROCESSES] = str(max(1, role.resources.gpus))  # torchrun alone starts one process
    # a value that no launcher gave is somebody's own
    given_by_launchers = {str(threads(role))} | (set() if address.placement.is_process else {str(whole(role))})
    if env.get(THREADS, str(threads(role))) in given_by_launchers:
        env[THREADS] = str(threads(role, environ=env | given))
    if address.role == job.leading and address.rank == 0:
        env.setdefault("WANDB_RUN_ID", address.run)
        env.setdefault("WANDB_RESUME", "allow")
    return env | given | own | {SELF: f"{self_mark(address)} {attempt}"}


def _images(job: ResolvedJob, address: MemberAddress) -> dict[str, str]:
    """The digest of each role's image, where there is one; of this process's own without a digest its id."""
    known = {name: role.image.digest for name, role in job.roles.items()}
    known[address.role] = known[address.role] or address.image
    return {name: digest for name, digest in known.items() if digest}


def _torchrun(nodes: int, rank: int, peers: Peers) -> dict[str, str]:
    """Variables for one process per node, and (PET_*) for torchrun. A role of one rank gets none of them: if they are
    set at all, trainers wait for a process group."""
    host, port = peers.master or ("127.0.0.1", 29500)
    return {
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(nodes),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": str(rank),
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": str(port),
    }


def self_mark(address: MemberAddress) -> str:
    return f"{address.store} {address.run} {address.member}"


def argv(job: ResolvedJob, address: MemberAddress, own: Mapping[str, str]) -> list[str]:
    """The arguments of the command with $SLIPWAY_* replaced. Raises AttemptError for a variable that is not set."""
    try:
        return [str(part) for part in expand(job.roles[address.role].command, own)]
    except BadInput as error:
        raise AttemptError(Reason.CONFIG_ERROR, f"command: {error}") from None


def write_config(job: ResolvedJob, folders: Folders, own: Mapping[str, str]) -> None:
    """Writes the job's config with its variables replaced, as JSON that every YAML reader reads as the same values."""
    if job.config is None:
        return
    try:
        text = _json(expand(job.config, own))
    except BadInput as error:
        raise AttemptError(Reason.CONFIG_ERROR, f"config: {error}") from None
    folders.config.write_text(text + "\n", encoding="utf-8")


def _json(value: Any, indent: str = "\n") -> str:
    """JSON in which every float has a decimal point: readers of YAML 1.1 read `1e-05` as a text."""
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        items = (f"{json.dumps(str(key), ensure_ascii=False)}: {_json(item, deeper)}" for key, item in value.items())
        return "{" + deeper + f",{deeper}".join(items) + indent + "}"
    if isinstance(value, list | tuple) and value:
        return "[" + deeper + f",{deeper}".join(_json(item, deeper) for item in value) + indent + "]"
    if isinstance(value, float):
        mantissa, exponent, power = repr(value).partition("e")
        return (mantissa if "." in mantissa else mantissa + ".0") + exponent + power
    return json.dumps(value, ensure_ascii=False)


def unpack(archive: Path, into: Path) -> None:
    """Unpacks a code overlay. Raises AttemptError if it is damaged or would write outside of `into`."""
    import tarfile

    into.mkdir(parents=True)
    try:
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(into, filter="data")
            else:  # Python below 3.11.4, Debian bookworm's among them
                tar.extractall(into, members=_harmless(tar, into.resolve()))
    except (tarfile.TarError, EOFError) as error:
        raise AttemptError(Reason.CONFIG_ERROR, f"code: {error}") from None


def _harmless(tar: tarfile.TarFile, into: Path) -> Iterator[tarfile.TarInfo]:
    """The members that may be unpacked. Each is checked after the earlier ones are on the disk, so that links are
    followed as they will be during the unpacking."""
    import tarfile

    for member in tar:
        linked = member.issym() or member.islnk()
        if not (member.isreg() or member.isdir() or linked):
            raise tarfile.TarError(f"{member.name!r} is not a file, a folder or a link")
        places = [into / member.name]
        if linked:
            places.append((places[0].parent if member.issym() else into) / member.linkname)
        if not all(place.resolve().is_relative_to(into) for place in places):
            raise tarfile.TarError(f"{member.name!r} would be outside the destination")
        member.mode = member.mode & 0o755 | (
            0o700 if member.isdir() else 0o600
        )  # without set-user-id, and not writable by others
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        yield member


def _sooner_killed() -> bytes:
    """The score by which the kernel, out of memory, kills the command before its runtime, which tells of it. Memory of
    /dev/shm and of tmpfs belongs to no process: where it is what grew, the kernel takes the larger of the two."""
    try:
        own = int(Path(_SCORE).read_text())
    except (OSError, ValueError):
        own = 0
    return str(min(own + _LATER, 1000)).encode()


def start(command: list[str], env: dict[str, str], cwd: Path, output: int) -> subprocess.Popen[bytes]:
    """Starts the command as the leader of its own session, its output going to the descriptor `output`. Call it from
    the main thread: the kernel kills the child when the thread that started it ends."""
    program = str(cwd / command[0]) if os.sep in command[0] else shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        raise AttemptError(
            Reason.CONFIG_ERROR, f"command `{command[0]}`: there is no such program in PATH={env.get('PATH')}"
        )
    libc = ctypes.CDLL(None)
    parent = os.getpid()
    sooner = _sooner_killed()

    def die_with_the_runtime() -> None:  # runs in the child after fork: it may call only what was prepared here
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        try:
            score = os.open(_SCORE, os.O_WRONLY)
            os.write(score, sooner)
            os.close(score)
        except OSError:
            pass  # a system without it, or a score that is as high as it can be
        if os.getppid() != parent:
            os._exit(1)

    try:
        return subprocess.Popen(
            command,
            executable=program,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_the_runtime,
        )
    except (FileNotFoundError, NotADirectoryError):
        raise AttemptError(
            Reason.CONFIG_ERROR,
            f"command `{command[0]}`: no such program, or its first line names a program that does not exist",
        ) from None
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENOEXEC, errno.E2BIG, errno.ENAMETOOLONG, errno.ELOOP):
            raise AttemptError(Reason.CONFIG_ERROR, f"command `{command[0]}`: {error.strerror}") from None
        raise AttemptError(Reason.INFRASTRUCTURE, f"command `{command[0]}`: {error.strerror}") from None
    except ValueError:  # of a job that an older launcher made, or of a secret's value, which is not shown
        message = "an argument or a variable contains a NUL or is not a text: no system can start such a command"
        raise AttemptError(Reason.CONFIG_ERROR, message) from None


def check_packages(role: Role, environ: Mapping[str, str]) -> None:
    """Raises AttemptError (config_error) where they differ. A role with an image, or of a queue that an older launcher
    filled, is not looked at."""
    wanted, ignored = role.image.environment, environ.get(IGNORED)
    if not is_local(wanted) or ignored is None:
        return
    why = other_packages(wanted, [name for name in ignored.split(",") if name], environ.get(PYTHON, ""))
    if why is not None:
        raise AttemptError(Reason.CONFIG_ERROR, why)
