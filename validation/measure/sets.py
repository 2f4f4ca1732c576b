"""Sets of shower files: whether two of them can be compared, and one pass over each, which measures it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.events.splits import Digests
from calopipe.events.tolerance import CORRECT_OR_SKIP, SKIP, STOP
from calopipe.labels import PARTICLE, PHI, LabelRange, taken
from calopipe.progress import progress_bar
from calopipe.showers.cells import FloatArray, Geometry
from calopipe.showers.files import Examined, ShowerFile, open_all
from calopipe.showers.selection import Selection
from calopipe.storage import Location
from validation.measure.edges import wide
from validation.measure.observables import Observables, observe
from validation.measure.pictures import Picture, pictures
from validation.measure.table import LABELS, Table

_GALLERY = 3  # showers of each set of which pictures are kept
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

        Each cell is read once. Bad showers are kept where they count, and their cells that are not finite numbers of
        zero or more taken as zero. InputError where the selection stops at one. A progress bar tells what is done.
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
                    if self.selection.bad_event != COUNT:
                        yield part, chosen & ~bad, bad
                    else:
                        yield _without_bad_cells(part) if bad.any() else part, chosen, bad

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

    def describe(self) -> list[dict[str, Any]]:
        """Each file's path, content and number of events, and how the model of generated showers was trained."""
        return [
            {"file": str(file.path), "sha256": file.sha256, "events": file.events}
            | ({"made_by": file.made_by} if file.made_by else {})
            for file in self.files
        ]


def _without_bad_cells(part: Examined) -> Examined:
    return replace(part, cells=np.where(np.isfinite(part.cells) & (part.cells > 0), part.cells, 0))


def require_one_detector(reference: ShowerSet, other: ShowerSet) -> None:
    """InputError unless both are of one detector, and stored in one unit."""
    if differs := other.geometry.difference(reference.geometry, unit=True):
        name, given, expected = differs
        raise InputError(
            f"{other.files[0].path}: {name} is {given}, in the reference {reference.files[0].path} it is "
            f"{expected}; compare showers of one detector, stored in one unit"
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
    for label, unit, scale in LABELS:
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


@dataclass(frozen=True)
class Measured:
    """What one pass over a set leaves: `digests` (see `Hits.digests`) of the showers with energy, and how many are
    `bad`, with a cell that is not a finite number of zero or more, and where the first is.
    """

    table: Table
    digests: Digests
    bad: int
    first_bad: str
    gallery: tuple[Picture, ...]


def measure(showers: ShowerSet) -> Measured:
    """Read a set once, piece by piece.

    InputError: a corrupt shower where `bad_event` is "stop", or no Monte Carlo with energy.
    """
    geometry = showers.geometry
    above_cut: list[npt.NDArray[np.bool_]] = []
    digests: list[Digests] = []
    gallery: list[Picture] = []
    bad_showers, first_bad = 0, ""

    def rows() -> Iterator[Observables]:
        nonlocal bad_showers, first_bad
        for part, kept, bad in showers.parts():
            if bad.any():
                bad_showers += int(bad.sum())
                first_bad = first_bad or f"event {part.first + int(np.argmax(bad))} of {part.file}"
            hits, more = part.hits[kept], taken(part.more, kept)
            labels = part.energy_gev[kept], part.theta_rad[kept]
            table = observe(hits, *labels, geometry, particle=more.get(PARTICLE), phi_rad=more.get(PHI))
            above_cut.append(part.above_cut[kept])
            digests.append(hits.digests()[table.column("visible_gev") > 0])
            if len(gallery) < _GALLERY:
                gallery.extend(pictures(part.cells[kept], table, geometry, _GALLERY - len(gallery)))
            yield table

    table = Table(rows())
    table.empty |= ~np.concatenate(above_cut)
    if table.empty.all() and showers.selection.bad_event != COUNT:
        raise showers.nothing_left()
    return Measured(table, np.concatenate(digests), bad_showers, first_bad, tuple(gallery))
