"""Which events of Monte Carlo files count: one rule for preprocessing, generation and validation."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.splits import ALL, SPLITS, SplitRule
from calopipe.events.tolerance import STOP, Tolerance
from calopipe.options import add_settings, option_help, setting, settings_of
from calopipe.showers.detectors import settled
from calopipe.storage import Location

CUT_GEV = 0.0  # drops only showers without energy; the reference's cut is 0.2, which is 10 in the unit of its files


@dataclass(frozen=True)
class Selection:
    """The events of `split` that deposit more than `cut_gev`, and how to read their files.

    `rule` divides events among the splits. `bad_event` says what happens at a corrupt event: "stop" or "skip".
    `geometry` (`calopipe.showers.detectors`) overrides the files' attributes, such as the unit for the cut. A file that
    it names is read when the selection is made. `memory` is the folder of a dataset that remembers the hashes and the
    events of the files; it only saves time.
    """

    split: str = ALL
    rule: SplitRule = field(default_factory=SplitRule)
    cut_gev: float = CUT_GEV
    bad_event: str = STOP
    geometry: str = ""
    memory: Location | None = None

    def __post_init__(self) -> None:
        require_energy("cut_gev", self.cut_gev)
        object.__setattr__(self, "geometry", settled(self.geometry))  # the calorimeter, not the name of its file


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Which showers of the files count, and which cells of these showers count."""

    dataset: str = setting(
        "", help="Folder or gs:// address of a dataset that several runs share; empty for OUTPUT/dataset."
    )
    split_files: tuple[str, ...] = setting(
        (),
        flag="--split-file",
        metavar="SPLIT=PATTERN",
        help="Each SPLIT=PATTERN puts the files whose names match PATTERN into SPLIT (train or validation or test); in "
        "all other files the content of an event decides its split.",
    )
    geometry: str = setting(
        "",
        metavar="[FILE|NAME][,KEY=VALUE...]",
        help="Geometry that the files do not state: FILE.toml (docs/detectors.md; in the Kubeflow UI, as the steps see "
        "it) or a name such as calochallenge-2; and cell_mm, layer_pitch_mm, x0_per_layer, file_unit_gev.",
    )
    threshold_gev: float = setting(0.0, help="Cells below it are set to zero.")
    cut_gev: float = setting(
        CUT_GEV,
        help="Showers of Monte Carlo that deposit this many GeV or less are dropped; 0 drops only showers without "
        "energy.",
    )


@dataclass(frozen=True, kw_only=True)
class Reading(Tolerance, _Chosen):  # the fields of _Chosen come first
    """How files of showers are read: which showers count, and what is done about bad ones.

    Its fields are options of the commands and parameters of the pipeline. The steps of the pipeline hand it on.
    """

    @property
    def rule(self) -> SplitRule:
        return SplitRule.parse(self.split_files)

    def selection(self, split: str = ALL) -> Selection:
        """The showers of `split`. InputError."""
        memory = storage.location(self.dataset) if self.dataset else None
        return Selection(split, self.rule, self.cut_gev, self.on_bad_event, self.geometry, memory)


def add_selection(command: argparse.ArgumentParser, split_help: str, **defaults: str) -> None:
    """Add the options that decide which showers count; `defaults` state in words what a missing option means."""
    command.add_argument("--split", choices=(*SPLITS, ALL), default=ALL, help=f"{split_help} (default %(default)s)")
    command.add_argument(
        "--dataset", metavar="DIR", help="a dataset made from these files; only saves time: it holds their hashes"
    )
    names = ("split_files", "geometry", "cut_gev", "on_bad_event")
    deciding = [entry for entry in settings_of(Reading) if entry.name in names]
    add_settings(command, deciding, lambda entry: option_help(entry, defaults.get(entry.name)))


def require_energy(name: str, energy_gev: float) -> None:
    """Raise InputError unless the setting `name` is a finite energy of zero or more."""
    if not 0 <= energy_gev < float("inf"):
        raise InputError(f"{name} is {energy_gev}, expected a number of GeV, zero or more")
