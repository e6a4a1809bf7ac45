"""The Docker engine, through its SDK, with errors that say what to do."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, Final, TypeVar

from launcher.errors import BadInput, Conflict, NotFound, SlipwayError, Unreachable

T = TypeVar("T")
SOCKET: Final = "/var/run/docker.sock"  # the default when nothing names another


class EngineRefused(Unreachable):
    """The engine cannot do what was asked, and a retry would fail, too."""


def hint(text: str) -> str:
    """Advice to add to an engine's error; empty when there is none."""
    return "; free some: `launcher images prune --stages`" if "no space left on device" in text.lower() else ""


class Engine:
    """A connection to the engine of the environment (DOCKER_HOST, or the default socket of the current context)."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """`environ`: where DOCKER_HOST and related variables are looked up; None: this process's environment.

        Raises Unreachable when no engine answers or this user may not use it; BadInput without the SDK.
        """
        try:
            import docker
            from docker.errors import DockerException
        except ImportError:
            from launcher.install import install

            raise BadInput(f"this needs the Docker SDK for Python beside launcher: `{install('docker')}`") from None
        self._named = (os.environ if environ is None else environ).get("DOCKER_HOST", "").rpartition("@")[2]
        try:
            # without an entry the SDK would read this process's environment, which may be an old supervisor's
            given = None if environ is None else {"DOCKER_HOST": "", **environ}
            settings = docker.utils.kwargs_from_env(environment=given)
            self.host = str(settings.get("base_url") or f"unix://{SOCKET}")
            _knock(self.host, self._named)
            # the first request has a short timeout, builds and pushes have a long one
            with contextlib.closing(docker.APIClient(version="1.24", timeout=10, **settings)) as asking:
                self.about: dict[str, Any] = asking.version(api_version=False)
        except Unreachable:  # Unreachable is an OSError and has its message already
            raise
        except (DockerException, OSError) as error:  # also for an invalid DOCKER_HOST or certificate
            raise Unreachable(_why(error, self._named)) from None
        self.api: Any = docker.APIClient(version=self.about["ApiVersion"], timeout=600, **settings)

    def build(
        self,
        context: bytes,
        *,
        dockerfile: str,
        tag: str,
        arguments: Mapping[str, str],
        network: str | None,
        target: str = "",
    ) -> Iterator[dict[str, Any]]:
        """Builds with the classic builder, up to the stage `target`; yields its JSON objects. An error of the build is
        an object with `error`."""
        return self._stream(
            lambda: self.api.build(
                fileobj=io.BytesIO(context),
                custom_context=True,
                dockerfile=dockerfile,
                tag=tag,
                buildargs=dict(arguments),
                network_mode=network,
                target=target,
                decode=True,
                rm=True,
                forcerm=True,
            )
        )

    def load(self, stream: IO[bytes]) -> None:
        """Loads a docker-archive."""
        for line in self._call(lambda: list(self.api.load_image(stream, quiet=True) or ())):
            if isinstance(line, dict) and line.get("error"):
                raise Unreachable(
                    f"the engine did not take the image: {str(line['error']).strip()}{hint(line['error'])}"
                )

    def inspect(self, reference: str) -> dict[str, Any]:
        """Raises NotFound when the engine has no such image."""
        details: dict[str, Any] = self._call(lambda: self.api.inspect_image(reference), missing=reference)
        return details

    def images(self, title: str) -> list[dict[str, Any]]:
        """The engine's images whose label has this title, whatever their tags; newest first."""
        wanted = {"label": f"org.opencontainers.image.title={title}"}
        found_images: list[dict[str, Any]] = self._call(lambda: self.api.images(filters=wanted))
        return sorted(found_images, key=lambda image: -int(image["Created"]))

    def remove_nameless(self) -> int:
        """Removes every unused image without a name, whoever built it; returns the bytes freed."""
        report = self._call(lambda: self.api.prune_images(filters={"dangling": True}))
        return int(report.get("SpaceReclaimed") or 0)

    def tag(self, reference: str, repository: str, tag: str) -> None:
        self._call(lambda: self.api.tag(reference, repository, tag), missing=reference)

    def remove(self, reference: str) -> None:
        self._call(lambda: self.api.remove_image(reference), missing=reference)

    def push(self, repository: str, tag: str) -> Iterator[dict[str, Any]]:
        """Pushes with the credentials of the Docker configuration and its helpers; yields the engine's JSON objects."""
        return self._stream(lambda: self.api.push(repository, tag=tag, stream=True, decode=True))

    def save(self, reference: str) -> Iterator[bytes]:
        """The image as a docker-archive, in pieces."""
        return self._stream(lambda: self.api.get_image(reference), missing=reference)

    def read_file(self, reference: str, path: str) -> bytes:
        """Reads one file of an image, through a container that never starts. Raises NotFound."""
        container = str(
            self._call(lambda: self.api.create_container(reference, command=["x"]), missing=reference)["Id"]
        )
        try:
            body = b"".join(self._stream(lambda: self.api.get_archive(container, path)[0], missing=reference))
        except NotFound:
            raise NotFound(f"there is no file {path} in {reference}") from None
        finally:
            self.remove_container(container)
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            file = tar.extractfile(tar.getmembers()[0])
            if file is None:
                raise NotFound(f"there is no file {path} in {reference}: it is something else")
            return file.read()

    def digest(self, reference: str) -> str:
        """The digest of an image's manifest in its registry: sha256:... Raises NotFound, Unreachable."""
        distribution = self._call(lambda: self.api.inspect_distribution(reference), missing=reference)
        return str(distribution["Descriptor"]["digest"])

    # containers

    def info(self) -> dict[str, Any]:
        """What `docker info` shows: NCPU, SecurityOptions, ..."""
        answer: dict[str, Any] = self._call(lambda: self.api.info())
        return answer

    def start_container(self, settings: Mapping[str, Any], image: str) -> str:
        """Creates and starts a container of the image whose id is `image`; returns its id. A container that cannot
        start is removed. Raises EngineRefused, Unreachable; Conflict if the image's name moved meanwhile."""
        import docker

        host = dict(settings["host_config"])
        if "log_config" in host:
            host["log_config"] = docker.types.LogConfig(**host["log_config"])
        host["mounts"] = [
            docker.types.Mount(target, source, type="bind", read_only=read_only)
            for source, target, read_only in host.get("mounts", ())
        ]
        host["device_requests"] = [
            docker.types.DeviceRequest(**request) for request in host.get("device_requests", ())
        ] or None
        plain = {**settings, "host_config": self.api.create_host_config(**host)}
        if host["network_mode"] not in ("host", "none", "bridge"):
            names = {host["network_mode"]: self.api.create_endpoint_config(aliases=[settings["hostname"]])}
            plain["networking_config"] = self.api.create_networking_config(names)
        container = str(self._call(lambda: self.api.create_container(**plain))["Id"])
        try:
            if self.inspect(settings["image"])["Id"] != image:
                raise Conflict(f"image {settings['image']} was replaced meanwhile")
            self._call(lambda: self.api.start(container))
        except SlipwayError:
            self.remove_container(container)
            raise
        return container

    def ensure_network(self, name: str) -> None:
        """Creates, if it is missing, a bridge network in which containers find each other by name."""
        if not self.has_network(name):
            with contextlib.suppress(Conflict):  # another process created it first
                self._call(lambda: self.api.create_network(name, driver="bridge", check_duplicate=True))

    def has_network(self, name: str) -> bool:
        networks = self._call(lambda: self.api.networks(names=[name]))  # the engine matches parts of names, too
        return any(network["Name"] == name for network in networks)

    def container(self, known: str) -> dict[str, Any]:
        """The state of a container: Running, ExitCode, OOMKilled, ... Raises NotFound, Unreachable."""
        details: dict[str, Any] = self._call(lambda: self.api.inspect_container(known), missing=known[:12])
        state: dict[str, Any] = details["State"]
        return state

    def containers(self, labels: Mapping[str, str], *, running: bool) -> list[dict[str, Any]]:
        """The containers with all these labels; `running`: only running ones."""
        wanted = {"label": [f"{name}={value}" for name, value in labels.items()]}
        answer: list[dict[str, Any]] = self._call(lambda: self.api.containers(all=not running, filters=wanted))
        return answer

    def kill(self, known: str, signal: str) -> None:
        """Sends a signal; no error when the container has ended already."""
        with contextlib.suppress(NotFound, Conflict):
            self._call(lambda: self.api.kill(known, signal), missing=known[:12])

    def remove_container(self, known: str) -> None:
        with contextlib.suppress(NotFound, Conflict):
            self._call(lambda: self.api.remove_container(known, v=True, force=True), missing=known[:12])

    def logs(self, known: str) -> Iterator[bytes]:
        """Yields standard output and error from the beginning until the container has ended."""
        return self._stream(lambda: self.api.logs(known, stream=True, follow=True), missing=known[:12])

    def pull(self, reference: str) -> None:
        """Pulls an image. Reads the credentials of the Docker configuration anew: the connection may be an old
        supervisor's, and the user may have run `docker login` since. Raises Unreachable with the registry's message."""
        self._call(lambda: self.api.reload_config())
        for line in self._stream(lambda: self.api.pull(reference, stream=True, decode=True), missing=reference):
            if error := line.get("error"):
                raise Unreachable(str(error))

    def _stream(self, call: Callable[[], Iterable[T]], missing: str = "") -> Iterator[T]:
        """Yields the pieces that `call` returns. An engine that disappears midway raises the same error as one that
        does not answer."""
        pieces = iter(self._call(call, missing))
        while (piece := self._call(lambda: next(pieces, None))) is not None:
            yield piece

    def _call(self, call: Callable[[], T], missing: str = "") -> T:
        from docker.errors import APIError, DockerException, StreamParseError
        from docker.errors import NotFound as Missing
        from urllib3.exceptions import HTTPError

        try:
            return call()
        except Missing as error:
            raise NotFound(f"there is no image {missing}" if missing else str(error.explanation or error)) from None
        except APIError as error:
            text = str(error.explanation or error)
            if error.status_code == 409:
                raise Conflict(text.strip()) from None
            kind = EngineRefused if error.status_code == 400 else Unreachable
            raise kind(f"the Docker engine refused: {text.strip()}{hint(text)}") from None
        # errors of requests are OSErrors; a broken stream raises errors of the libraries below it
        except (DockerException, OSError, HTTPError, StreamParseError) as error:
            raise Unreachable(_why(error, self._named)) from None


def _knock(url: str, named: str) -> None:
    """Connects to an engine's Unix socket and disconnects: the SDK would leave a refused socket open.

    Raises Unreachable.
    """
    path = url.removeprefix("http+").removeprefix("unix://")
    if not path.startswith("/"):
        return
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect("/" + path.lstrip("/"))
        except OSError as error:
            raise Unreachable(_why(error, named)) from None


def _why(error: BaseException, named: str) -> str:
    """One sentence that says why the engine cannot be reached and what to do. `named`: what DOCKER_HOST says, if it
    does."""
    text = str(error)
    if "Permission denied" in text or "permission denied" in text:
        return "the Docker engine's socket may not be opened by this user: join the group `docker`, or set DOCKER_HOST"
    if "No such file" in text or "Connection refused" in text or "FileNotFoundError" in text:
        if named:
            return f"there is no Docker engine at {named}, which DOCKER_HOST names: start it, or set another"
        return "there is no Docker engine: start one (`systemctl start docker`, Docker Desktop), or set DOCKER_HOST"
    where = f" (DOCKER_HOST names {named})" if named else ""
    return f"the Docker engine cannot be reached: {' '.join(text.split())[:300]}{where}"
