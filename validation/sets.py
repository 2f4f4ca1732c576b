"""Sets of shower files: what they hold, and whether two of them can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from preprocessing.errors import InputError
from preprocessing.flaws import STOP
from preprocessing.layouts import ShowerFile, open_all
from preprocessing.showers import FloatArray, Geometry
from preprocessing.splits import ALL, SplitRule
from preprocessing.storage import Location
from validation.table import Rows

_LABEL_SIGNIFICANCE = 1e-6  # labels that differ by chance this seldom are another beam
_LABELS = (("energy_gev", "GeV", 1.0), ("theta_rad", "degrees", 180 / np.pi))

COUNT = "count"  # of a candidate: corrupt showers are a finding


@dataclass(frozen=True)
class ShowerSet:
    """Files and, of each, which events are in the split, (events,).

    Showers that deposit `cut_gev` or less are left out when they are read. A corrupt shower is an error where
    `bad_event` is "stop", left out where it is "skip", and counted where it is "count".
    """

    files: tuple[ShowerFile, ...]
    masks: tuple[npt.NDArray[np.bool_], ...]
    name: str
    split: str
    cut_gev: float | None = None
    bad_event: str = STOP

    @classmethod
    def open(
        cls,
        paths: Sequence[Location],
        name: str,
        *,
        split: str = ALL,
        rule: SplitRule | None = None,
        geometry: str = "",
        cut_gev: float | None = None,
        bad_event: str = STOP,
    ) -> ShowerSet:
        """Check the files' headers and labels, and that `split` has any events. `name` is for errors and reports."""
        files = open_all(paths, geometry, STOP if bad_event == COUNT else bad_event)
        masks = [np.ones(file.events, dtype=np.bool_) for file in files]
        if split != ALL:
            chosen = rule or SplitRule()
            masks = [chosen.mask(split, file.path.name, file.sha256, range(file.events)) for file in files]
        opened = cls(tuple(files), tuple(masks), name, split, cut_gev, bad_event)
        if not any(mask.any() for mask in masks):
            raise opened.nothing_left()
        return opened

    def nothing_left(self) -> InputError:
        """The error of a set of which no shower is compared."""
        above = "" if self.cut_gev is None else f" and above the cut of {self.cut_gev} GeV"
        return InputError(
            f"--split {self.split}: none of the {sum(file.events for file in self.files)} showers of "
            f"{len(self.files)} {self.name} file(s) is in it{above}; give more files, another --split or, "
            "where cells are in another unit, --geometry file_unit_gev=..."
        )

    def __len__(self) -> int:
        """Showers in the split, before any is left out."""
        return sum(int(mask.sum()) for mask in self.masks)

    @property
    def geometry(self) -> Geometry:
        return self.files[0].geometry

    def labels(self, name: str) -> FloatArray:
        """The label `name` of every shower in the split."""
        return np.concatenate(
            [getattr(file, name)[mask] for file, mask in zip(self.files, self.masks, strict=True)], dtype=np.float32
        )

    def describe(self) -> list[dict[str, Any]]:
        """Each file's path, content and number of events in the split."""
        return [
            {"file": str(file.path), "sha256": file.sha256, "events": int(mask.sum())}
            for file, mask in zip(self.files, self.masks, strict=True)
        ]


def require_one_detector(reference: ShowerSet, other: ShowerSet) -> None:
    """InputError unless both are of one detector, and stored in one unit."""
    expected, found = reference.geometry.to_json(), other.geometry.to_json()
    if different := [name for name in expected if expected[name] != found[name]]:
        name = different[0]
        raise InputError(
            f"{other.files[0].path}: {name} is {found[name]}, in the reference {reference.files[0].path} it is "
            f"{expected[name]}; compare showers of one detector, stored in one unit"
        )


def require_comparable(reference: ShowerSet, candidate: ShowerSet) -> None:
    """InputError unless both are of one detector, and the candidate's labels lie in the reference's range."""
    require_one_detector(reference, candidate)
    for label, unit, scale in _LABELS:
        ours, theirs = reference.labels(label) * scale, candidate.labels(label) * scale
        low, high = float(ours.min()), float(ours.max())
        # What n showers span falls short of the beam's range by about 1/n of it at either end.
        margin = (high - low) * (0.02 + 10 / len(ours)) + 1e-3 * high
        outside = theirs[(theirs < low - margin) | (theirs > high + margin)]
        if len(outside):
            raise InputError(
                f"{candidate.files[0].path}: {len(outside)} of {len(theirs)} showers have {label.partition('_')[0]} "
                f"outside the reference's {low:.4g} to {high:.4g} {unit}, such as {outside[0]:.4g}; compare sets of "
                "one beam"
            )


def showers_per_event(reference: Rows, candidate: ShowerSet) -> int:
    """How many showers in a row of the candidate carry the labels of each of the reference, in order; 0: unpaired.

    InputError: unpaired, and the labels are distributed differently, so that they are those of another beam.
    """
    per_event, rest = divmod(len(candidate), len(reference))
    labels = [(getattr(reference, name), candidate.labels(name)) for name, _, _ in _LABELS]
    if not rest and all(np.array_equal(np.repeat(ours, per_event), theirs) for ours, theirs in labels):
        return per_event
    for (name, unit, scale), (ours, theirs) in zip(_LABELS, labels, strict=True):
        if stats.ks_2samp(ours, theirs, method="asymp").pvalue < _LABEL_SIGNIFICANCE:
            raise InputError(
                f"{candidate.files[0].path}: its {name.partition('_')[0]} is distributed unlike the reference's (means "
                f"{theirs.mean() * scale:.4g} and {ours.mean() * scale:.4g} {unit}); compare sets of one beam, or give "
                "the reference the labels came from"
            )
    return 0
