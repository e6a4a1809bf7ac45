"""Importers by format: ours in a dict, and one of your own by import path (`format: custom`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from eval.config import ConfigError
from eval.config.importing import call, load_object
from eval.episodes import Episode
from training.data.ingest.config import (
    AgentNetConfig,
    Common,
    CustomFormatConfig,
    EpisodesConfig,
    OpenAdaptConfig,
    OsworldConfig,
)
from training.data.ingest.tally import Tally

# Where it comes from (for messages), the episode, and its frames: PNG files, one per step and maybe a final one.
Imported = tuple[str, Episode, Sequence[Path]]


class Importer(Protocol):
    """Reads one format and gives its episodes one at a time, so that memory stays flat.

    config   the configuration; config.recording is the file or folder to read
    tally    counts: set tally.total where it is known; give a recording that becomes no episode to
             tally.lose(where, fault), a step that is left out to tally.lose_step(where, fault). The fault is a
             training.data.faults.BadSample for damage (it ends the work under `on_bad_sample: fail`), or a
             training.data.ingest.tally.Lost for what no Action holds
    scratch  an empty folder for files that only this run needs

    Frames must have the size of the episode's screen. Success that nobody judged is None. The same recording gives the
    same episodes. Raises ConfigError when config.recording holds nothing of the format.
    """

    def __call__(self, config: Any, tally: Tally, scratch: Path) -> Iterator[Imported]: ...


IMPORTERS: Final[dict[type[Common], str]] = {
    AgentNetConfig: "training.data.ingest.agentnet:episodes",
    OpenAdaptConfig: "training.data.ingest.openadapt.importer:episodes",
    OsworldConfig: "training.data.ingest.osworld:episodes",
    EpisodesConfig: "training.data.ingest.folders:episodes",
}


def importer(config: Common) -> Importer:
    """The importer of the configuration's format. Raises ConfigError for one of your own that cannot be imported."""
    if isinstance(config, CustomFormatConfig):
        return _Custom(config.importer)
    function: Importer = load_object(IMPORTERS[type(config)], "format")
    return function


class _Custom:
    """An importer of a user's own: whatever it gives that breaks the protocol is a ConfigError."""

    def __init__(self, path: str) -> None:
        self.where = f"importer {path}"
        self.function = load_object(path, "importer")
        if not callable(self.function):
            raise ConfigError(f"{self.where} is a {type(self.function).__name__}; needed: a function")

    def __call__(self, config: Any, tally: Tally, scratch: Path) -> Iterator[Imported]:
        items = call(self.function, self.where, config, tally, scratch)
        if not isinstance(items, Iterator):
            raise ConfigError(
                f"{self.where}: gave a {type(items).__name__}; needed: an iterator, as a generator is one"
            )
        while True:
            try:
                item = next(items)
            except StopIteration:
                return
            except ConfigError:
                raise
            except Exception as error:
                raise ConfigError(f"{self.where}: {type(error).__name__}: {' '.join(str(error).split())}") from error
            yield self._checked(item)

    def _checked(self, item: object) -> Imported:
        match item:
            case (str(place), Episode() as episode, [*given]) if all(isinstance(path, Path) for path in given):
                frames = [path for path in given if isinstance(path, Path)]
            case _:
                raise ConfigError(f"{self.where}: gave {item!r:.80}; needed: (where, Episode, a list of Paths)")
        if len(frames) not in (len(episode.steps), len(episode.steps) + 1):
            raise ConfigError(
                f"{self.where}: {place}: {len(frames)} frames for {len(episode.steps)} steps; needed: one per step, "
                "and maybe a final one"
            )
        if missing := [path for path in frames if not path.is_file()]:
            raise ConfigError(f"{self.where}: {place}: there is no file {missing[0]}")
        return place, episode, frames
