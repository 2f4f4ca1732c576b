"""What all generative models of showers have in common: how they generate, are judged and are exported."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from calopipe.errors import InputError
from calopipe.labels import PARTICLE, LabelRange
from calopipe.showers.cells import REFERENCE_UNIT_GEV, Geometry
from calopipe.showers.metric import LEAST_EVENTS, MetricBin, Profiles, metric
from calopipe.showers.positions import require_cells
from preprocessing.manifest import Manifest
from preprocessing.reading import decode, decode_hits
from training.models.base import Batch, Judge, Model, Rows, Tensor, ValidRange
from training.models.randomness import Draws, GivenNoise, NoiseDraws, ShowerDraws

NOISE = "showers"  # the purpose of the random numbers that a shower is made of
_BEYOND = 1e-3  # how far a label may lie outside the range of the training's labels, as a part of this range
_LAST_BELOW_1 = np.nextafter(np.float32(1), np.float32(0))  # the largest noise: float32 may round a double below 1 to 1
# The part of the energy that a slice of a profile must hold to count in the metric. The slices at the edges hold 0.5 %
# of the energy together, and their relative errors would be 99.9 % of the metric.
_LEAST_SHARE = 1e-3


class ShowerModel(Model):
    """A generative model of showers.

    `generation_batch` is the best number of showers to make at a time on a processor. `noise_numbers` is the number of
    uniform random numbers from which a shower is made.
    """

    needed = (*Model.needed, "noise_numbers")
    generation_batch: int = 64
    noise_numbers: int
    exported = MappingProxyType({"cells_unit_gev": 1.0})

    @abstractmethod
    def generate(self, labels: Batch, draws: Draws | NoiseDraws) -> Tensor:
        """Showers (N, x, y, layer) in units of 0.02 GeV, networks in inference mode.

        `labels` by name, (N,) each, are `energy_gev` and `theta_rad`; also `phi_rad` and `particle`
        (`calopipe.labels`), where the training's showers differ by them and the config `takes_more_labels`. A shower
        depends on its labels and its row of `draws` only, not on other showers of the batch. It is NaN where the device
        has no room for it. `draws` are asked once, for all numbers of a shower.
        """

    def decode(self, records: Tensor, manifest: Manifest) -> Batch:
        return decode_hits(records, manifest)

    def decode_judged(self, records: Tensor, manifest: Manifest) -> Batch:
        return {**decode(records, manifest), **self.decode(records, manifest)}

    def judge(self, showers: int, geometry: Geometry, workers: int = 1) -> ShowerJudge:  # noqa: ARG002
        return ShowerJudge(showers, geometry)

    def card(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {"metric": found.get("metric")}

    def serving(self, valid: ValidRange) -> Any:
        """Showers in GeV from labels and a seed; labels outside the valid range raise InvalidArgumentError.

        `phi_rad` and `particle` (int32) are arguments after the seed, if the training's showers differ by them.
        """
        label, names = tf.TensorSpec([None], tf.float32), _names(valid)

        @tf.function(input_signature=[label, label, tf.TensorSpec([], tf.int32), *_specs(names[2:])], autograph=False)
        def generate(
            energy_gev: tf.Tensor, theta_rad: tf.Tensor, seed: tf.Tensor, *others: tf.Tensor
        ) -> dict[str, tf.Tensor]:
            labels = dict(zip(names, (energy_gev, theta_rad, *others), strict=True))
            checks = [_require_inside(name, values, valid[name]) for name, values in labels.items()]
            with tf.control_dependencies(checks):  # without them the networks run beside the checks, and may fail first
                labels = tf.nest.map_structure(tf.identity, labels)
            draws = ShowerDraws(seed, tf.constant(0, tf.int64))
            return {"cells_gev": self.generate(labels, draws) * REFERENCE_UNIT_GEV}

        return generate

    def onnx(self, valid: ValidRange) -> Any:
        """Showers in GeV from labels and noise. A shower with a label outside the valid range, or with noise that is
        not from 0 to 1, is NaN: ONNX has no errors.
        """
        label, names = tf.TensorSpec([None], tf.float32), _names(valid)
        given_noise = tf.TensorSpec([None, self.noise_numbers], tf.float32)

        def clipped(name: str, values: tf.Tensor) -> tf.Tensor:
            if name == PARTICLE:
                return values
            # refused labels become valid, so that their showers cost no more than others; `where` alone would let NaN
            # through: tf2onnx makes products and a sum of it
            known = tf.where(tf.math.is_nan(values), np.float32(valid[name][0]), values)
            return tf.clip_by_value(known, *allowed(name, valid[name]))

        @tf.function(input_signature=[label, label, given_noise, *_specs(names[2:])], autograph=False)
        def generate(
            energy_gev: tf.Tensor, theta_rad: tf.Tensor, noise: tf.Tensor, *others: tf.Tensor
        ) -> dict[str, tf.Tensor]:
            labels = dict(zip(names, (energy_gev, theta_rad, *others), strict=True))
            inside = tf.reduce_all((noise >= 0) & (noise <= 1), 1)
            for name, values in labels.items():
                inside &= within(name, values, valid[name])
            noise = tf.clip_by_value(tf.where(tf.math.is_nan(noise), 0.5, noise), 0.0, _LAST_BELOW_1)
            taken = {name: clipped(name, values) for name, values in labels.items()}
            unit_gev = tf.where(inside, np.float32(REFERENCE_UNIT_GEV), np.float32(np.nan))
            return {"cells_gev": self.generate(taken, GivenNoise(noise)) * unit_gev[:, None, None, None]}

        return generate


def _names(valid: ValidRange) -> tuple[str, ...]:
    """Names of the labels that a model takes."""
    labels = LabelRange.from_json(valid)
    return ("energy_gev", "theta_rad", *(labels.names if labels.vary else ()))


def _specs(names: Sequence[str]) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([None], tf.int32 if name == PARTICLE else tf.float32, name) for name in names]


def allowed(name: str, bounds: tuple[Any, ...]) -> tuple[np.float32, np.float32]:
    """The lowest and the highest label `name` that a model valid within `bounds` may be asked for.

    The bounds are the least and the largest label of a sample. Another sample of the same beam may lie a little outside
    of them. So a label may be outside by a thousandth of the range (for energies, of the range of their logarithm), and
    by a unit in the last place of float32.
    """
    low, high = (np.float32(bound) for bound in bounds)
    if name == "energy_gev":
        factor = np.float32((float(high) / float(low)) ** _BEYOND)
        low, high = low / factor, high * factor
    else:
        beyond = np.float32(_BEYOND) * (high - low)
        low, high = low - beyond, high + beyond
    return np.nextafter(low, np.float32(-np.inf)), np.nextafter(high, np.float32(np.inf))


def within(name: str, values: tf.Tensor, bounds: tuple[Any, ...]) -> tf.Tensor:
    """Which labels (N,) are within the `bounds` of the training; for particles, which are of the training's kinds."""
    if name == PARTICLE:
        return tf.reduce_any(values[:, None] == tf.constant(bounds), 1)
    low, high = allowed(name, bounds)
    return (values >= low) & (values <= high)


