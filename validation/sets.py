"""Two sets of shower files: what they hold, whether they can be compared, and their observables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from preprocessing.errors import InputError
from preprocessing.flaws import STOP, flaws_of_hits
from preprocessing.hits import Hits
from preprocessing.layouts import ShowerFile, open_all
from preprocessing.progress import progress_bar
from preprocessing.showers import FloatArray, Geometry
from preprocessing.splits import ALL, SplitRule
from preprocessing.storage import Location
from validation.faults import digests
from validation.observables import Observables, observe

_GALLERY = 20  # showers of each set of which pictures are kept, to find two of much the same energy and angle
_LABEL_SIGNIFICANCE = 1e-6  # labels that differ by chance this seldom are another beam


@dataclass(frozen=True)
class Picture:
    """One shower as seen from two sides, in GeV: `side` (y, layer) and `front` (x, y)."""

    energy_gev: float
    theta_rad: float
    side: FloatArray
    front: FloatArray


@dataclass(frozen=True)
class ShowerSet:
    """Files and, of each, which events are compared; the labels of all of these, in order."""

    files: tuple[ShowerFile, ...]
    masks: tuple[npt.NDArray[np.bool_], ...]
    energy_gev: FloatArray
    theta_rad: FloatArray

    @classmethod
    def open(
        cls,
        paths: Sequence[Location],
        *,
        split: str = ALL,
        rule: SplitRule,
        geometry: str,
        cut_gev: float | None = None,
        bad_event: str = STOP,
    ) -> ShowerSet:
        """Check the files' headers and labels, and that `split` has any events above the cut.

        Corrupt events are left out where `bad_event` is "skip".
        """
        files = open_all(paths, geometry, bad_event)
        masks = [file.mask(split, rule, cut_gev, bad_event) for file in files]
        if not any(mask.any() for mask in masks):
            raise InputError(
                f"--split {split}: none of the {sum(file.events for file in files)} showers of {len(files)} reference "
                f"file(s) is in it and above the cut of {cut_gev} GeV; give more files or another --split"
            )
        labels = [
            np.concatenate([getattr(file, name)[mask] for file, mask in zip(files, masks, strict=True)])
            for name in ("energy_gev", "theta_rad")
        ]
        return cls(tuple(files), tuple(masks), *labels)

    def __len__(self) -> int:
        return len(self.energy_gev)

    @property
    def geometry(self) -> Geometry:
        return self.files[0].geometry

    def describe(self) -> list[dict[str, Any]]:
        """Each file's path, content and number of events compared, for the verdict."""
        return [
            {"file": str(file.path), "sha256": file.sha256, "events": int(mask.sum())}
            for file, mask in zip(self.files, self.masks, strict=True)
        ]


@dataclass(frozen=True)
class Measured:
    """What one pass over a set leaves: its table, and what the hard failures and the pictures need.

    `digests` are those of showers that hold energy; `bad_events` counts showers from the start of the set.
    """

    observables: Observables
    digests: npt.NDArray[np.uint64]
    bad_events: npt.NDArray[np.intp]
    first_bad: str
    gallery: tuple[Picture, ...]


