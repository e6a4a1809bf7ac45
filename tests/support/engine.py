"""A Docker engine of the tests' own, and an image to build on without a registry.

The engine has its own socket, data and no network of its own (`--bridge=none --iptables=false`: containers are in the
host's network or in none), so neither a Docker that runs here nor the machine's firewall is touched. The processes of
one test run share it; the last one to end stops it. What it built stays in .tools/engine for the next time.

The base stands in for debian:bookworm-slim: debootstrap's minimal Debian, with what this machine needs to reach the
package registries (certificates, mirrors, proxies). None of that is in a shipped Dockerfile.

Who is not root, or has SLIPWAY_ENGINE=host, gets the Docker of the machine and the Dockerfiles' own base. Without any,
tests are skipped with the reason; in CI they fail, unless SLIPWAY_MAY_LACK=docker.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.support.needs import lacking

ROOT = Path(__file__).resolve().parents[2]
STATE = Path(os.environ.get("SLIPWAY_ENGINE_DIR", ROOT / ".tools" / "engine"))
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
PACKAGES = ("docker.io", "debootstrap")
# Settings that a client inside a container needs as this machine has them. Those with a user's name and password stay
# in the engine's images of the tests, and never leave the machine.
CARRIED = re.compile(r"(PIP|UV)_.*(INDEX|TRUSTED|KEYRING|TIMEOUT).*|(HTTPS?|NO|ALL)_PROXY", re.IGNORECASE)
CARRIED_FILES = ("/etc/pip.conf", "/etc/uv/uv.toml")
# A root that can not be written. exec: a tmpfs of Docker's forbids to run what lies in it, and kernels compiled on the
# way are libraries there.
TMPFS = ("--read-only", "--tmpfs", "/tmp:exec", "--tmpfs", "/work:exec,uid=1000,gid=1000,mode=755")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class NoEngine(Exception):
    """Why no engine can run here, in one line."""


@dataclass
class Engine:
    """
    host   what DOCKER_HOST is
    base   the image to pass as --build-arg BASE; None: the Dockerfiles' own, which this engine can pull
    """

    host: str
    base: str | None = None
    state: Path = STATE
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"}

    @property
    def network(self) -> list[str]:
        """The flags by which a build or a container gets a network."""
        return ["--network", "host"] if self.base else []

    def docker(self, *arguments: str, check: bool = True, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        command = ["docker", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, check=False, timeout=timeout
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done

    def build(self, name: str, tag: str, arguments: Mapping[str, str] | None = None, timeout: float = 1800) -> str:
        """Builds images/NAME of this clone as `tag`; gives the builder's output."""
        given = {**({"BASE": self.base} if self.base else {}), **(arguments or {})}
        flags = [f"--build-arg={key}={value}" for key, value in given.items()]
        file = str(ROOT / "images" / name / "Dockerfile")
        done = self.docker("build", *self.network, *flags, "-f", file, "-t", tag, str(ROOT), timeout=timeout)
        return done.stdout

    def run(self, image: str, *command: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """`docker run --rm` without a network; not checked."""
        return self.docker("run", "--rm", "--network", "none", *flags, image, *command, check=False)

    def start(self) -> None:
        """dockerd, until it answers. Raises NoEngine."""
        run = run_folder(self.state)
        run.mkdir(mode=0o700, exist_ok=True)
        (self.state / "data").mkdir(parents=True, exist_ok=True)
        command = ["dockerd", "--host", self.host, "--data-root", str(self.state / "data")]
        command += ["--exec-root", str(run / "exec"), "--pidfile", str(run / "pid")]
        command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--shutdown-timeout", "3"]
        command += ["--storage-driver", storage_driver(self.state), "--exec-opt", "native.cgroupdriver=cgroupfs"]
        log = self.state / "dockerd.log"
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True
            )
        deadline = time.monotonic() + 60
        while not answers(self.host):
            if self.process.poll() is not None or time.monotonic() > deadline:
                last = log.read_text(errors="replace").strip().split("\n")[-1]
                self.stop()
                raise NoEngine(f"dockerd did not start: {last[:300]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends dockerd, whichever process of the test run had started it; containers end with it."""
        pid = _pid(run_folder(self.state) / "pid")
        if pid is None:
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 30
        while _alive(pid):
            if self.process is not None:
                self.process.poll()
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        if self.process is not None:
            self.process.wait()
        self.process = None
        run = run_folder(self.state)
        for namespace in (run / "exec" / "netns").glob("*"):  # of the host's network, which dockerd leaves mounted
            subprocess.run(["umount", str(namespace)], capture_output=True, check=False)
        shutil.rmtree(run, ignore_errors=True)

    def restart(self) -> None:
        self.stop()
        self.start()


def run_folder(state: Path) -> Path:
    """For sockets, whose paths must be short: in /tmp, named by the state folder."""
    return Path(tempfile.gettempdir()) / f"slipway-engine-{hashlib.sha256(str(state).encode()).hexdigest()[:8]}"


@contextmanager
def another(engine: Engine, state: Path) -> Iterator[Engine]:
    """An engine that nobody else is at work on, its data in the folder `state`, with the tests' base in it."""
    if engine.base is None:
        lacking("root")
    made = Engine(f"unix://{run_folder(state)}/docker.sock", base=engine.base, state=state)
    made.start()
    try:
        with subprocess.Popen(["docker", "save", engine.base], env=engine.environment, stdout=subprocess.PIPE) as saved:
            subprocess.run(["docker", "load", "-q"], env=made.environment, stdin=saved.stdout, check=True)
        yield made
    finally:
        made.stop()


def answers(host: str | None) -> bool:
    command = ["docker", *(["--host", host] if host else []), "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def _pid(file: Path) -> int | None:
    try:
        pid = int(file.read_text())
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        return None
    return pid if name == "dockerd" else None


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def storage_driver(state: Path) -> str:
    """overlay2 where the file system carries it; vfs copies every layer, but runs anywhere."""
    with tempfile.TemporaryDirectory(dir=state) as folder:
        parts = {name: Path(folder) / name for name in ("lower", "upper", "work", "merged")}
        for part in parts.values():
            part.mkdir()
        options = ",".join(f"{name}dir={parts[name]}" for name in ("lower", "upper", "work"))
        command = ["mount", "-t", "overlay", "overlay", "-o", options, str(parts["merged"])]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return "vfs"
        subprocess.run(["umount", str(parts["merged"])], check=True)
    return "overlay2"


def install() -> None:
    """Debian's engine and debootstrap, where they are missing. Raises NoEngine."""
    if all(shutil.which(program) for program in ("dockerd", "docker", "debootstrap")):
        return
    if not shutil.which("apt-get"):
        raise NoEngine(f"install {' and '.join(PACKAGES)}: there is no apt-get here to do it with")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-qy", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().split("\n")[-1]
            raise NoEngine(f"{' '.join(command)}: {last[:300]}")


def debian_sources() -> str | None:
    """Where this machine gets Debian bookworm from, if it says so in the deb822 form."""
    for file in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        text = file.read_text()
        if re.search(r"^Suites:.*\bbookworm\b", text, re.MULTILINE):
            return re.sub(r"^Signed-By:.*$", "", text, flags=re.MULTILINE)
    return None


def debian_mirror() -> str | None:
    """The first address of those sources; None: debootstrap's own."""
    found = re.search(r"^URIs:\s*(\S+)", debian_sources() or "", re.MULTILINE)
    return found[1] if found else None


def base_recipe() -> str:
    """Everything that decides what is in the base; its hash is the base's name."""
    parts = [debian_sources() or "", BUNDLE.read_text() if BUNDLE.exists() else ""]
    parts += [f"{name}={value}" for name, value in sorted(os.environ.items()) if CARRIED.fullmatch(name)]
    parts += [Path(name).read_text() for name in CARRIED_FILES if Path(name).exists()]
    parts += [file.read_text() for file in _apt_settings()]
    return "\0".join(["3", *parts])  # a number to be raised when make_base changes


def _apt_settings() -> list[Path]:
    files = sorted(Path("/etc/apt/apt.conf.d").glob("*"))
    return [file for file in files if re.search(r"Acquire::|Proxy", file.read_text(errors="replace"))]


def make_base(engine: Engine) -> str:
    """The image to build on, made by debootstrap where the engine has it not yet."""
    digest = hashlib.sha256(base_recipe().encode()).hexdigest()[:12]
    tag = f"slipway-test.local/base:{digest}"
    if engine.docker("image", "inspect", tag, check=False).returncode == 0:
        return tag
    with tempfile.TemporaryDirectory(dir=engine.state) as folder:
        root = Path(folder) / "root"
        mirror = debian_mirror()
        # in namespaces of its own: what it mounts below `root`, and every process of it, goes when it is interrupted;
        # the folder is removed next, and nobody may remove through a mount
        command = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]
        command += ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(root)]
        done = subprocess.run([*command, *([mirror] if mirror else [])], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoEngine(f"debootstrap: {done.stdout.strip().split(chr(10))[-1][:300]}")
        environment = fit_for_this_machine(root)
        changes = [f"--change=ENV {name}={value}" for name, value in environment.items()]
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            command = ["docker", "import", *changes, '--change=CMD ["bash"]', "-", tag]
            subprocess.run(command, stdin=tar.stdout, env=engine.environment, check=True, capture_output=True)
    return tag


SHELL: Final = ("sh", "cat", "head", "mkdir", "rm", "seq", "sleep")


def small_base(engine: Engine) -> str:
    """An image of a few megabytes with this machine's shell and some programs, for tests that push what they build: to
    compress the whole Debian took them most of their time."""
    with tempfile.TemporaryDirectory(dir=engine.state) as folder:
        root = Path(folder)
        programs = [Path(shutil.which(name) or name).resolve() for name in SHELL]
        listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
        libraries = {Path(path) for path in re.findall(r"(/\S+) \(0x", listed)}
        for name, program in zip(SHELL, programs, strict=True):
            (root / "bin").mkdir(exist_ok=True)
            shutil.copy(program, root / "bin" / name)
        for library in libraries:
            (root / library.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library.resolve(), root / library.relative_to("/"))
        (root / "etc").mkdir()
        (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
        (root / "tmp").mkdir(mode=0o1777)
        (root / "var/lib/dpkg").mkdir(parents=True)
        told = Path("/var/lib/dpkg/status")  # its first packages stand for Debian's list in an image
        listed = "\n\n".join(told.read_text().split("\n\n")[:5]) if told.exists() else ""
        (root / "var/lib/dpkg/status").write_text(f"{listed}\n")
        every = sorted(path for path in root.rglob("*") if path.is_file())
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in every)).hexdigest()[:12]
        tag = f"slipway-test.local/small:{digest}"
        if engine.docker("image", "inspect", tag, check=False).returncode:
            archive = root.parent / f"{root.name}.tar"
            subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
            engine.docker("import", "--change=ENV PATH=/bin", '--change=CMD ["sh"]', str(archive), tag)
            archive.unlink()
    return tag


