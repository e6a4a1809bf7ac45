"""Builds images: with the engine's own builder one after the other, or with BuildKit several at a time.

Both get the same context (exactly the files from which the version is hashed) and the same arguments, and both leave an
image in the engine under `<name>:<version>`. An image on another base has another version, and so has one with other
packages of Debian (launcher/images/debian.py). It also gets the tags of the versions without these, because jobs that
name the image ask for the tag that follows from the sources alone.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from launcher.errors import NotFound, SlipwayError
from launcher.images import debian
from launcher.images.engine import Engine, hint
from launcher.spec.images.definition import DOCKERFILE, FOLDER, Definition
from launcher.version import __version__

_ENDING: Final = 5.0  # seconds to wait for the message of a failed buildctl


class BuildFailed(SlipwayError):
    """An image failed to build. The text names the step and the file with the whole log."""


@dataclass(frozen=True)
class BuildOptions:
    """
    base       an image that replaces the one in the Dockerfiles
    network    network of the RUN steps, as docker's --network; None: the engine's default
    arguments  further build arguments
    logs       the folder for logs of failed builds
    """

    logs: Path
    base: str | None = None
    network: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)

    def version(self, definition: Definition) -> str:
        return definition.version(self.base, self.arguments)

    def with_debian(self, files: Mapping[str, bytes]) -> BuildOptions:
        """These options with what Debian gave, from the files of its stage."""
        return replace(self, arguments={**self.arguments, debian.ARGUMENT: debian.digest(files)})

    def build_arguments(self, definition: Definition, version: str) -> dict[str, str]:
        """Every value is part of the version or follows from it, so that a version has one digest. The commit does not:
        two commits with the same files make the same version."""
        given = {
            "SLIPWAY_VERSION": version,
            "SLIPWAY_CREATED": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(definition.epoch)),
            "SOURCE_DATE_EPOCH": str(definition.epoch),
            **self.arguments,
        }
        return given if self.base is None else {**given, "BASE": self.base}


@dataclass(frozen=True)
class BuildStep:
    """One finished instruction of a build."""

    image: str
    number: str
    text: str
    seconds: float
    cached: bool


@dataclass(frozen=True)
class Built:
    """An image that was built. `id` is the digest of its configuration, `arguments` what it was built with."""

    name: str
    tag: str
    version: str
    id: str
    size: int
    layers: int
    seconds: float
    arguments: Mapping[str, str]


Tell = Callable[[BuildStep], None]


def context_tar(definition: Definition) -> bytes:
    """The context as a tar: names are sorted, times and owners fixed, so equal files give equal bytes."""
    buffer, epoch = io.BytesIO(), definition.epoch
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, file in definition.context().items():
            info = tarfile.TarInfo(path)
            info.size = file.stat().st_size
            info.mode = _mode(file)
            info.mtime = epoch
            with file.open("rb") as body:
                tar.addfile(info, body)
    return buffer.getvalue()


def context_folder(definition: Definition, folder: Path) -> None:
    """The context as a folder, for a builder that reads folders.

    BuildKit caches files and fetches only those whose size or time differs. All files have the time SOURCE_DATE_EPOCH
    in seconds, so the nanoseconds are set from the content; an image's layers store no nanoseconds.
    """
    for path, source in definition.context().items():
        file, body = folder / path, source.read_bytes()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
        file.chmod(_mode(source))
        time_ns = definition.epoch * 10**9 + int(hashlib.sha256(body).hexdigest(), 16) % 10**9
        os.utime(file, ns=(time_ns, time_ns))


def _mode(file: Path) -> int:
    return 0o755 if file.stat().st_mode & 0o100 else 0o644


def build(
    engine: Engine, wanted: Iterable[Definition], options: BuildOptions, tell: Tell, buildkit: str | None
) -> list[Built]:
    """Builds every image; in parallel with BuildKit. Raises BuildFailed for the first that fails."""
    images = list(wanted)

    def build_one(image: Definition) -> Built:
        # of a copy of the sources: somebody may change one while it builds, between its two builds, too
        with tempfile.TemporaryDirectory(prefix="slipway-context-") as folder:
            context_folder(image, Path(folder))
            sources = Definition(image.name, Path(folder))
            if buildkit is None:
                return _classic(engine, sources, options, tell)
            return _buildkit(engine, sources, options, tell, buildkit)

    if buildkit is None:
        return [build_one(image) for image in images]
    with ThreadPoolExecutor(len(images)) as pool:
        return list(pool.map(build_one, images))


def _classic(engine: Engine, definition: Definition, options: BuildOptions, tell: Tell) -> Built:
    begun = time.monotonic()
    log = _Log(f"{definition.name}:{options.version(definition)}", options.logs)

    def run(settings: BuildOptions, tag: str, target: str, tell: Tell) -> None:
        lines = engine.build(
            context_tar(definition),
            dockerfile=f"{FOLDER}/{definition.name}/{DOCKERFILE}",
            tag=tag,
            arguments=settings.build_arguments(definition, tag.rpartition(":")[2]),
            network=settings.network,
            target=target,
        )
        for step in _classic_steps(definition.name, lines, log):
            tell(step)
        if log.error:
            raise log.failed(definition.name)

    settings, tell_rest = options, tell
    if debian.open_ended(definition, options.arguments):
        stage = f"{definition.name}:{debian.STAGE}"
        run(options, stage, debian.STAGE, tell)
        files = {}
        for name in (*debian.LISTS, debian.OTHER):
            with suppress(NotFound):
                files[name] = engine.read_file(stage, f"/{name}")
        engine.remove(stage)
        settings, tell_rest = options.with_debian(files), _but_cached(tell)
    run(settings, f"{definition.name}:{settings.version(definition)}", "", tell_rest)
    log.done()
    return _built(engine, definition, options, settings, begun)


def _but_cached(tell: Tell) -> Tell:
    """`tell` for a second build: what the first one made was told already."""
    return lambda step: None if step.cached else tell(step)


def _classic_steps(image: str, lines: Iterable[Mapping[str, Any]], log: _Log) -> Iterator[BuildStep]:
    """Yields the steps of the classic builder's stream; a step ends where the next begins."""
    text, number, begun, cached = "", "", time.monotonic(), False
    for line in lines:
        if error := line.get("error"):
            log.write(f"{error}\n")
            log.error = f"{number} {text}".strip() + f": {str(error).strip()}"
            return
        words = str(line.get("stream", ""))
        log.write(words)
        if words.startswith("Step "):
            if text:
                yield BuildStep(image, number, text, time.monotonic() - begun, cached)
            head, _, rest = words.strip().partition(" : ")
            number, text, begun, cached = head.removeprefix("Step "), rest, time.monotonic(), False
        cached = cached or "Using cache" in words
    if text:
        yield BuildStep(image, number, text, time.monotonic() - begun, cached)


