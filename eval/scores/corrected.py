"""The rate behind one that a judge with known errors has measured.

W. Rogan and B. Gladen (1978), Estimating prevalence from the results of a screening test, American Journal of
Epidemiology 107, 71-76; the interval, which takes the errors as measured too: Z. Lang and J. Reiczigel (2014),
Confidence limits for prevalence of disease adjusted for estimated sensitivity and specificity, Preventive Veterinary
Medicine 113, 13-22. Its numbers of observations are here numbers of clusters, as instances of one template are not
independent: the interval is too wide rather than too narrow.
"""

from __future__ import annotations

import math

from eval.scores.stats import Z95, Estimate


def rogan_gladen(raw: Estimate, sensitivity: Estimate, specificity: Estimate) -> Estimate | None:
    """The corrected rate with its 95 % interval; None for a judge that says yes as often where it is wrong as where it
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