def measure_set(showers: ShowerSet, *, tolerate_bad_cells: bool) -> Measured:
    """Read a set once, batch by batch.

    A cell that is not a finite number of zero or more is an InputError in the reference; in a candidate
    (`tolerate_bad_cells`) it is a finding: the shower is counted, and the cell taken as zero in all that follows.
    """
    parts: list[Observables] = []
    hashes: list[npt.NDArray[np.uint64]] = []
    bad_events: list[npt.NDArray[np.intp]] = []
    gallery: list[Picture] = []
    seen, first_bad = 0, ""
    with progress_bar("candidate" if tolerate_bad_cells else "Monte Carlo", len(showers), "showers") as bar:
        for file, mask in zip(showers.files, showers.masks, strict=True):
            for events, stored in file.batches(mask):
                bad = flaws_of_hits(Hits.of(stored)) != 0
                if bad.any():
                    first = int(events[np.argmax(bad)])
                    if not tolerate_bad_cells:
                        file.read(first, first + 1)  # raises, and says which cells
                    first_bad = first_bad or f"event {first} of {file.path.name}"
                    bad_events.append(seen + np.flatnonzero(bad))
                cells = np.where(np.isfinite(stored) & (stored >= 0), stored, 0) if bad.any() else stored
                labels = file.energy_gev[events], file.theta_rad[events]
                table = observe(cells, *labels, showers.geometry)
                parts.append(table)
                hashes.append(digests(cells)[table.column("visible_gev") > 0])
                if len(gallery) < _GALLERY:
                    gallery += _pictures(cells, table, showers.geometry)
                seen += len(events)
                bar.update(len(events))
    return Measured(
        observables=Observables.joined(parts),
        digests=np.concatenate(hashes),
        bad_events=np.concatenate([np.empty(0, dtype=np.intp), *bad_events]),
        first_bad=first_bad,
        gallery=tuple(gallery[:_GALLERY]),
    )


def showers_per_event(reference: ShowerSet, candidate: ShowerSet) -> int:
    """How many showers in a row of the candidate carry the labels of each of the reference, in order; 0: unpaired.

    Unpaired sets must come from the same beam: labels that differ in range or distribution are an InputError.
    """
    _same_geometry(reference, candidate)
    per_event, rest = divmod(len(candidate), len(reference))
    if not rest and all(
        np.array_equal(np.repeat(getattr(reference, name), per_event), getattr(candidate, name))
        for name in ("energy_gev", "theta_rad")
    ):
        return per_event
    for name, unit, scale in (("energy_gev", "GeV", 1.0), ("theta_rad", "degrees", 180 / np.pi)):
        ours, theirs = (getattr(showers, name).astype(np.float64) * scale for showers in (reference, candidate))
        low, high = float(ours.min()), float(ours.max())
        # What n showers span falls short of the beam's range by about 1/n of it at either end.
        margin = (high - low) * (0.02 + 10 / len(ours)) + 1e-3 * high
        where, quantity = candidate.files[0].path, name.partition("_")[0]
        outside = theirs[(theirs < low - margin) | (theirs > high + margin)]
        if len(outside):
            raise InputError(
                f"{where}: {len(outside)} of {len(theirs)} showers have {quantity} outside the reference's {low:.4g} "
                f"to {high:.4g} {unit}, such as {outside[0]:.4g}; compare sets of one beam"
            )
        if stats.ks_2samp(ours, theirs, method="asymp").pvalue < _LABEL_SIGNIFICANCE:
            raise InputError(
                f"{where}: its {quantity} is distributed unlike the reference's (means {theirs.mean():.4g} and "
                f"{ours.mean():.4g} {unit}); compare sets of one beam, or give the reference the labels came from"
            )
    return 0


def _same_geometry(reference: ShowerSet, candidate: ShowerSet) -> None:
    expected, found = reference.geometry.to_json(), candidate.geometry.to_json()
    if different := [name for name in expected if expected[name] != found[name]]:
        name = different[0]
        raise InputError(
            f"{candidate.files[0].path}: {name} is {found[name]}, in the reference {reference.files[0].path} it is "
            f"{expected[name]}; compare showers of one detector, stored in one unit"
        )


def _pictures(cells: FloatArray, table: Observables, geometry: Geometry) -> list[Picture]:
    filled = np.flatnonzero(~table.empty)[:_GALLERY]
    return [
        Picture(
            float(table.energy_gev[k]), float(table.theta_rad[k]),
            cells[k].sum(axis=0) * geometry.file_unit_gev, cells[k].sum(axis=2) * geometry.file_unit_gev,
        )
        for k in filled
    ]  # fmt: skip
