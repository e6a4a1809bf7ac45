"""Gives all weights of a model to a vLLM server (0.32, started with VLLM_SERVER_DEV_MODE=1), one version after another.

They change in place: no question of this training begins while another version's run. The server is told a label with
each version, which it forgets when it ends: after each answer it is asked for the label, so an answer of a server that
has started anew, by the weights of the start, is never taken for one of the training's.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eval.config import ConfigError
from training.common.vllm_client import UNKNOWN, Client, ServerRefuses
from training.rl.vllm_config import FIELD

LOADING: Final = "loading"  # the label while weights change: of no version


class VllmWeightsServer:
    """One server, and what is known of it. `folder`: where the weights are published."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.seen = False  # whether `version` is what the server has; False: it may have started anew
        self.version = -1
        self.running: Counter[int] = Counter()  # questions of each version, waiting ones among them
        self.loaded: frozenset[int] = frozenset()  # no version needs its file any more
        self.rests = 0.0  # until when
        self._turn = threading.Condition()
        self._asking = 0  # questions that the server answers now
        self._loading = False

    @contextmanager
    def holding(self, version: int, file: Path) -> Iterator[tuple[str, int]]:
        """The model's name, and the version that the server has while this is open: the asked one, or a newer one.
        Raises ServerGone, ConfigError, FileNotFoundError."""
        with self._turn:
            while self._loading or (self._asking and not self._has(version)):
                self._turn.wait()
            if not self._has(version):
                self._loading = True
                self._turn.release()
                try:
                    self._load(version, file)
                finally:
                    self._turn.acquire()
                    self._loading = False
                    self._turn.notify_all()
            held = self.version
            self._asking += 1
        try:
            yield self.client.model, held
        finally:
            with self._turn:
                self._asking -= 1
                self._turn.notify_all()

    def _has(self, version: int) -> bool:
        return self.seen and self.version >= version

    def _label(self, version: int) -> str:
        return f"{self.folder.name}-{version}"

    def _load(self, version: int, file: Path) -> None:
        try:
            served, label = self.client.served(), self.client.weights_label()
        except ServerRefuses as error:
            raise _unable(error) from None
        if self.client.model not in served:
            raise ConfigError(f"{FIELD}.name: {self.client.url} serves {', '.join(served)}, not {self.client.model}")
        if label != self._label(version):
            place = self.folder / f".whole-{version}-{id(self)}"  # vLLM reads all safetensors of a folder
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            place.chmod(0o755)  # the server may be another user
            try:
                os.link(file, place / "model.safetensors")
                self.client.label_weights(LOADING)
                self.client.load_weights(place)
                self.client.label_weights(self._label(version))
            except ServerRefuses as error:
                raise _unable(error) from None
            finally:
                shutil.rmtree(place, ignore_errors=True)
        self.version, self.seen = version, True

    def confirm(self, version: int) -> None:
        """After an answer, inside `holding`: it was by this version. Raises ServerRefuses with the status UNKNOWN where
        the server has started anew meanwhile, ServerGone."""
        if (label := self.client.weights_label()) != self._label(version):
            raise ServerRefuses(f"{FIELD}: {self.client.url} has the weights {label!r}", UNKNOWN)

    def tidy(self, newest: int) -> None:
        """Nothing is left there but the newest weights."""


def _unable(error: ServerRefuses) -> ConfigError:
    return ConfigError(
        f"{error}; to take all weights the server must be vLLM 0.32 or later, started with VLLM_SERVER_DEV_MODE=1"
    )
