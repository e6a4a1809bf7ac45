"""hf://owner/name@revision and hf://datasets/owner/name@revision, with the cache and settings of huggingface_hub."""

from __future__ import annotations

import re
from pathlib import Path

from launcher.reasons import Reason
from launcher.runtime.folders import remove
from launcher.runtime.inputs import Fetch
from launcher.runtime.inputs.local import folder_digest

_URL = re.compile(r"hf://(?:(datasets|spaces|models)/)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def names_commit(url: str | None) -> bool:
    """Whether an hf:// URL names a commit, whose content never changes."""
    match = _URL.fullmatch(url or "")
    return match is not None and _COMMIT.fullmatch(match[3] or "") is not None


def fetch(request: Fetch) -> str:
    assert request.spec.url is not None
    match = _URL.fullmatch(request.spec.url)
    if match is None:
        raise request.fault(Reason.CONFIG_ERROR, f"`{request.spec.url}`: write hf://owner/name@revision")
    kind, name, revision = match.groups()
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ModuleNotFoundError:
        from launcher.install import install

        raise request.missing(f"{request.spec.url} needs huggingface_hub: `{install('huggingface_hub')}`") from None
    request.context.say(f"input {request.name}: {request.spec.url}")
    try:
        path = Path(snapshot_download(name, repo_type=(kind or "models").removesuffix("s"), revision=revision))
    except RepositoryNotFoundError as error:
        raise request.missing(f"{request.spec.url}: {_first_line(error)}") from None
    except LocalEntryNotFoundError as error:
        raise request.fault(Reason.INFRASTRUCTURE, f"{request.spec.url}: {_first_line(error)}") from None
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", 0) or 0
        reason = Reason.INPUT_MISSING if 400 <= status < 500 and status not in (408, 429) else Reason.INFRASTRUCTURE
        raise request.fault(reason, f"{request.spec.url}: {_first_line(error)}") from None
    remove(request.dest)
    request.dest.symlink_to(path)
    if revision and _COMMIT.fullmatch(revision) and not request.spec.digest:
        return f"hf:{revision}"  # a commit names its content
    return folder_digest(request, path)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
