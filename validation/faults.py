"""Faults that no tolerance covers: any one of them rejects a candidate, whatever its averages say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from validation.table import Rows

SIGNIFICANCE = 1e-3  # of each test: one perfect candidate in a thousand may fail it
_LEAST_SLOPE = 0.1  # of Monte Carlo's own: what rises by less does not follow the energy


def bad_cells(count: int, first: str, total: int) -> dict[str, Any] | None:
    """Showers of the candidate with a cell that is not a number, infinite or negative; `first` tells of one."""
    if not count:
        return None
    return _failure("NaN or negative cells", count, f"{count:,} of {total:,} showers; the first is {first}")


def repeated(candidate: npt.NDArray[np.uint64]) -> dict[str, Any] | None:
    """The same shower twice in the candidate.

    From digests of showers that hold energy: two empty showers are alike, and counted elsewhere.
    """
    count = len(candidate) - len(np.unique(candidate))
    if not count:
        return None
    return _failure("The same shower twice", count, f"{count:,} of {len(candidate):,} showers repeat another")


def copied(reference: npt.NDArray[np.uint64], candidate: npt.NDArray[np.uint64]) -> dict[str, Any] | None:
    """Showers of the candidate that are Monte Carlo's own.

    A caution, not a failure: a file may well be compared with itself, to see that all agrees. But that says nothing of
    a generator, so that such a verdict is never "accepted".
    """
    count = int(np.isin(candidate, reference).sum())
    if not count:
        return None
    detail = f"{count:,} of {len(candidate):,} showers are the reference's own, cell for cell; compare with others"
    return _failure("Showers of the reference", count, detail)


def too_many_empty(reference: Rows, candidate: Rows) -> dict[str, Any] | None:
    """Showers without a hit, significantly more often than in Monte Carlo (Fisher's exact test)."""
    counts = [[int(table.empty.sum()), int((~table.empty).sum())] for table in (candidate, reference)]
    if stats.fisher_exact(counts, alternative="greater").pvalue >= SIGNIFICANCE:
        return None
    (found, _), (expected, _) = counts
    return _failure(
        "Empty showers", found,
        f"{found:,} of {len(candidate):,} showers have no hit, in Monte Carlo {expected:,} of {len(reference):,}",
    )  # fmt: skip


def no_rise_with_energy(reference: Rows, candidate: Rows) -> dict[str, Any] | None:
    """The slope of the visible energy against E is significantly not positive: below a tenth of Monte Carlo's.

    Not asked where all energies are alike, or where Monte Carlo's own slope is unknown.
    """
    (expected, error), (found, uncertainty) = _slope(reference), _slope(candidate)
    reach = float(stats.norm.isf(SIGNIFICANCE))
    if not expected > reach * error or not found + reach * uncertainty < _LEAST_SLOPE * expected:
        return None
    return _failure(
        "Visible energy does not rise with E", len(candidate),
        f"slope {found:.3g} ± {uncertainty:.2g}, Monte Carlo {expected:.3g} ± {error:.2g}",
    )  # fmt: skip


def _slope(rows: Rows) -> tuple[float, float]:
    """Least squares of the visible energy on E, with its standard error; NaN where E does not vary."""
    energy = rows.energy_gev.astype(np.float64)
    visible = np.concatenate([piece.column("visible_gev") for piece in rows.pieces()])
    if len(energy) < 10 or np.ptp(energy) <= 1e-3 * energy.mean():
        return math.nan, math.nan
    fit = stats.linregress(energy, visible)
    return float(fit.slope), float(fit.stderr)


def _failure(name: str, count: int, detail: str) -> dict[str, Any]:
    return {"name": name, "count": count, "detail": detail}
