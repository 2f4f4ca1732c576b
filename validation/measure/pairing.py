"""Whether two sets of showers can be compared, and which of their showers are compared, by headers and labels only."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt
from scipy import stats

from calopipe.errors import InputError
from calopipe.labels import PHI, LabelRange
from calopipe.progress import say
from calopipe.showers.cells import Mask
from calopipe.storage import Location
from validation.measure.edges import wide
from validation.measure.sets import Labels, Rows, ShowerSet, Table, selected

logger = logging.getLogger(__name__)

_LABELS = (("energy_gev", "GeV", 1.0), ("theta_rad", "degrees", 180 / np.pi), (PHI, "degrees", 180 / np.pi))
_LABEL_SIGNIFICANCE = 1e-6  # labels whose difference is less probable than this are of another beam
_ENOUGH_LABELS = 100_000
_MOST = 0.5  # if more than this share of the labels agree, but not all, there is a warning of a possible mistake


def require_one_detector(reference: ShowerSet, other: ShowerSet) -> None:
    """Raise InputError unless both sets are of one detector, and stored in one unit."""
    if differs := other.geometry.difference(reference.geometry, unit=True):
        name, given, expected = differs
        raise InputError(
            f"{other.files[0].path}: {name} is {given}, in the reference {reference.files[0].path} it is "
            f"{expected}; compare showers of one detector, stored in one unit"
            + (", or give the --geometry, which the reference does not state" if reference.files[0].assumed else "")
        )


def require_comparable(reference: ShowerSet, candidate: ShowerSet) -> None:
    """Raise InputError unless both sets are of one detector, the candidate's labels in the reference's range, and its
    showers generated with no higher cut than the reference is read with.
    """
    require_one_detector(reference, candidate)
    expected, labels = (
        LabelRange.joined(LabelRange.of(file.more) for file in showers.files) for showers in (reference, candidate)
    )
    if differs := labels.difference(expected):
        raise InputError(
            f"{candidate.files[0].path}: its showers have {differs[0]}, those of the reference {differs[1]}; compare "
            "sets of one beam"
        )
    for label, unit, scale in _LABELS:
        known, given = reference.labels(label) * scale, candidate.labels(label) * scale
        low, high = float(known.min()), float(known.max())
        # The range of n showers is shorter than the beam's range, by about 1/n of that range at either end.
        share = 0.02 + 10 / len(known)
        if label == "energy_gev" and wide(known):
            factor = (high / low) ** share * 1.001
            outside = given[(given < low / factor) | (given > high * factor)]
        else:
            margin = (high - low) * share + 1e-3 * abs(high)
            outside = given[(given < low - margin) | (given > high + margin)]
        if len(outside):
            raise InputError(
                f"{candidate.files[0].path}: {len(outside)} of {len(given)} showers have {label.partition('_')[0]} "
                f"outside the reference's {low:.4g} to {high:.4g} {unit}, such as {outside[0]:.4g}; compare sets of "
                "one beam"
            )
    cut_gev = reference.selection.cut_gev
    for file in candidate.files:
        if file.cut_gev > cut_gev:
            raise InputError(
                f"{file.path}: generated for showers above {file.cut_gev:g} GeV, compared are those above {cut_gev:g}; "
                f"give --cut-gev {file.cut_gev:g}"
            )


def pairing(reference: Table, candidate: Table, path: Location) -> tuple[int, Rows]:
    """The number of consecutive showers of the candidate that have the labels of each shower of the reference, in order
    (0: unpaired), and the rows of the reference that are compared. `path` is the candidate's in an error.

    A candidate may have been made for every shower of the reference, for the showers that are not empty, or for those
    of them with labels that its model knows, which are in the span of the candidate's labels. Sets with labels that are
    all alike are not paired. InputError: unpaired, and with another distribution of labels, so of another beam.
    """
    filled = selected(reference, ~reference.empty)
    forms = reference, filled, selected(filled, _spanned(filled, candidate))
    for rows in forms:
        per_event = _partners(rows, candidate)
        if per_event and np.array_equal(np.repeat(rows.particle, per_event), candidate.particle):
            if len(rows) < len(filled):
                say(f"{len(filled) - len(rows)} showers of Monte Carlo left out: {path} has none of their labels")
            return per_event, rows
    _require_same_mix(reference.particle, candidate.particle, path)
    for name, unit, scale in _LABELS:
        values: Labels = getattr(candidate, name)
        expected = [_some(getattr(rows, name)) for rows in (reference, filled) if len(rows)]
        if all(stats.ks_2samp(known, _some(values), method="asymp").pvalue < _LABEL_SIGNIFICANCE for known in expected):
            raise InputError(
                f"{path}: its {name.partition('_')[0]} is distributed unlike the reference's (means "
                f"{values.mean() * scale:.4g} and {expected[0].mean() * scale:.4g} {unit}); compare sets of one beam, "
                "or give the reference the labels came from"
            )
    return 0, reference


def _require_same_mix(expected: npt.NDArray[np.int32], given: npt.NDArray[np.int32], path: Location) -> None:
    """Raise InputError if the shares of the kinds of particles differ by more than chance allows."""
    names = np.union1d(expected, given)
    counts = np.array([[np.count_nonzero(kinds == name) for name in names] for kinds in (expected, given)])
    if len(names) > 1 and stats.chi2_contingency(counts).pvalue < _LABEL_SIGNIFICANCE:
        usual, mix = (
            ", ".join(f"{share:.0%} {name}" for name, share in zip(names, count / count.sum(), strict=True))
            for count in counts
        )
        raise InputError(
            f"{path}: its particles are {mix}, those of the reference {usual}; compare sets of one "
            "beam, or give the reference the labels came from"
        )


def _spanned(rows: Rows, candidate: Table) -> Mask:
    """Which rows are of a kind, and have labels in the span, that the candidate has, up to rounding, (N,)."""
    inside = np.isin(rows.particle, candidate.particle)
    for name, _, _ in _LABELS:
        known, values = getattr(rows, name), getattr(candidate, name)
        room = 1e-6 * np.abs(values).max()
        inside &= (known >= values.min() - room) & (known <= values.max() + room)
    return np.asarray(inside)


def _some(labels: Labels) -> Labels:
    """Enough labels to tell one beam from another. They are drawn at random, since a set may repeat its labels."""
    if len(labels) <= _ENOUGH_LABELS:
        return labels
    return np.random.default_rng(0).choice(labels, _ENOUGH_LABELS, replace=False)


def _partners(reference: Rows, candidate: Table) -> int:
    """The candidate's showers for each event of the reference; 0 if labels differ beyond rounding, or do not vary."""
    known, given = ([getattr(rows, name) for name, _, _ in _LABELS] for rows in (reference, candidate))
    per_event, rest = divmod(len(candidate), max(len(reference), 1))
    if not len(reference) or rest or not per_event or all(np.ptp(values) == 0 for values in known):
        return 0
    alike = np.ones(len(candidate), dtype=np.bool_)
    for expected, values in zip(known, given, strict=True):
        alike &= np.isclose(np.repeat(expected, per_event), values, rtol=1e-5, atol=0)
    if alike.mean() > _MOST and not alike.all():
        logger.warning(
            "compared as unpaired: of %d showers, %d have not the energy and angle of their partner, the first of "
            "these is %d",
            len(alike),
            int((~alike).sum()),
            int(np.argmin(alike)),
        )
    return per_event if alike.all() else 0
