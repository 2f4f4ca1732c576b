"""Sets of shower files: what they hold, and whether two of them can be compared."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from calopipe.errors import InputError
from calopipe.events.tolerance import CORRECT_OR_SKIP, SKIP, STOP
from calopipe.labels import PARTICLE, PHI, LabelRange
from calopipe.progress import progress_bar, say
from calopipe.showers.cells import FloatArray, Geometry
from calopipe.showers.files import Examined, ShowerFile, open_all
from calopipe.showers.selection import Selection
from calopipe.storage import Location
from validation.measure.edges import wide
from validation.measure.table import Labels, Rows, Table, selected

logger = logging.getLogger(__name__)

_LABEL_SIGNIFICANCE = 1e-6  # labels that differ by chance this seldom are another beam
_LABELS = (("energy_gev", "GeV", 1.0), ("theta_rad", "degrees", 180 / np.pi), (PHI, "degrees", 180 / np.pi))

_ENOUGH_LABELS = 100_000
_MOST = 0.5  # of the labels: where more agree, that not all do may be a mistake

COUNT = "count"  # of a candidate: corrupt showers are a finding

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ShowerSet:
    """Files and, of each, which events to read, (events,): those with good labels that may be in the split.

    Whether an event is in the split depends on its cells and is found when it is measured. Showers that are not above
    the selection's cut count as empty. A corrupt shower is an error if the selection's `bad_event` is "stop", left out
    if it is "skip", and counted if it is "count".
    """

    files: tuple[ShowerFile, ...]
    masks: tuple[npt.NDArray[np.bool_], ...]
    name: str
    selection: Selection

    @classmethod
    def open(cls, paths: Sequence[Location], name: str, selection: Selection) -> ShowerSet:
        """Check the files' headers and labels, and that any may be in the split. `name` is for errors and reports."""
        count = selection.bad_event == COUNT
        files = open_all(paths, replace(selection, bad_event=SKIP) if count else selection)
        for file in files if count else ():
            if file.label_flaws.any():
                flawed = file.flaw(int(np.argmax(file.label_flaws != 0)))
                raise InputError(f"{flawed}; correct it, or leave such showers out of the file")
        masks = [(file.label_flaws == 0) & selection.rule.may_hold(selection.split, file.path.name) for file in files]
        opened = cls(tuple(files), tuple(masks), name, selection)
        if not any(mask.any() for mask in masks):
            raise opened.nothing_left()
        return opened

    def parts(self, doing: str = "") -> Iterator[tuple[Examined, Mask, Mask]]:
        """Some showers at a time, which of them are kept, and which of the split are bad, (n,) each.

        Each cell is read once. Bad showers are kept where they count. InputError where the selection stops at one.
        A progress bar tells what is being done.
        """
        with progress_bar(f"{self.name}{doing}", len(self), "showers") as bar:
            for file, mask in zip(self.files, self.masks, strict=True):
                for part in file.examined(self.selection) if mask.any() else ():
                    may_count = mask[part.first : part.first + len(part)]
                    bar.update(int(may_count.sum()))
                    chosen = may_count & part.in_split
                    bad = chosen & (part.flaws != 0)
                    if self.selection.bad_event == STOP and bad.any():
                        raise InputError(f"{file.flaw(part.first + int(np.argmax(bad)))}; {CORRECT_OR_SKIP}")
                    yield part, chosen if self.selection.bad_event == COUNT else chosen & ~bad, bad

    def nothing_left(self) -> InputError:
        """The error of a set of which no shower is compared."""
        cut_gev = self.selection.cut_gev
        above = f" and above the cut of {cut_gev} GeV" if cut_gev else " and holds energy"
        return InputError(
            f"--split {self.selection.split}: none of the {sum(file.events for file in self.files)} showers of "
            f"{len(self.files)} {self.name} file(s) is in it{above}; give more files, another --split or, "
            "where cells are in another unit, --geometry file_unit_gev=..."
        )

    def __len__(self) -> int:
        """Showers that are read."""
        return sum(int(mask.sum()) for mask in self.masks)

    @property
    def geometry(self) -> Geometry:
        return self.files[0].geometry

    def labels(self, name: str) -> FloatArray:
        """The label `name` of every shower that is read, 0 where files have none."""
        of = [file.more.get(PHI, np.zeros(file.events)) if name == PHI else getattr(file, name) for file in self.files]
        return np.concatenate([values[mask] for values, mask in zip(of, self.masks, strict=True)], dtype=np.float32)

    def kinds(self) -> npt.NDArray[np.int32]:
        """The PDG code of every shower that is read, 0 where files have none."""
        of = [file.more.get(PARTICLE, np.zeros(file.events, np.int32)) for file in self.files]
        return np.concatenate([kinds[mask] for kinds, mask in zip(of, self.masks, strict=True)])

    def describe(self) -> list[dict[str, Any]]:
        """Each file's path, content and number of events, and how the model of generated showers was trained."""
        return [
            {"file": str(file.path), "sha256": file.sha256, "events": file.events}
            | ({"made_by": file.made_by} if file.made_by else {})
            for file in self.files
        ]


