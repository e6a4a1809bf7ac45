"""A reward model against people's ratings: `python -m training.compare_raters --config $SLIPWAY_CONFIG`.

The ratings are those that pairs are made of (`training.data.pairs.human`), with a number for each answer. Writes
results/summary.json, with intervals by episode: `agreement`, the share of two answers to one step, rated differently,
that the model orders as the raters do; `rater_agreement`, the same of one rater by another, which no model need exceed;
`rank_correlation`, Spearman's over all answers. A model learns differences within a prompt only: where steps are of
unlike worth the agreement tells more. Of a model of whole episodes the ratings are of episodes, those of one task are
compared, and intervals are by task.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from eval import config as configuration
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.episodes import Episode
from eval.prompts import PromptConfig
from eval.scores.stats import Estimate, by_cluster
from eval.scores.summary import row, table
from eval.scores.summary_file import write_summary
from training.data.faults import BadSample, Faults
from training.data.pairs.human import Place, step_of
from training.data.pairs.human import ratings as read_ratings
from training.reward.model import read_about

DRAWS: Final = 2000  # of the bootstrap
Ratings = Mapping[tuple[Place, str], Mapping[str, float]]  # of an answer: rater -> number


class RatersConfig(Config, frozen=True, kw_only=True):
    """
    model       a folder that training.reward wrote
    ratings     a .csv, .jsonl or .json file with a number for each answer; with a model of whole episodes, for each of
                them, and two of one task are compared
    episodes    the folder with the episodes that it names
    prompt      the same section as that of the pairs; a model of whole episodes brings its own
    batch_size  answers per forward pass
    seed        of the interval's draws
    """

    model: str
    ratings: str
    episodes: str
    prompt: PromptConfig = PromptConfig()
    batch_size: int = 16
    seed: int = 0


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 1; equal ones share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    for _, same in itertools.groupby(enumerate(order), lambda item: values[item[1]]):
        members = list(same)
        mean = math.fsum(place for place, _ in members) / len(members) + 1
        for _, index in members:
            found[index] = mean
    return found


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks; None where one of them does not vary."""
    a, b = ranks(first), ranks(second)
    x, y = math.fsum(a) / max(1, len(a)), math.fsum(b) / max(1, len(b))
    spread = math.fsum((each - x) ** 2 for each in a) * math.fsum((each - y) ** 2 for each in b)
    if not spread:
        return None
    return math.fsum((p - x) * (q - y) for p, q in zip(a, b, strict=True)) / math.sqrt(spread)


def rank_correlation(rows: Sequence[tuple[str, float, float]], seed: int) -> Estimate | None:
    """Of (episode, reward, rating), with a 95 % interval of a bootstrap over episodes."""
    return bootstrapped(rows, lambda drawn: spearman(*zip(*drawn, strict=True)), f"rank correlation {seed}")


def bootstrapped(
    rows: Sequence[tuple[str, float, float]],
    figure: Callable[[Sequence[tuple[float, float]]], float | None],
    seed: str,
) -> Estimate | None:
    """The figure of (cluster, one number, another), with a 95 % interval of a bootstrap over clusters; None where it
    has no value."""
    value = figure([(one, other) for _, one, other in rows])
    if value is None:
        return None
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for cluster, one, other in rows:
        groups[cluster].append((one, other))
    names, draw, found = sorted(groups), random.Random(seed), []
    for _ in range(DRAWS):
        drawn = [each for name in draw.choices(names, k=len(names)) for each in groups[name]]
        if (again := figure(drawn)) is not None:
            found.append(again)
    found.sort()
    low, high = found[int(0.025 * len(found))], found[min(len(found) - 1, int(0.975 * len(found)))]
    return Estimate(value, min(value, low), max(value, high), len(rows), len(names))


def agreement(rewards: Mapping[tuple[Place, str], float], given: Ratings) -> Estimate | None:
    """Of the model with the mean of the raters; a tie of the model is wrong."""
    means = {answer: math.fsum(by.values()) / len(by) for answer, by in given.items()}
    return by_cluster(
        [
            (place[0], float((rewards[a] - rewards[b]) * (means[a] - means[b]) > 0))
            for place, a, b in _couples(given)
            if means[a] != means[b]
        ]
    )


