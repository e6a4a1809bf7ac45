"""Importers by `format`: the configuration of each, ours in a dict, and one of your own by import path (`custom`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec

from eval.config import Config, ConfigError
from eval.config.importing import call, load_object
from eval.episodes import Episode
from training.data.faults import Policy
from training.data.ingest.tally import Tally

Cot = Literal["L1", "L2", "L3"]


class Common(Config, frozen=True):
    """
    recording      the file or folder that is read; each importer's module says what it expects there
    environment    what the episodes name as their environment; "" takes the format's name
    on_bad_sample  fail or skip: what becomes of damage, see training.data.ingest
    """

    recording: str
    environment: str = ""
    on_bad_sample: Policy = "fail"


class AgentNetConfig(Common, frozen=True, tag_field="format", tag="agentnet"):
    """
    images          the folder with the pictures, relative to the recording
    cot             how much of the reasoning the steps keep in their answer: L1 the action in words, L2 the thought
                    too, L3 the observation too (prompts with `thought: l3` need it); as their thought: L1 the action
                    in words, L2 the thought, L3 observation and thought
    drop_incorrect  leaves out steps that the annotators marked as wrong
    drop_redundant  leaves out steps that they marked as needless
    """

    images: str = "images"
    cot: Cot = "L2"
    drop_incorrect: bool = False
    drop_redundant: bool = False


class OpenAdaptConfig(Common, frozen=True, tag_field="format", tag="openadapt"):
    """
    end         done: adds DONE on a frame that shows the screen after the last action, where there is one; none: adds
                nothing, as nobody recorded that the task was done
    drag        pixels of the mouse between press and release from which on it is a drag
    scroll_gap  seconds of rest after which the wheel starts a new step
    stop        sequences that end a recording and are no part of the task
    """

    end: Literal["none", "done"] = "none"
    drag: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    scroll_gap: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    stop: tuple[str, ...] = ("oa.stop",)


class OsworldConfig(Common, frozen=True, tag_field="format", tag="osworld"):
    """
    tasks   a folder with the tasks' JSON files, {domain}/{id}.json: results do not hold the instruction
    """

    tasks: str | None = None


class EpisodesConfig(Common, frozen=True, tag_field="format", tag="episodes"):
    """
    check  only reads and reports: no episode is written
    same   two actions that differ only in where they point are no contradiction within this distance (fraction of the
           screen)
    """

    check: bool = False
    same: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05


class CustomFormatConfig(Common, frozen=True, kw_only=True, tag_field="format", tag="custom"):
    """A format of your own.

    importer  `package.module:name`, a function: called as importer(config, tally, scratch), it gives the episodes, see
              training.data.ingest.registry.Importer
    options   settings of your importer, which reads them as config.options
    """

    importer: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)


IngestConfig = AgentNetConfig | OpenAdaptConfig | OsworldConfig | EpisodesConfig | CustomFormatConfig


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