def require_one_detector(reference: ShowerSet, other: ShowerSet) -> None:
    """InputError unless both are of one detector, and stored in one unit."""
    expected, given = reference.geometry.to_json(), other.geometry.to_json()
    if different := [name for name in expected if expected[name] != given[name]]:
        name = different[0]
        raise InputError(
            f"{other.files[0].path}: {name} is {given[name]}, in the reference {reference.files[0].path} it is "
            f"{expected[name]}; compare showers of one detector, stored in one unit"
            + (", or give the --geometry, which the reference does not state" if reference.files[0].assumed else "")
        )


def require_comparable(reference: ShowerSet, candidate: ShowerSet) -> None:
    """InputError unless both are of one detector, and the candidate's labels lie in the reference's range."""
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
        # What n showers span falls short of the beam's range by about 1/n of it at either end.
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


def require_same_cut(generated: ShowerSet, cut_gev: float) -> None:
    """InputError where showers were generated for fewer of Monte Carlo's than the cut leaves."""
    for file in generated.files:
        if file.cut_gev > cut_gev:
            raise InputError(
                f"{file.path}: generated for showers above {file.cut_gev:g} GeV, compared are those above {cut_gev:g}; "
                f"give --cut-gev {file.cut_gev:g}"
            )


def pairing(reference: Table, candidate: ShowerSet) -> tuple[int, Rows]:
    """How many consecutive showers of the candidate have the labels of each of the reference, in order (0: unpaired),
    and the rows of the reference that are compared.

    A candidate may have been made for every shower of the reference, for those that are not empty, or for those of
    them that its model knows, which span what its own labels do. Sets whose labels are all alike are not paired.
    InputError: unpaired, with labels of another distribution, so of another beam.
    """
    labels = [candidate.labels(name) for name, _, _ in _LABELS]
    kinds = candidate.kinds()
    filled = selected(reference, ~reference.empty)
    forms = reference, filled, selected(filled, _spanned(filled, labels, kinds))
    for rows in forms:
        per_event = _partners([getattr(rows, name) for name, _, _ in _LABELS], labels)
        if per_event and np.array_equal(np.repeat(rows.particle, per_event), kinds):
            if len(rows) < len(filled):
                say(
                    f"{len(filled) - len(rows)} showers of Monte Carlo left out: the candidate has none of their labels"
                )
            return per_event, rows
    _require_same_mix(candidate, reference.particle, kinds)
    for (name, unit, scale), values in zip(_LABELS, labels, strict=True):
        expected = [_some(getattr(rows, name)) for rows in (reference, filled) if len(rows)]
        if all(stats.ks_2samp(known, _some(values), method="asymp").pvalue < _LABEL_SIGNIFICANCE for known in expected):
            raise InputError(
                f"{candidate.files[0].path}: its {name.partition('_')[0]} is distributed unlike the reference's (means "
                f"{values.mean() * scale:.4g} and {expected[0].mean() * scale:.4g} {unit}); compare sets of one beam, "
                "or give the reference the labels came from"
            )
    return 0, reference


def _require_same_mix(candidate: ShowerSet, expected: npt.NDArray[np.int32], given: npt.NDArray[np.int32]) -> None:
    """InputError where the shares of the kinds of particles differ by more than chance."""
    names = np.union1d(expected, given)
    counts = np.array([[np.count_nonzero(kinds == name) for name in names] for kinds in (expected, given)])
    if len(names) > 1 and stats.chi2_contingency(counts).pvalue < _LABEL_SIGNIFICANCE:
        usual, mix = (
            ", ".join(f"{share:.0%} {name}" for name, share in zip(names, count / count.sum(), strict=True))
            for count in counts
        )
        raise InputError(
            f"{candidate.files[0].path}: its particles are {mix}, those of the reference {usual}; compare sets of one "
            "beam, or give the reference the labels came from"
        )


def _spanned(rows: Rows, labels: Sequence[Labels], kinds: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Which rows are of a kind, and have labels within the span, of the candidate's, but for rounding, (N,)."""
    inside = np.isin(rows.particle, kinds)
    for (name, _, _), values in zip(_LABELS, labels, strict=True):
        known, room = getattr(rows, name), 1e-6 * np.abs(values).max()
        inside &= (known >= values.min() - room) & (known <= values.max() + room)
    return np.asarray(inside)


def _some(labels: Labels) -> Labels:
    """Enough of them to tell one beam from another, at random, since a set may repeat its labels."""
    if len(labels) <= _ENOUGH_LABELS:
        return labels
    return np.random.default_rng(0).choice(labels, _ENOUGH_LABELS, replace=False)


def _partners(known: Sequence[Labels], given: Sequence[Labels]) -> int:
    """Showers for each of the reference's events, 0 where labels differ by more than rounding or do not vary."""
    events = len(known[0])
    per_event, rest = divmod(len(given[0]), max(events, 1))
    if not events or rest or not per_event or all(np.ptp(values) == 0 for values in known):
        return 0
    alike = np.ones(len(given[0]), dtype=np.bool_)
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
