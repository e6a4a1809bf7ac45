"""The successes of a training as episodes, which an SFT can learn from: the middle of Entropulse.

Folders `GENERATION-GROUP-ROLLOUT` under `episodes`, with the screens as they were, the newest ones. Source: ComputerRL
(arXiv 2508.14040).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from eval.episodes import write_episode
from training.rl.rollouts.generation import RolloutGeneration


@dataclass(frozen=True)
class SuccessEpisodes:
    """`folder`: where they are; `most`: so many at most."""

    folder: Path
    most: int

    def keep(self, made: RolloutGeneration) -> None:
        """Writes those of a generation, in place of what an interrupted training wrote of it and of later ones."""
        there = self.folders()
        for folder in [each for each in there if _number(each)[0] >= made.number]:
            shutil.rmtree(folder)
        for group in made.judged:
            for played in group.rollouts:
                if not played.episode.success or not played.asked:
                    continue
                screens = [asked.observation.image for asked in played.asked]
                if played.end is not None:
                    screens.append(played.end.image)
                name = f"{made.number}-{group.number}-{played.number}"
                write_episode(self.folder / name, played.episode, screens)
        for folder in self.folders()[: -self.most]:
            shutil.rmtree(folder)

    def folders(self) -> list[Path]:
        """The oldest first."""
        return sorted(self.folder.glob("*-*-*"), key=_number)


def _number(folder: Path) -> tuple[int, ...]:
    return tuple(map(int, folder.name.split("-")))
