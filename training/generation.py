"""Showers from a trained model, in the layout and units of the Monte Carlo they imitate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np
import tensorflow as tf

from preprocessing import storage
from preprocessing.angle import measured_angle
from preprocessing.errors import InputError
from preprocessing.layouts import ShowerFile, ShowerWriter, open_all
from preprocessing.progress import progress_bar
from preprocessing.showers import REFERENCE_UNIT_GEV, FloatArray, Showers
from preprocessing.splits import SplitRule
from training import folder, models
from training.folder import Card
from training.randomness import Draws

_BATCH = 64
_REQUEST = "calopipe_request"  # attribute of the file that names what it was made of


class Generator:
    """A trained model, ready to make showers."""

    def __init__(self, model: Path) -> None:
        self.card: Card = folder.read_card(model)
        self._model = models.build(self.card.config, self.card.geometry)
        folder.load_weights(model, self._model.networks)
        self._batch = tf.function(self._generate)

    def showers(self, energy_gev: FloatArray, theta_rad: FloatArray, seed: int) -> Iterator[Showers]:
        """Batches of showers with the labels given, (N,) each; cells in units of 0.02 GeV.

        The same seed and labels give the same showers. Labels outside the range of the training raise InputError.
        """
        self._check("energy", energy_gev, self.card.energy_gev, "GeV")
        self._check("theta", theta_rad, self.card.theta_rad, "rad")
        for number, start in enumerate(range(0, len(energy_gev), _BATCH)):
            energy, theta = energy_gev[start : start + _BATCH], theta_rad[start : start + _BATCH]
            missing = _BATCH - len(energy)  # the last batch is filled up, so that the graph has one shape
            padded = [tf.constant(np.pad(label, (0, missing), mode="edge")) for label in (energy, theta)]
            cells = self._batch(*padded, tf.constant(seed), tf.constant(number)).numpy()[: len(energy)]
            yield Showers(cells, energy, theta, measured_angle(cells))

    def _generate(self, energy: tf.Tensor, theta: tf.Tensor, seed: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        return self._model.generate(energy, theta, Draws.of(0, seed, number))

    @staticmethod
    def _check(label: str, values: FloatArray, bounds: tuple[float, float], unit: str) -> None:
        # labels are float32 in files and in the card: half a unit in its last place is no extrapolation
        low, high = (np.float32(bound) for bound in bounds)
        outside = np.flatnonzero((values < np.nextafter(low, -np.inf)) | (values > np.nextafter(high, np.inf)))
        if len(outside):
            raise InputError(
                f"shower {outside[0]} is asked for with {label} {values[outside[0]]:g} {unit}, the model was trained "
                f"on {low:g} to {high:g} {unit}; {len(outside)} showers are outside: leave them out, or train on them"
            )


def generate(
    model: Path, like: Sequence[Path], output: Path, *, split: str, rule: SplitRule, per_event: int = 1, seed: int = 1,
    geometry: str = "",
) -> int:  # fmt: skip
    """Write to `output` showers with the energies and angles of `split` of the files `like`; their number.

    Each event's labels are used `per_event` times, one after the other. The cells are in the unit of `like`. A file
    that stands for the same model, labels and seed is left as it is. Raises InputError.
    """
    if per_event < 1:
        raise InputError(f"--per-event is {per_event}, expected at least 1")
    files = open_all(like, geometry)
    card = folder.read_card(model)
    _check_geometry(files[0], card)
    request = storage.fingerprint(
        [card.fingerprint(), [file.sha256 for file in files], split, rule.by_file, per_event, seed, geometry]
    )
    if (standing := _standing(output, request)) is not None:
        print(f"showers stand: {output}, {standing} of them; nothing to do")
        return standing
    energy, theta = (
        np.repeat(np.concatenate([label[file.mask(split, rule)] for file, label in labels]), per_event)
        for labels in ([(f, f.energy_gev) for f in files], [(f, f.theta_rad) for f in files])
    )
    if len(energy) == 0:
        raise InputError(f"{files[0].path}: no shower of the input is in the {split} split; give --split all")
    generator = Generator(model)
    scale = np.float32(REFERENCE_UNIT_GEV / files[0].geometry.file_unit_gev)
    attributes = {"generator": f"calopipe {card.config.model}", "model": card.fingerprint(), "seed": seed}
    bar = progress_bar("generate", len(energy), "showers")
    with bar, ShowerWriter(output, files[0].geometry, attributes | {_REQUEST: request}) as writer:
        for showers in generator.showers(energy, theta, seed):
            writer.write(Showers(showers.cells * scale, showers.energy_gev, showers.theta_rad, showers.mtheta_rad))
            bar.update(len(showers))
    return len(energy)


def _check_geometry(file: ShowerFile, card: Card) -> None:
    """The model must be of the same detector; the unit of the cells may differ."""
    for name, value in card.geometry.to_json().items():
        found = getattr(file.geometry, name)
        if name != "file_unit_gev" and found != value:
            raise InputError(
                f"{file.path}: {name} is {found}, the model was trained on {value}; use files of one detector"
            )


def _standing(output: Path, request: str) -> int | None:
    """Number of showers in `output`, if it was made for `request`."""
    if not output.is_file() or not h5py.is_hdf5(output):
        return None
    with h5py.File(output, "r") as file:
        return len(file["energy"]) if file.attrs.get(_REQUEST) == request else None
