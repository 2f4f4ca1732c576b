"""Which showers a model is asked for: with the labels of events in files, or with given labels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError, require_least
from calopipe.events.hdf5 import opened_file
from calopipe.events.splits import ALL, Digests
from calopipe.events.tolerance import CORRECT_OR_SKIP, STOP
from calopipe.labels import DATASETS, PARTICLE, PHI, AllLabels, taken
from calopipe.progress import say
from calopipe.showers.cells import Geometry
from calopipe.showers.files import open_all
from calopipe.showers.hits import flaws_of_label
from calopipe.showers.layouts import ENERGIES, read_labels_alone, wrong_label
from calopipe.showers.selection import Selection
from calopipe.storage import Location
from preprocessing.events import receipts_of
from training.model_folder import Card

_OPTIONS = {"energy_gev": "--energy", "theta_rad": "--theta", PHI: "--phi", PARTICLE: "--pdg"}


@dataclass(frozen=True)
class Events:
    """Labels by name (`energy_gev`, `theta_rad`, and `MoreLabels`) and digests of events, (N,) each.

    Digests are 0 for labels without cells.
    """

    labels: AllLabels
    digests: Digests

    def __len__(self) -> int:
        return len(self.digests)

    def __getitem__(self, index: npt.NDArray[Any]) -> Events:
        return Events(taken(self.labels, index), self.digests[index])


class Conditions:
    """The events of the files `like` that a `selection` chooses, for one model, or for several with the same request.

    The files are opened now; the events are found when they are first needed, and only once. The receipts of the
    dataset `selection.memory` say which they are; of files that it does not hold, all cells are read. Files that do not
    state their geometry have the geometry `beside` of a model, if it is given and has as many cells. Raises InputError.
    """

    def __init__(self, like: Sequence[Location], selection: Selection, beside: Geometry | None = None) -> None:
        self.selection = selection
        self.files = open_all(like, selection, beside)
        self.contents = [file.sha256 for file in self.files]

    def layout(self, card: Card) -> tuple[Geometry, str]:
        """The geometry and the `deposits` (see `ShowerFile`) of the files.

        InputError: the model is of another detector; only the unit of cells may differ.
        """
        file = self.files[0]
        if differs := file.geometry.difference(card.geometry):
            name, value, trained_on = differs
            raise InputError(
                f"{file.path}: {name} is {value}, the model was trained on {trained_on}; use files of one detector"
                + (", or give the --geometry of this one" if file.assumed else "")
            )
        return file.geometry, file.deposits

    @cached_property
    def events(self) -> Events:
        """The events of the selection. InputError: there is none."""
        of_receipts = receipts_of(self.files, self.selection)
        chosen = [events or file.chosen(self.selection) for file, events in zip(self.files, of_receipts, strict=True)]
        parts = [
            Events({"energy_gev": file.energy_gev, "theta_rad": file.theta_rad, **file.more}, digests)[mask]
            for file, (mask, digests) in zip(self.files, chosen, strict=True)
        ]
        labels = {name: np.concatenate([part.labels[name] for part in parts]) for name in parts[0].labels}
        events = Events(labels, np.concatenate([part.digests for part in parts]))
        if not len(events):
            cut, split = self.selection.cut_gev, self.selection.split
            counts = f"deposits more than {cut:g} GeV" if cut else "holds energy"
            raise InputError(
                f"{self.files[0].path}: no shower {counts}; give a file of labels without cells, or --energy"
                if split == ALL
                else f"{self.files[0].path}: no shower of the {split} split {counts}; give more files"
            )
        return events


class LabelsAlone:
    """Labels by name, (N,) each, without cells: their showers are made in the layout and unit of the model."""

    def __init__(self, labels: AllLabels) -> None:
        self.selection = Selection()
        self.events = Events(labels, np.zeros(len(labels["energy_gev"]), np.uint64))
        self.contents = [hashlib.sha256(values.tobytes()).hexdigest() for _, values in sorted(labels.items())]

    def layout(self, card: Card) -> tuple[Geometry, str]:
        return card.geometry, ""

    @classmethod
    def alike(cls, card: Card, showers: int, values: Mapping[str, float | None]) -> LabelsAlone:
        """So many `showers` with the labels `values`; None is the label that all showers of the training had.

        Energy is in GeV, angles are in degrees. InputError: a label of the model is missing, or the model has no label
        that is given.
        """
        require_least("--showers", showers, 1)
        labels = {}
        for name, option in _OPTIONS.items():
            value, valid = values[name], card.valid_range.get(name)
            if valid is None:
                if value is not None:
                    raise InputError(f"{option} is for models with that label, and this one has none; leave it out")
                continue
            if value is None and len(set(valid)) > 1:
                among = ", ".join(f"{number:g}" for number in (np.degrees(valid) if name.endswith("rad") else valid))
                raise InputError(f"{option} is missing, and the training showers differ in it: {among}; give {option}")
            label = valid[0] if value is None else np.radians(value) if name.endswith("rad") else value
            labels[name] = np.full(showers, label, np.int32 if name == PARTICLE else np.float32)
        return cls(labels)


def conditions_of(like: Sequence[Location], selection: Selection, card: Card) -> Conditions | LabelsAlone:
    """The conditions of the files `like`: all of them have cells, or none has. InputError."""
    alone = [labels for path in like if (labels := _labels_alone(path, selection.bad_event)) is not None]
    if len(alone) < len(like):
        return Conditions(like, selection, card.geometry)
    if selection.split != ALL:
        raise InputError(f"{like[0]}: holds labels and no cells, which decide the split; leave out --split")
    if any(labels.keys() != alone[0].keys() for labels in alone):
        raise InputError(f"{like[0]}: a file beside it has other labels (phi, pdg); give files with the same labels")
    return LabelsAlone({name: np.concatenate([labels[name] for labels in alone]) for name in alone[0]})


def _labels_alone(path: Location, bad_event: str) -> dict[str, npt.NDArray[Any]] | None:
    """The labels (N,) of a file without cells; None if it has cells, or no labels. InputError, BadFileError.

    Corrupt labels are an error if `bad_event` is "stop"; else their showers are left out, which is said.
    """
    with opened_file(path) as file:
        datasets = read_labels_alone({str(name): item for name, item in file.items() if isinstance(item, h5py.Dataset)})
        challenge = ENERGIES in file
    if datasets is None:
        return None
    flaws = {name: flaws_of_label(name, datasets[name]) != 0 for name in ("energy", "theta", "phi") if name in datasets}
    good = ~np.any(list(flaws.values()), axis=0)
    left_out = int((~good).sum())
    if left_out and bad_event == STOP:
        event = int(np.argmin(good))
        name = next(name for name, flawed in flaws.items() if flawed[event])
        reason = wrong_label(name, datasets[name][event], challenge=challenge)
        raise InputError(f"{path}: event {event}: {reason}; {CORRECT_OR_SKIP}")
    if not good.any():
        with_good = " with good labels" if left_out else ""
        raise InputError(f"{path}: holds no showers{with_good}; leave it out of --like")
    if left_out:
        say(f"{path}: {left_out} of {len(good)} showers have corrupt labels, and are left out")
    names = {"energy_gev": "energy", "theta_rad": "theta", **DATASETS}
    return {name: datasets[dataset][good] for name, dataset in names.items() if dataset in datasets}
