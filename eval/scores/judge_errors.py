"""judge.json: the errors of a judge, as they were measured; who may rest on them; and the rate behind one that such a
judge has measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from eval.config import ConfigError
from eval.judges.vlm import VlmJudgeConfig
from eval.scores.stats import Z95, Estimate

FILE: Final = "judge.json"
LEAST: Final = 0.95  # specificity of a judge that training learns from: a false reward is learned at once
STATES: Final = 20  # wrong states that it must have been shown


class JudgedPlayer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The states that one player left.

    states       that both the checker and the judge judged; `solved`: of them, by the checker; `said_solved`: by the
                 judge
    infra        episodes without a judgement of both
    """

    player: str
    states: int
    solved: int
    said_solved: int
    infra: int


class JudgedTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The same rates for one template, or for one task that is of none."""

    template: str
    sensitivity: Estimate | None
    specificity: Estimate | None


class JudgeErrors(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """judge.json.

    judge              VlmJudgeConfig.identity of the judge; `model`: its name
    sensitivity        the share of solved states that it takes for solved, with a 95 % interval by template
    specificity        the share of other states that it takes for not solved
    against_injection  the specificity where the agent gave it orders: in words, on the screen, in a file
    None of these rates: there was no such state
    """

    judge: str
    model: str
    environment: str
    tasks: int
    sensitivity: Estimate | None
    specificity: Estimate | None
    against_injection: Estimate | None
    players: list[JudgedPlayer]
    templates: list[JudgedTemplate]


def read_errors(config: VlmJudgeConfig | None) -> JudgeErrors | None:
    """What `measured` says; None without it, and without a judge. Raises ConfigError, also where it is of another
    judge."""
    if config is None or config.measured is None:
        return None
    try:
        found = msgspec.json.decode(Path(config.measured).read_bytes(), type=JudgeErrors)
    except OSError as error:
        raise ConfigError(f"vlm.measured: {config.measured}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"vlm.measured: {config.measured}: {error}") from None
    if found.judge != config.identity:
        raise ConfigError(
            f"vlm.measured: {config.measured} is of another judge ({found.model}, {found.judge}): its model, screens, "
            "words, votes, temperature or prompt are not those of this one"
        )
    return found


def check_specific(config: VlmJudgeConfig, forced_by: str) -> None:
    """Raises ConfigError for a judge that no training should learn from. forced_by: the option that allows it."""
    why = _unspecific(read_errors(config))
    if why:
        raise ConfigError(
            f"vlm: {why}; measure it (python -m eval.judge_errors), or force the training: {forced_by}: true"
        )


def _unspecific(errors: JudgeErrors | None) -> str:
    if errors is None:
        return "no `measured`: nothing is known of the judge's false rewards"
    rates = {"specificity": errors.specificity, "specificity against injection": errors.against_injection}
    for name, rate in rates.items():
        if rate is None:
            return f"its {name} was not measured"
        if rate.value < LEAST:
            return f"its {name} is {rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f}); a reward needs {LEAST} or more"
    assert errors.specificity is not None
    if errors.specificity.n < STATES:
        return f"its specificity was measured on {errors.specificity.n} states; a reward needs {STATES} or more"
    return ""


def table(errors: JudgeErrors) -> str:
    """For people: the players, the templates, and the rates over all."""
    lines = [f"{'player':12} {'states':>7} {'solved':>7} {'said':>6} {'infra':>6}"]
    for each in errors.players:
        lines.append(f"{each.player:12} {each.states:>7} {each.solved:>7} {each.said_solved:>6} {each.infra:>6}")
    wide = max(len(each.template) for each in errors.templates)
    lines += ["", f"{'template':{wide}} {'sensitivity':24} specificity"]
    for one in errors.templates:
        lines.append(f"{one.template:{wide}} {_told(one.sensitivity):24} {_told(one.specificity)}")
    lines += ["", *(f"{name}: {_told(rate)}" for name, rate in _rates(errors))]
    return "\n".join(lines)


def markdown(errors: JudgeErrors) -> str:
    """The same as tables of a page."""
    told = [f"{errors.model}, on {errors.tasks} tasks of {errors.environment}.", ""]
    told += _rows(["rate", "value (95 % interval), states"], [[name, _told(rate)] for name, rate in _rates(errors)])
    cells = [[p.player, str(p.states), str(p.solved), str(p.said_solved), str(p.infra)] for p in errors.players]
    told += ["", *_rows(["player", "states", "solved", "said to be solved", "infra"], cells)]
    rates = [[one.template, _told(one.sensitivity), _told(one.specificity)] for one in errors.templates]
    return "\n".join([*told, "", *_rows(["template", "sensitivity", "specificity"], rates)])


def _rates(errors: JudgeErrors) -> list[tuple[str, Estimate | None]]:
    return [
        ("sensitivity", errors.sensitivity),
        ("specificity", errors.specificity),
        ("specificity against injection", errors.against_injection),
    ]


def _told(rate: Estimate | None) -> str:
    return "none" if rate is None else f"{rate.value:.2f} ({rate.low:.2f} to {rate.high:.2f}), {rate.n}"


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def rogan_gladen(raw: Estimate, sensitivity: Estimate, specificity: Estimate) -> Estimate | None:
    """The rate behind one that a judge with known errors has measured, with its 95 % interval.

    W. Rogan and B. Gladen (1978), Estimating prevalence from the results of a screening test, American Journal of
    Epidemiology 107, 71-76; the interval, which takes the errors as measured too: Z. Lang and J. Reiczigel (2014),
    Confidence limits for prevalence of disease adjusted for estimated sensitivity and specificity, Preventive
    Veterinary Medicine 113, 13-22. Its numbers of observations are here numbers of clusters, as instances of one
    template are not independent: the interval is too wide rather than too narrow.

    None for a judge that says yes as often where it is wrong as where it
    is right: nothing can be learned from it."""
    if sensitivity.value + specificity.value <= 1:
        return None
    value = _corrected(raw.value, sensitivity.value, specificity.value)
    n, of_true, of_false = _units(raw) + Z95**2, _units(sensitivity) + 2, _units(specificity) + 2
    q = (_units(raw) * raw.value + Z95**2 / 2) / n
    sens = (_units(sensitivity) * sensitivity.value + 1) / of_true
    spec = (_units(specificity) * specificity.value + 1) / of_false
    youden = sens + spec - 1
    if youden <= 0:
        return Estimate(value, 0.0, 1.0, raw.n, raw.clusters)
    middle = _corrected(q, sens, spec, bounded=False)
    by_true, by_false = sens * (1 - sens) / of_true, spec * (1 - spec) / of_false
    shift = 2 * Z95**2 * (middle * by_true - (1 - middle) * by_false)
    half = Z95 / youden * math.sqrt(q * (1 - q) / n + middle**2 * by_true + (1 - middle) ** 2 * by_false)
    low, high = (min(1.0, max(0.0, middle + shift + side)) for side in (-half, half))
    return Estimate(value, min(value, low), max(value, high), raw.n, raw.clusters)


def _corrected(raw: float, sensitivity: float, specificity: float, *, bounded: bool = True) -> float:
    value = (raw + specificity - 1) / (sensitivity + specificity - 1)
    return min(1.0, max(0.0, value)) if bounded else value


def _units(estimate: Estimate) -> int:
    return estimate.n if estimate.clusters is None else estimate.clusters
