"""Canaries: a secret for each way in, and the search for them in every byte that came out."""

from __future__ import annotations

import base64
import ctypes
import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.support.needs import lacking
from tests.support.s3 import REGION, S3Server, free_port, versitygw

# With characters that URLs and base64 write differently; none looks like a service's token, which is masked anyway.
# Others in each process: two runs of the tests on one machine see one another's processes.
ID = "AKIDCANARY"
WAYS = ("job-secret", "store-key", "environment", "overlay", "url", "netrc", "aws-file")
SECRETS: Mapping[str, str] = {way: f"canary+{way}/{os.urandom(5).hex()}~{way[::-1]}" for way in WAYS}
# what a curious command prints: all that it was given
CURIOUS = """
import base64, os, pathlib, subprocess, urllib.parse
e = os.environ
for name in sorted(e):
    print("env", name, e[name], flush=True)
for file in ("/proc/self/environ", f"/proc/{os.getppid()}/environ", f"/proc/{os.getppid()}/cmdline"):
    try:
        print(file, pathlib.Path(file).read_bytes(), flush=True)
    except OSError as error:
        print(file, type(error).__name__, flush=True)
for folder in (".", "/run/slipway"):
    for path in sorted(pathlib.Path(folder).rglob("*")):
        try:
            print("file", path, path.read_bytes()[:4000] if path.is_file() else "", flush=True)
        except OSError as error:
            print("file", path, type(error).__name__, flush=True)
value = e.get("HF_TOKEN", "")
print("raw", value, "url", urllib.parse.quote(value, safe=""), urllib.parse.quote(value), flush=True)
for before in ("", "u", "me:"):
    print("base64", base64.b64encode((before + value).encode()).decode(), flush=True)
out = pathlib.Path(e["SLIPWAY_OUTPUTS"], "results")
out.mkdir(parents=True, exist_ok=True)
out.joinpath("length").write_text(str(len(value)))
with open(e["SLIPWAY_METRICS"], "a") as metrics:
    metrics.write('{"step": 1, "name": "' + value + '", "value": 1}\\n')
with open(e["SLIPWAY_PROGRESS"], "a") as progress:
    progress.write('{"step": 1, "phase": "saw", "message": "' + value + '"}\\n')
"""


def no_capabilities() -> None:
    """For a child before it starts its program: from then on an ordinary user's process, though root's."""
    libc = ctypes.CDLL(None)
    for one in range(41):
        libc.prctl(24, one, 0, 0, 0)  # PR_CAPBSET_DROP


def forms(secret: str) -> set[bytes]:
    """A secret as it may be written: raw, in a URL, and within base64 at each beginning."""
    body = secret.encode()
    found = {body, quote(body, safe="").encode(), quote(body).encode()}
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + body)
        found.add(text[(shift * 8 + 5) // 6 : (shift + len(body)) * 8 // 6])
    return found


def found_in(body: bytes, but: Iterable[str] = ()) -> list[str]:
    """The ways whose secret is in these bytes."""
    wanted = {way: forms(secret) for way, secret in SECRETS.items() if way not in but}
    return [way for way, shapes in wanted.items() if any(shape in body for shape in shapes)]


def leaks(places: Iterable[Path], allowed: Iterable[Path] = ()) -> Iterator[str]:
    """`file: way` for every file below the places, and every member of a tar, that holds a secret; names count, too."""
    kept = {path.resolve() for path in allowed}
    for place in places:
        for path in [place, *place.rglob("*")] if place.is_dir() else [place]:
            for way in found_in(str(path).encode()):
                yield f"the name {path}: {way}"
            if path.is_file() and not path.is_symlink() and path.resolve() not in kept:
                body = path.read_bytes()
                for way in found_in(body):
                    yield f"{path}: {way}"
                for way in _packed(body):
                    yield f"within {path}: {way}"


def _packed(body: bytes) -> Iterator[str]:
    if b"ustar" in body[:1024]:
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            for member in tar:
                yield from found_in(member.name.encode())


def project(folder: Path) -> dict[str, str]:
    """Puts what a user may have into a project and a home; that user's environment, without the store's."""
    work, home = folder / "project", folder / "home"
    work.mkdir()
    (home / ".aws").mkdir(parents=True)
    (work / "curious.py").write_text(CURIOUS)
    (work / ".env").write_text(f"DB_PASSWORD={SECRETS['overlay']}\n")
    (work / ".netrc").write_text(f"machine h login me password {SECRETS['overlay']}\n")
    (home / ".netrc").write_text(f"machine h login me password {SECRETS['netrc']}\n")
    (home / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = AKID\naws_secret_access_key = {SECRETS['aws-file']}\n"
    )
    return {
        "HOME": str(home),
        "MY_PASSWORD": SECRETS["environment"],
        "AZURE_STORAGE_KEY": SECRETS["environment"],
        "https_proxy": f"http://me:{quote(SECRETS['url'], safe='')}@127.0.0.1:9",
        "no_proxy": "*",
    }


@contextmanager
def served(folder: Path) -> Iterator[S3Server]:
    """A server whose key is a canary, and its bucket `bucket`, in `folder`/served."""
    program = versitygw()
    if program is None:
        lacking("versitygw")
    (folder / "served").mkdir()
    port = free_port()
    command = [str(program), "--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet"]
    command += ["posix", str(folder / "served")]
    keys = {"ROOT_ACCESS_KEY": ID, "ROOT_SECRET_KEY": SECRETS["store-key"]}  # not in its arguments, which `ps` shows
    made = S3Server(f"http://127.0.0.1:{port}", True, command, folder / "s3.log")
    os.environ.update(keys)
    try:
        made.start()
        (folder / "served" / "bucket").mkdir()
        yield made
    finally:
        for name in keys:
            os.environ.pop(name, None)
        made.stop()