def _buildkit(engine: Engine, definition: Definition, options: BuildOptions, tell: Tell, address: str) -> Built:
    begun = time.monotonic()
    log = _Log(f"{definition.name}:{options.version(definition)}", options.logs)

    def command(settings: BuildOptions, *more: str) -> list[str]:
        folder = definition.root
        words = ["buildctl", "--addr", address, "build", "--progress=plain", "--frontend=dockerfile.v0"]
        words += [f"--local=context={folder}", f"--local=dockerfile={folder}/{FOLDER}/{definition.name}"]
        words += ["--opt=image-resolve-mode=local"]
        for name, value in settings.build_arguments(definition, settings.version(definition)).items():
            words.append(f"--opt=build-arg:{name}={value}")
        if settings.network == "host":
            words += ["--allow=network.host", "--opt=force-network-mode=host"]
        return [*words, *more]

    settings, tell_rest = options, tell
    if debian.open_ended(definition, options.arguments):
        with tempfile.TemporaryDirectory(prefix="slipway-debian-") as lists:
            wanted = (f"--opt=target={debian.STAGE}", f"--output=type=local,dest={lists}")
            _piped(None, command(options, *wanted), definition.name, log, tell)
            files = {file.name: file.read_bytes() for file in Path(lists).iterdir()}
        settings, tell_rest = options.with_debian(files), _but_cached(tell)
    tag = f"{definition.name}:{settings.version(definition)}"
    # uncompressed: the engine unpacks the layers in any case
    output = f"--output=type=docker,name={tag},rewrite-timestamp=true,compression=uncompressed"
    _piped(engine, command(settings, output), definition.name, log, tell_rest)
    log.done()
    return _built(engine, definition, options, settings, begun)