def _require_inside(name: str, values: tf.Tensor, bounds: tuple[Any, ...]) -> tf.Operation:
    """The operation that fails unless all `values` (N,) are inside `bounds`; its message names up to 3 outside."""
    inside = within(name, values, bounds)
    unit = "GeV" if name == "energy_gev" else "rad"
    known = str(bounds) if name == PARTICLE else f"from {bounds[0]:g} to {bounds[1]:g} {unit}"
    reason = f"the model is valid for {name} {known}; leave others out, found:"
    return tf.debugging.Assert(tf.reduce_all(inside), [reason, tf.boolean_mask(values, ~inside)], summarize=3)


class ShowerJudge(Judge):
    """Compares generated showers with Monte Carlo showers of the same labels; `showers` of each in all."""

    def __init__(self, showers: int, geometry: Geometry) -> None:
        self._geometry = replace(geometry, file_unit_gev=REFERENCE_UNIT_GEV)
        # empty showers do not count in the metric; up to half of all showers may be empty
        self._least = LEAST_EVENTS // 2 if enough(showers) else LEAST_EVENTS

    def add(self, batch: Mapping[str, Any], made: Any) -> Rows:
        cells, labels = batch["cells"].numpy(), (batch["energy_gev"].numpy(), batch["theta_rad"].numpy())
        generated = made.numpy().astype(np.float32)
        if generated.shape != cells.shape:
            raise InputError(f"the model made showers of shape {generated.shape}, expected {cells.shape}")
        require_cells(generated, self._geometry)
        return np.hstack([Profiles.of(showers, *labels, self._geometry).rows() for showers in (cells, generated)])

    def found(self, rows: Rows) -> dict[str, Any]:
        """`metric` from `calopipe.showers.metric`; and `energy_sum`, the mean visible energy over Monte Carlo's."""
        reference, generated = (Profiles.of_rows(half, self._geometry.shape) for half in np.hsplit(rows, 2))
        bins = selection_bins(reference.energy_gev, reference.theta_rad)
        return {
            "metric": metric(reference, generated, bins=bins, least_events=self._least, least_share=_LEAST_SHARE),
            "energy_sum": float(generated.along[2].sum() / reference.along[2].sum()),
        }


def enough(showers: int) -> bool:
    """Whether a split of so many `showers` has a metric that can choose among epochs."""
    return showers >= LEAST_EVENTS


def selection_bins(energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any]) -> list[MetricBin]:
    """Bins of energy and angle for the metric, as fine as the number of showers allows: 3 x 3, 3 x 1, or one for all.

    The reference's bins, a tenth of the energies and a hundredth of the angles wide, are for tens of thousands of
    showers. The bins here have equal widths. Of a grid with several bins each bin must hold `LEAST_EVENTS` showers.
    """
    for energies, angles in ((3, 3), (3, 1)):
        bins = [
            MetricBin(energy, theta, energy_reach_gev=energy_reach, theta_reach_rad=theta_reach)
            for energy, energy_reach in _grid(energy_gev, energies)
            for theta, theta_reach in _grid(theta_rad, angles)
        ]
        if min(np.sum(metric_bin.holds(energy_gev, theta_rad)) for metric_bin in bins) >= LEAST_EVENTS:
            return bins
    return [MetricBin(0.0, 0.0, energy_reach_gev=math.inf, theta_reach_rad=math.inf)]


def _grid(values: npt.NDArray[Any], cells: int) -> Iterator[tuple[float, float]]:
    """The middle, and the reach to either side, of each of `cells` equal parts of the range of `values`."""
    low, width = float(values.min()), float(np.ptp(values)) / cells
    reach = width / 2 * (1 + 1e-6)  # a little more, since labels are float32, and the ends belong to a bin
    return ((low + width * (number + 0.5), reach) for number in range(cells))