def rater_agreement(given: Ratings) -> Estimate | None:
    """Of each two raters of the same two answers, both of whom rate them differently; None without any."""
    found = []
    for place, a, b in _couples(given):
        votes = [given[a][who] - given[b][who] for who in sorted(given[a].keys() & given[b].keys())]
        for one, other in itertools.combinations([each for each in votes if each], 2):
            found.append((place[0], float(one * other > 0)))
    return by_cluster(found)


def _couples(given: Ratings) -> list[tuple[Place, tuple[Place, str], tuple[Place, str]]]:
    """Each two answers to the same step."""
    at: dict[Place, list[tuple[Place, str]]] = defaultdict(list)
    for answer in given:
        at[answer[0]].append(answer)
    return [(place, a, b) for place, answers in at.items() for a, b in itertools.combinations(answers, 2)]


def compare(config: RatersConfig, out: Path) -> list[Any]:
    """The rows of summary.json, which it writes. Raises ConfigError."""
    rewards, given = _of_episodes(config) if "prompt" in read_about(Path(config.model)) else _of_answers(config)
    means = [(place[0], rewards[place, text], math.fsum(by.values()) / len(by)) for (place, text), by in given.items()]
    told: dict[str, Any] = {"benchmark": "raters", "version": "1", "split": "all", "infra": 0, "seed": config.seed}
    rows = [
        row(name, estimate, **told, agent="reward")
        for name, estimate in (
            ("agreement", agreement(rewards, given)),
            ("rater_agreement", rater_agreement(given)),
            ("rank_correlation", rank_correlation(means, config.seed)),
        )
    ]
    write_summary(out / "summary.json", rows)
    return rows


def _of_episodes(config: RatersConfig) -> tuple[dict[tuple[Place, str], float], Ratings]:
    """(score of each rated episode, its ratings). Episodes are compared within a task. Raises ConfigError."""
    from training.reward.episodes import EpisodeJudge, JudgedEpisodesConfig, judge_prompt, judged, scores

    judge = EpisodeJudge.load(config.model, batch_size=config.batch_size)
    chosen = JudgedEpisodesConfig(path=config.episodes, prompt=judge_prompt(config.model), ratings=config.ratings)
    episodes = [each for _, each in judged(Path(config.episodes), chosen, Faults("fail"))]
    if not episodes:
        raise ConfigError(f"ratings: {config.ratings} names no episode of {config.episodes}")
    given = {((each.task_id, 0), each.name): each.ratings for each in episodes}
    return dict(zip(given, scores(judge.model, episodes), strict=True)), given


def _of_answers(config: RatersConfig) -> tuple[dict[tuple[Place, str], float], Ratings]:
    """(reward of each rated answer, its ratings). Raises ConfigError."""
    from training.reward.model import RewardModel, with_response

    faults = Faults("fail")
    given = read_ratings(Path(config.ratings), faults)
    if not given:
        raise ConfigError(f"ratings: {config.ratings} has no rating")
    model, builder = RewardModel.load(config.model, batch_size=config.batch_size), config.prompt.builder()
    known: dict[str, Episode] = {}
    chats, pictures = [], []
    for place, response in given:
        try:
            at = step_of(Path(config.episodes), *place, known)
        except BadSample as fault:
            raise ConfigError(f"{config.ratings}: {place[0]} step {place[1]}: {fault}") from None
        past = [builder.as_taught(step) for step in at.past]
        shown = builder.choose(at.task, at.first_image)
        messages, images = builder.layout(at.goal, past, at.image, at.step.marks, shown)
        chats.append(with_response(messages, response))
        pictures.append(images)
    return dict(zip(given, model.score(chats, pictures), strict=True)), given


def main(argv: Sequence[str] | None = None) -> int:
    text = "Compare a reward model with people's ratings."
    parser = config_help.parser("training.compare_raters", text, RatersConfig)
    parser.add_argument("--out", help="where summary.json goes; default $SLIPWAY_OUTPUTS/results")
    given = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(given.config), RatersConfig)
        print(table(compare(config, configuration.output_folder(given.out, "results"))), flush=True)
        return 0

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