def fit_for_this_machine(root: Path) -> dict[str, str]:
    """Makes a fresh Debian as slim as Docker's, and fit for this machine's network; gives the image's environment."""
    slim = "".join(f"path-exclude /usr/share/{name}/*\n" for name in ("doc", "man", "locale", "info"))
    (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(slim + "path-include /usr/share/doc/*/copyright\n")
    for name in ("man", "locale", "info"):
        shutil.rmtree(root / "usr/share" / name, ignore_errors=True)
    for file in (root / "usr/share/doc").rglob("*"):
        if (file.is_file() or file.is_symlink()) and file.name != "copyright":
            file.unlink()
    for pattern in ("var/lib/apt/lists/*", "var/cache/apt/*", "var/log/*.log", "var/log/apt/*"):
        for one in root.glob(pattern):
            shutil.rmtree(one, ignore_errors=True) if one.is_dir() else one.unlink()
    if sources := debian_sources():
        (root / "etc/apt/sources.list").unlink(missing_ok=True)
        (root / "etc/apt/sources.list.d/debian.sources").write_text(sources)
    for file in (*_apt_settings(), *(Path(name) for name in CARRIED_FILES if Path(name).exists())):
        there = root / str(file).lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, there)
    environment = {name: value for name, value in os.environ.items() if CARRIED.fullmatch(name)}
    inside = root / str(BUNDLE).lstrip("/")
    known = set(CERTIFICATE.findall(inside.read_text()))
    own = [one for one in CERTIFICATE.findall(BUNDLE.read_text()) if one not in known] if BUNDLE.exists() else []
    for number, certificate in enumerate(own):
        (root / f"usr/local/share/ca-certificates/machine-{number}.crt").write_text(certificate + "\n")
    if own:
        inside_it = {name: value for name, value in os.environ.items() if name != "TMPDIR"}  # a folder of this machine
        updates = ["chroot", str(root), "update-ca-certificates"]
        subprocess.run(updates, check=True, capture_output=True, env=inside_it)
        environment |= {"PIP_CERT": str(BUNDLE), "SSL_CERT_FILE": str(BUNDLE)}
    return environment


