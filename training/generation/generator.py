"""Showers from a trained model for given labels, a batch on each device at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from calopipe.errors import InputError, require_least
from calopipe.labels import DATASETS, PARTICLE, PHI, AllLabels, LabelRange, MoreLabels, taken
from calopipe.showers.angle import angle_of_cells
from calopipe.showers.cells import FloatArray, Showers
from training.engine.strategies import compiled_by_xla, make_strategy, perhaps_compiled
from training.export import arrays_file
from training.load_model import load_model
from training.models.base import Batch
from training.models.library import Library
from training.models.randomness import ShowerDraws
from training.models.showers import NOISE, ShowerModel, within

# So many batches are made at once, while earlier ones are used. Most operations of a model leave a core idle; and what
# accelerators make is compressed and written at the same time.
_AT_ONCE = 2
_BATCH_OF_LIBRARY = 50  # showers of each processor at a time: few, so that all processors end at about the same time
_RANGED = {"energy_gev": ("energy", "GeV"), "theta_rad": ("theta", "rad"), PHI: ("phi", "rad")}  # labels, in words
_BATCH_BYTES = 128 * 2**20  # of dense showers on a device, at most, if no batch is given: 516 of the reference's


class Generator:
    """A trained model, ready to make showers, `batch` of them at a time on each device.

    A `batch` of 0 is the fastest size, but at most 128 MiB of showers with many cells.
    `strategy` names the devices, as for a training: one-device, mirrored or tpu. If the shared `library` of `geant4/`
    is given, it draws the showers, on all processors.
    """

    def __init__(self, model: Path, batch: int = 0, strategy: str = "one-device", library: Path | None = None) -> None:
        require_least("--batch", batch, 0)
        if strategy == "multi-worker":
            raise InputError("--strategy multi-worker is for training; give each process --share I/N of the showers")
        if library is not None and strategy != "one-device":
            raise InputError(f"--library draws on processors, and --strategy is {strategy}; leave one out")
        self._strategy = make_strategy(strategy)
        with self._strategy.scope():
            self.card, network = load_model(model)
        if not isinstance(network, ShowerModel):
            raise InputError(f"{model}: a model {self.card.config.model}, which makes no showers; give another")
        self.model = network
        self._cells_of: Callable[[AllLabels, int, int], FloatArray] = self._of_devices
        self._at_once = _AT_ONCE
        if library is not None:
            self._cells_of = partial(self._of_library, Library(library, arrays_file(network, self.card)))
            self._at_once = os.cpu_count() or 1
        self._valid = LabelRange.from_json(self.card.valid_range)
        fitting = max(_BATCH_BYTES // (4 * self.card.geometry.cells), 1)
        fastest = network.generation_batch if library is None else _BATCH_OF_LIBRARY
        self.batch = batch or min(fastest, fitting)
        self.showers_at_a_time = self.batch * self._strategy.num_replicas_in_sync
        of_replica = perhaps_compiled(self.cells, compiled_by_xla(self._strategy))
        self._compiled = tf.function(lambda arguments: self._strategy.run(of_replica, args=arguments), autograph=False)

    def showers(self, labels: AllLabels, seed: int, *, ranges: Iterable[range] | None = None) -> Iterator[Showers]:
        """Batches of showers with the `labels` by name, (N,) each; cells in units of 0.02 GeV.

        With `ranges`, only showers of these indices are made, and no batch goes beyond a range. A shower is a function
        of the model, the seed, its labels and its index; the batch changes only float32 rounding. Labels outside the
        range of the training are not an error here: see `require_inside`.
        """
        size = self.showers_at_a_time
        with ThreadPoolExecutor(self._at_once) as threads:
            made: deque[Future[Showers]] = deque()
            for indices in [range(len(labels["energy_gev"]))] if ranges is None else ranges:
                for first in indices[::size]:
                    chosen = slice(first, min(first + size, indices.stop))
                    made.append(threads.submit(self._made, taken(labels, chosen), seed, first))
                    if len(made) > self._at_once:
                        yield made.popleft().result()
            while made:
                yield made.popleft().result()

    def _made(self, labels: AllLabels, seed: int, first: int) -> Showers:
        """A batch on each device; the batch of the first device begins with the shower `first`."""
        cells = self._cells_of(labels, seed, first)
        if np.isnan(cells).any():
            row = int(np.argmax(np.isnan(cells).any(axis=(1, 2, 3))))
            raise InputError(
                f"shower {first + row}, of {labels['energy_gev'][row]:g} GeV, is no number; where an accelerator has "
                "no room for all cells of a layer, generate on processors: CUDA_VISIBLE_DEVICES=-1"
            )
        angles = labels["theta_rad"], angle_of_cells(cells, self.card.geometry)
        return Showers(cells, labels["energy_gev"], *angles, more=_more_labels(labels))

    def _of_library(self, library: Library, labels: AllLabels, seed: int, first: int) -> FloatArray:
        draws = ShowerDraws(tf.constant(seed), tf.constant(first, tf.int64))
        noise = draws.uniform(NOISE, (len(labels["energy_gev"]), self.model.noise_numbers)).numpy()
        return library.cells(labels, noise)

    def _of_devices(self, labels: AllLabels, seed: int, first: int) -> FloatArray:
        used = labels if self._valid.vary else {name: labels[name] for name in ("energy_gev", "theta_rad")}

        def arguments(context: tf.distribute.ValueContext) -> tuple[Any, ...]:
            begin = self.batch * int(context.replica_id_in_sync_group)
            rows = np.arange(begin, begin + self.batch)  # the last label fills it up: the graph has one shape
            batch = {name: tf.constant(np.take(values, rows, mode="clip")) for name, values in used.items()}
            return batch, tf.constant(seed), tf.constant(first + begin, tf.int64)

        made = self._compiled(self._strategy.experimental_distribute_values_from_function(arguments))
        batches = [cells.numpy() for cells in self._strategy.experimental_local_results(made)]
        return (batches[0] if len(batches) == 1 else np.concatenate(batches))[: len(labels["energy_gev"])]

    def cells(self, labels: Batch, seed: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
        """Cells (N, x, y, layer), in units of 0.02 GeV, of the shower `first` and those after it."""
        return self.model.generate(labels, ShowerDraws(seed, first))

    def require_inside(self, labels: AllLabels) -> None:
        """Raise InputError if a label of the training is missing, or if values of `labels`, (N,) each, are outside."""
        self.require_kinds(labels)
        within = self._within(labels)
        outside = np.flatnonzero(~np.all([*within.values()], axis=0))
        if not len(outside):
            return
        first = outside[0]
        name = next(name for name, inside in within.items() if not inside[first])
        (low, high), (label, unit) = self.card.valid_range[name], _RANGED[name]
        value, radians = labels[name][first], ""
        if unit == "rad":  # files have rad, options have degrees
            radians = f" ({value:.4g}, {low:.4g} and {high:.4g} rad)"
            (value, low, high), unit = np.degrees([value, low, high]), "degrees"
        raise InputError(
            f"shower {first} is asked for with {label} {value:g} {unit}, the model is valid from {low:g} to {high:g} "
            f"{unit}{radians}; of {len(within[name])} showers {len(outside)} are outside, which --outside skip leaves "
            "out if others are inside"
        )

    def require_kinds(self, labels: AllLabels) -> None:
        """Raise InputError unless the labels other than energy and angle, and the particles, are the training's."""
        valid, more = self._valid, _more_labels(labels)
        if set(more) != set(valid.names):
            have, need = (" and ".join(DATASETS[name] for name in names) or "none" for names in (more, valid.names))
            raise InputError(
                f"labels of the showers that are asked for, beside energy and theta: {have}; those of the training: "
                f"{need}; give files with the same labels"
            )
        kinds = more.get(PARTICLE, np.empty(0, np.int32))
        unknown = np.flatnonzero(~np.isin(kinds, valid.particle))
        if len(unknown):
            raise InputError(
                f"shower {unknown[0]} is asked for with pdg {kinds[unknown[0]]}, the model knows "
                f"{', '.join(map(str, valid.particle))}; {len(unknown)} showers are of others: leave them out "
                "(--outside skip)"
            )

    def inside(self, labels: AllLabels) -> npt.NDArray[np.bool_]:
        """Which showers (N,) have all their `labels`, (N,) each, in the training's range. See also `require_kinds`."""
        return np.all([*self._within(labels).values()], axis=0)

    def _within(self, labels: AllLabels) -> dict[str, npt.NDArray[np.bool_]]:
        """For each label by name, which of its values (N,) are in the training's range, or of its particles."""
        valid = self.card.valid_range
        return {name: np.asarray(within(name, labels[name], valid[name])) for name in labels if name in valid}


def _more_labels(labels: AllLabels) -> MoreLabels:
    """The labels other than energy and polar angle."""
    return {name: values for name, values in labels.items() if name in DATASETS}
