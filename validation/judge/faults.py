"""Faults that no tolerance covers: any one of them rejects a candidate, whatever its averages say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from validation.measure.edges import HIT_GEV
from validation.measure.observables import Observables
from validation.measure.sets import Rows

Findings = list[dict[str, Any]]  # as documents hold hard failures and cautions

SIGNIFICANCE = 1e-3  # of each test: one perfect candidate in a thousand may fail it
_LEAST_SLOPE = 0.1  # of Monte Carlo's own: what rises by less does not follow the energy


def bad_cells(count: int, first: str, total: int) -> Findings:
    """Showers of the candidate with a cell that is not a number, infinite or negative; `first` says where one is."""
    detail = f"{count:,} of {total:,} showers, the cells taken as zero below; the first is {first}"
    return finding("NaN or negative cells", count, detail)


def repeated(showers: npt.NDArray[np.uint64], what: str = "The same shower twice") -> Findings:
    """The same shower twice in a set, by digests of showers with energy.

    A caution of Monte Carlo, whose errors are then larger than they look; `repeated_more` is the failure.
    """
    count = _repeats(showers)
    return finding(what, count, f"{count:,} of {len(showers):,} showers repeat another")


def repeated_more(reference: npt.NDArray[np.uint64], candidate: npt.NDArray[np.uint64]) -> Findings:
    """The same shower twice in the candidate. Where that is so in Monte Carlo too, as in a calorimeter of a few cells
    that are read out in steps: significantly more often, of as many showers of both (Fisher's exact test).
    """
    showers = min(len(reference), len(candidate))
    own, expected = (_repeats(digests[:showers]) for digests in (candidate, reference))
    counts = [[own, showers - own], [expected, showers - expected]]
    if expected and stats.fisher_exact(counts, alternative="greater").pvalue >= SIGNIFICANCE:
        return []
    return repeated(candidate)


def _repeats(showers: npt.NDArray[np.uint64]) -> int:
    return len(showers) - len(np.unique(showers))


def copied(showers: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64], what: str) -> Findings:
    """Showers that are among `other`, cell for cell; `what` says which are among which.

    A caution, not a failure: to compare a file with itself is a useful check, but says nothing of a generator.
    """
    count = int(np.isin(showers, other).sum())
    return finding(what, count, f"{count:,} of {len(showers):,} showers, cell for cell; compare with others")


def too_many_empty(reference: Rows, candidate: Rows) -> Findings:
    """Showers without a hit, or that deposit no more than the cut, significantly more often than in Monte Carlo
    (Fisher's exact test).
    """
    counts = [[int(table.empty.sum()), int((~table.empty).sum())] for table in (candidate, reference)]
    if stats.fisher_exact(counts, alternative="greater").pvalue >= SIGNIFICANCE:
        return []
    (empty, _), (expected, _) = counts
    return finding(
        "Empty showers",
        empty,
        f"{empty:,} of {len(candidate):,} showers have no hit or deposit no more than the cut, in Monte Carlo "
        f"{expected:,} of {len(reference):,}",
    )


def mostly_empty(reference: Rows) -> Findings:
    """More than half of Monte Carlo's showers are left out, so that the verdict is about a few large ones.

    Deposits in a gas are that small, and those of a file that is read in a unit too small.
    """
    count = int(reference.empty.sum())
    return finding(
        "Most of Monte Carlo is empty",
        count if 2 * count > len(reference) else 0,
        f"{count:,} of {len(reference):,} showers have no hit of {1e3 * HIT_GEV:g} MeV, or no more than the cut, "
        "and are left out: is their unit right, are cells calibrated (--geometry file_unit_gev=...)?",
    )


def no_rise_with_energy(reference: Observables, candidate: Observables) -> Findings:
    """The slope of the visible energy against E is significantly below a tenth of Monte Carlo's.

    Not asked where all energies are alike, or where Monte Carlo's own slope is unknown.
    """
    (expected, error), (slope, uncertainty) = _slope(reference), _slope(candidate)
    reach = float(stats.norm.isf(SIGNIFICANCE))
    if not expected > reach * error or not slope + reach * uncertainty < _LEAST_SLOPE * expected:
        return []
    return finding(
        "Visible energy does not rise with E",
        len(candidate),
        f"slope {slope:.3g} ± {uncertainty:.2g}, Monte Carlo {expected:.3g} ± {error:.2g}",
    )


def _slope(table: Observables) -> tuple[float, float]:
    """Least squares of the visible energy on E, with its standard error; NaN where E does not vary."""
    energy = table.energy_gev
    if len(table) < 10 or np.ptp(energy) <= 1e-3 * energy.mean():
        return math.nan, math.nan
    line = stats.linregress(energy, table.column("visible_gev"))
    return float(line.slope), float(line.stderr)


def finding(name: str, count: int, detail: str) -> Findings:
    """One, or none where it counts nothing."""
    return [{"name": name, "count": count, "detail": detail}] if count else []