@contextmanager
def running(state: Path = STATE) -> Iterator[Engine]:
    """An engine for as long as the context lasts, shared with other processes. Raises NoEngine."""
    if os.geteuid() != 0 or os.environ.get("SLIPWAY_ENGINE") == "host":
        if not shutil.which("docker") or not answers(None):
            raise NoEngine("no Docker answers, and only root can start one: start Docker, or run the tests as root")
        yield Engine(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
        return
    state.mkdir(parents=True, exist_ok=True)
    engine = Engine(f"unix://{run_folder(state)}/docker.sock", state=state)
    with (state / "lock").open("w") as making, (state / "users").open("w") as users:
        fcntl.flock(making, fcntl.LOCK_EX)  # one starts it and makes the base; the others wait for that
        install()
        fcntl.flock(users, fcntl.LOCK_SH)
        if not answers(engine.host):
            engine.start()
        engine.base = make_base(engine)
        fcntl.flock(making, fcntl.LOCK_UN)
        try:
            yield engine
        finally:
            fcntl.flock(making, fcntl.LOCK_EX)
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if engine.process is not None:
                    engine.process.returncode = 0  # others still use it: Popen must not complain that it lives
            else:
                engine.stop()


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A Docker engine. Skips where there can be none."""
    try:
        with running() as found:
            yield found
    except NoEngine as error:
        lacking("docker", str(error))
