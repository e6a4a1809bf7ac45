"""file:// : makes a link to the file or folder. Nothing is copied; everything is read once for its digest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from launcher.runtime.folders import remove
from launcher.runtime.inputs import Fetch, sha256_file
from launcher.store.manifest import Manifest, StoredFile
from launcher.store.paths import LeftOutFiles, stored_name, walk


def fetch(request: Fetch) -> str:
    assert request.spec.url is not None
    path = Path(unquote(urlsplit(request.spec.url).path))
    if not path.exists():
        raise request.missing(f"{path} is not there")
    digest = sha256_file(path) if path.is_file() else folder_digest(request, path)
    remove(request.dest)
    request.dest.symlink_to(path)
    return digest


def folder_digest(request: Fetch, path: Path) -> str:
    """The digest of the manifest that the folder would have. Links in it are the user's own and are followed."""
    left = LeftOutFiles()
    names = list(walk(path, follow=True, leave=left))
    for line in left.lines(f"input {request.name}"):
        request.context.say(line)
    total = sum(status.st_size for _, _, status in names)
    files: dict[str, StoredFile] = {}
    done = 0
    for name, file, _ in names:
        with file.open("rb", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            files[stored_name(name)] = StoredFile(size, hashlib.file_digest(stream, "sha256").hexdigest())
        done += size
        request.progress(done, total)
    return f"sha256:{Manifest(files, 0.0, '').digest}"
