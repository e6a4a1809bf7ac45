"""s3://, gs://, az:// : an object, or everything below a prefix. If a folder has a manifest beside it, as an output of
a run has, its files must be as the manifest says."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from launcher.errors import BadInput
from launcher.reasons import Reason
from launcher.runtime.folders import remove
from launcher.runtime.inputs import Fetch
from launcher.store.base import Meta
from launcher.store.manifest import Manifest, StoredFile, fetch_tree, find_output
from launcher.store.opening import open_store
from launcher.store.transfer import in_parallel


def fetch(request: Fetch) -> str:
    assert request.spec.url is not None
    parts = urlsplit(request.spec.url)
    above, _, name = parts.path.rstrip("/").rpartition("/")
    try:
        store = open_store(urlunsplit(parts._replace(path=above)))
    except BadInput as error:
        raise request.fault(Reason.CONFIG_ERROR, str(error)) from None
    if not name:
        raise request.fault(
            Reason.CONFIG_ERROR, f"`{request.spec.url}` names a whole bucket; name an object or a folder in it"
        )
    if not parts.path.endswith("/") and store.head(name) is not None:
        remove(request.dest)
        return f"sha256:{store.download(name, request.dest)}"
    written = find_output(store, f"{name}/")
    if written is not None:
        manifest = written[1]
        fetch_tree(store, f"{name}/", manifest, request.dest, progress=request.progress)
        return f"sha256:{manifest.digest}"
    remove(request.dest)
    objects = [meta for meta in store.scan(f"{name}/") if not meta.key.endswith("/")]
    if not objects:
        raise request.missing(f"{request.spec.url}: no such object, and nothing below it")
    files: dict[str, StoredFile] = {}
    total = sum(meta.size for meta in objects)

    def load(meta: Meta) -> None:
        relative = meta.key.removeprefix(f"{name}/")
        digest = store.download(meta.key, request.dest / relative)
        files[relative] = StoredFile((request.dest / relative).stat().st_size, digest)
        request.progress(sum(file.size for file in list(files.values())), total)

    in_parallel((meta.size, lambda meta=meta: load(meta)) for meta in objects)  # type: ignore[misc]
    return f"sha256:{Manifest(files, 0.0, '').digest}"
