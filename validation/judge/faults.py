"""Faults that no tolerance covers: one hard failure rejects a candidate, and a caution prevents its acceptance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from calopipe.events.splits import Digests
from calopipe.showers.cells import HIT_GEV
from validation.measure.observables import Observables
from validation.measure.sets import Rows

Findings = list[dict[str, Any]]  # hard failures or cautions, as in documents

SIGNIFICANCE = 1e-3  # of each test: one perfect candidate in a thousand may fail the test
_LEAST_SLOPE = 0.1  # of Monte Carlo's slope: a candidate with a smaller slope does not follow the energy


def bad_cells(count: int, first: str, total: int) -> Findings:
    """Showers of the candidate with a cell that is NaN, infinite or negative; `first` names the first such shower."""
    detail = f"{count:,} of {total:,} showers, the cells taken as zero below; the first is {first}"
    return finding("NaN or negative cells", count, detail)


def repeated(showers: Digests, what: str = "The same shower twice") -> Findings:
    """The same shower twice in a set, by the digests of showers with energy.

    In Monte Carlo this is a caution: its errors are then larger than they look. `repeated_more` is the hard failure.
    """
    count = _repeats(showers)
    return finding(what, count, f"{count:,} of {len(showers):,} showers repeat another")


def repeated_more(reference: Digests, candidate: Digests) -> Findings:
    """The same shower twice in the candidate. Monte Carlo may repeat showers too, for example in a calorimeter of a few
    cells that are read out in steps. Then only significantly more repeats count, by Fisher's exact test on as many
    showers of both sets.
    """
    showers = min(len(reference), len(candidate))
    own, expected = (_repeats(digests[:showers]) for digests in (candidate, reference))
    counts = [[own, showers - own], [expected, showers - expected]]
    if expected and stats.fisher_exact(counts, alternative="greater").pvalue >= SIGNIFICANCE:
        return []
    return repeated(candidate)


def _repeats(showers: Digests) -> int:
    return len(showers) - len(np.unique(showers))


def copied(showers: Digests, other: Digests, what: str) -> Findings:
    """Showers that are also in `other`, cell for cell; `what` is the name of the finding.

    This is a caution, not a failure: to compare a file with itself is a useful check, but no test of a generator.
    """
    count = int(np.isin(showers, other).sum())
    return finding(what, count, f"{count:,} of {len(showers):,} showers, cell for cell; compare with others")


def too_many_empty(reference: Rows, candidate: Rows) -> Findings:
    """Significantly more empty showers than in Monte Carlo, by Fisher's exact test. A shower is empty if it has no hit,
    or deposits no more than the cut.
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
    """More than half of Monte Carlo's showers are empty and left out: the verdict is then about a few large showers.

    Possible causes: deposits in a gas are small, or a file is read in a unit that is too small.
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

    There is no such test if all energies are alike, or if Monte Carlo's own slope is unknown.
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
    """The slope of the visible energy against E by least squares, and its standard error; NaN if E does not vary."""
    energy = table.energy_gev
    if len(table) < 10 or np.ptp(energy) <= 1e-3 * energy.mean():
        return math.nan, math.nan
    line = stats.linregress(energy, table.column("visible_gev"))
    return float(line.slope), float(line.stderr)


def finding(name: str, count: int, detail: str) -> Findings:
    """A list of one finding; an empty list if `count` is 0."""
    return [{"name": name, "count": count, "detail": detail}] if count else []
