"""A model on a hub: `python -m training.push_to_hub --config $SLIPWAY_CONFIG`, with its card, by huggingface_hub.

A job of its own, whose input is the model in the store: what a hub does never changes the training's end, and the same
command sends again what is missing. All files come in one commit, so nobody reads half a model there; where nothing
differs there is none. The token is $HF_TOKEN, a secret of the job.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from eval import config as configuration
from eval.config import Config, ConfigError
from eval.config import help as config_help
from training.common.model.card import CARD

TOKEN: Final = "HF_TOKEN"
REPO: Final = re.compile(r"[\w.-]+/[\w.-]+")
REFUSED: Final = (400, 401, 403, 404, 422)  # answers that no repetition changes
RESULT: Final = "hub.json"


class PushConfig(Config, frozen=True, kw_only=True):
    """
    model    a folder with a model or an adapter, and its card
    repo     OWNER/NAME on the hub; it is made where there is none
    private  whether it is made for its owner alone. One that is there stays as it is
    branch   that gets the commit; it is made where there is none
    message  of the commit
    """

    model: str
    repo: str
    private: bool = True
    branch: str = "main"
    message: str = "Model of a Slipway run"

    def check(self) -> None:
        """Raises ConfigError."""
        if not REPO.fullmatch(self.repo):
            raise ConfigError(f"repo: {self.repo!r}: write OWNER/NAME")


class HubGone(Exception):
    """The hub does not answer, or fails: the same command goes on."""


def push(config: PushConfig) -> dict[str, str]:
    """Sends the folder, and gives {repo, branch, commit, url}. Raises ConfigError, HubGone."""
    configuration.need("huggingface_hub")
    folder = Path(config.model)
    if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise ConfigError(f"model: {folder} has no config.json and no adapter_config.json: it is no model folder")
    if not (folder / CARD).is_file():
        raise ConfigError(f"model: {folder} has no {CARD}, the model card; the folder of a training has one")
    token = os.environ.get(TOKEN)
    if not token:
        raise ConfigError(f"there is no ${TOKEN}: name the secret {TOKEN} in the job's secrets")
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import OfflineModeIsEnabled

    api = HfApi(token=token)
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not hidden(file.relative_to(folder)))
    adds = [CommitOperationAdd(file.relative_to(folder).as_posix(), str(file)) for file in files]
    try:
        api.create_repo(config.repo, private=config.private, exist_ok=True)
        if config.branch != "main":
            api.create_branch(config.repo, branch=config.branch, exist_ok=True)
        made = api.create_commit(config.repo, adds, commit_message=config.message, revision=config.branch)
    except OfflineModeIsEnabled:
        raise ConfigError("HF_HUB_OFFLINE is set: nothing can be sent; leave it out of the job's env") from None
    except Exception as error:  # which library sends, and what it raises, differs by the version of huggingface_hub
        said, status = error_line(error, token), status_of(error)
        if status in REFUSED:
            raise ConfigError(f"{config.repo}: the hub refuses ({status}): {said}") from None
        raise HubGone(f"{config.repo}: the hub failed: {said}") from None
    return {"repo": config.repo, "branch": config.branch, "commit": made.oid, "url": str(made.commit_url)}


def hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def causes(error: BaseException) -> list[BaseException]:
    """The exception and what it came of, the outermost first."""
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found


def status_of(error: BaseException) -> int | None:
    """The status of the hub's answer; None where there was none."""
    for each in causes(error):
        response: Any = getattr(each, "response", None)
        if (status := getattr(response, "status_code", None)) is not None:
            return int(status)
    return None


def error_line(error: BaseException, token: str) -> str:
    """The words of an exception and of its last cause, in one line, without the token."""
    found = causes(error)
    words = dict.fromkeys(" ".join(str(each).split()) or type(each).__name__ for each in (found[0], found[-1]))
    return "; ".join(words).replace(token, "***")[:400]


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("training.push_to_hub", "Put a model and its card on a hub.", PushConfig)
    parser.add_argument("--out", help=f"where {RESULT} goes; default $SLIPWAY_OUTPUTS/results")
    given = parser.parse_args(argv)

    def run() -> int:
        import huggingface_hub  # noqa: F401 says which extra it lacks before anything else

        config = configuration.load(Path(given.config), PushConfig)
        out = configuration.output_folder(given.out, "results")
        try:
            found = push(config)
        except HubGone as error:
            print(f"push_to_hub: {error}; the same command sends what is missing", file=sys.stderr)
            return 1
        out.mkdir(parents=True, exist_ok=True)
        (out / RESULT).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{found['repo']} has the model: {found['url']}", flush=True)
        return 0

    return configuration.run(run, needs=())


if __name__ == "__main__":
    sys.exit(main())