def _piped(engine: Engine | None, command: Sequence[str], image: str, log: _Log, tell: Tell) -> None:
    """Runs buildctl and loads its output, an image, into the engine, if there is one to load. Raises BuildFailed,
    Unreachable."""
    refused: SlipwayError | None = None
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        ThreadPoolExecutor(1) as pool,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        told = pool.submit(_buildkit_steps, image, process.stderr, log, tell)
        try:
            if engine is not None:
                engine.load(process.stdout)
        except SlipwayError as error:
            refused = error
            try:
                process.wait(_ENDING)
            except subprocess.TimeoutExpired:  # its output is an image that nobody reads
                process.kill()
        except BaseException:
            process.kill()
            raise
        told.result()
    # the engine also refuses the incomplete output of a failed build; then the build's error is reported
    if process.returncode and (process.returncode > 0 or refused is None):
        log.error = log.last or f"buildctl ended by signal {-process.returncode}"
        raise log.failed(image)
    if refused is not None:
        raise refused


def _buildkit_steps(image: str, lines: Iterable[bytes], log: _Log, tell: Tell) -> None:
    """Yields the steps of `--progress=plain`: `#7 [build 2/9] RUN ...`, later `#7 DONE 1.3s` or `#7 CACHED`."""
    texts: dict[str, str] = {}
    try:
        for raw in lines:
            line = raw.decode(errors="replace")
            log.write(line)
            number, _, rest = line.strip().partition(" ")
            if rest.startswith("["):
                texts[number] = rest
            elif number in texts and (rest == "CACHED" or rest.startswith("DONE ")):
                seconds = float(rest.removeprefix("DONE ").rstrip("s")) if rest != "CACHED" else 0.0
                tell(BuildStep(image, number, texts.pop(number), seconds, rest == "CACHED"))
    finally:
        for _ in lines:  # when `tell` raises: buildctl must not wait for a reader
            pass


def _built(
    engine: Engine, definition: Definition, options: BuildOptions, settings: BuildOptions, begun: float
) -> Built:
    """Tags a build also with the versions that are known without it: jobs of the docker backend ask for that without a
    base, `scan` and `push` for that of the options."""
    version = settings.version(definition)
    tag = f"{definition.name}:{version}"
    image = engine.inspect(tag)
    for known in {definition.version(None, options.arguments), options.version(definition)} - {version}:
        engine.tag(tag, definition.name, known)
    layers, seconds = len(image["RootFS"]["Layers"]), time.monotonic() - begun
    return Built(definition.name, tag, version, image["Id"], image["Size"], layers, seconds, settings.arguments)


class _Log:
    """Writes the whole output of one build into a file, which stays when the build fails."""

    def __init__(self, tag: str, folder: Path) -> None:
        """Raises SlipwayError when the file cannot be created, before anything is built."""
        self.path = folder / f"build-{tag.replace(':', '-')}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path.write_text("", encoding="utf-8")
        except OSError as error:
            raise SlipwayError(f"a build's log cannot be written: {self.path}: {error.strerror}") from None
        self.error = ""
        self.last = ""
        self.full = ""  # advice when a step reported a full disk
        self.lost = ""  # why the file is incomplete: a full disk here does not stop the build

    def write(self, text: str) -> None:
        self.full = self.full or hint(text)
        if text.strip():
            self.last = text.strip()
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self.lost = self.lost or f" (not all of it: {error.strerror})"

    def done(self) -> None:
        self.path.unlink(missing_ok=True)

    def failed(self, image: str) -> BuildFailed:
        full = f"; no space left on device{self.full}" if self.full else ""
        return BuildFailed(f"{image} {__version__}: {self.error}{full}; the whole log: {self.path}{self.lost}")
