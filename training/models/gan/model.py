"""The reference's adversarial training: four phases a step, with the physics in the loss.

Source: svalleco/3Dgan (branch Anglegan) and recardoso/ISC_HPC_3DGAN; arXiv 2111.04628. The code here differs from the
published code where `docs/reference.md` lists a defect of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import keras
from keras import ops

from preprocessing.manifest import Manifest
from preprocessing.reading import decode, dense
from training.models.base import Batch, Guard, Losses, LossTable, Phase, Tensor
from training.models.gan import physics
from training.models.randomness import Draws, NoiseDraws, uniform_for_normal
from training.models.showers import ShowerModel, enough

LATENT = 256  # inputs of the generator: E/100, the angle, and standard normal numbers
ENERGY_SCALE_GEV = 100.0
LOSS_WEIGHTS = {"generation": 3.0, "auxiliary": 0.1, "angle": 25.0, "ecal": 0.1}
_WATCHED = LOSS_WEIGHTS | {"spread": 0.0}  # of a discriminator; if its answers have no spread, it is dead
_LABELS = ("energy_gev", "theta_rad", "mtheta_rad")
_FLIPPED = 0.05  # share of labels that are flipped for the discriminator, against over-confidence

_COIN = math.log(2.0)  # the cross-entropy of answering 1/2
_NEAR = 5e-3  # the optimizer still moves the bias of a dead network, by some 1e-3 in the loss
_CONSTANT = 1e-6  # the variance over showers of answers that agree to a thousandth
_CERTAIN = 15.0  # a little below -log 1e-7 = 16.1, where the loss is clipped and gives no gradient
_EMPTY_PERCENT = 100.0  # the energy-sum error of an empty shower, exactly


def _in_phases_of(network: str, failing: Callable[[Mapping[str, float]], bool]) -> Callable[[LossTable], bool]:
    """A function of the losses: whether those of every phase of `network` are `failing`."""
    return lambda table: all(failing(row) for phase, row in table.items() if phase.startswith(network))


GUARDS = (
    Guard(
        "the generator makes empty showers (error of the energy sum: exactly 100 %)",
        _in_phases_of("generator", lambda row: abs(row["ecal"] - _EMPTY_PERCENT) < 1e-3),
    ),
    Guard(
        "the discriminator is dead: it answers 1/2 to every shower",
        _in_phases_of(
            "discriminator", lambda row: abs(row["generation"] - _COIN) < _NEAR and row["spread"] < _CONSTANT
        ),
        improving=lambda table: sum(row["total"] for phase, row in table.items() if phase.startswith("generator")),
    ),
    Guard(
        "the generator gets no gradient: the discriminator is certain of every generated shower",
        _in_phases_of("generator", lambda row: row["generation"] > _CERTAIN),
    ),
)


class ConditionalGAN(ShowerModel):
    """A generator of showers of given energy and angle, against a discriminator that also regresses the energy.

    The generator maps (N, 256) to images (N, x, y, layer, 1); the discriminator maps images to (probability of being
    Monte Carlo (N, 1), E / 100 GeV (N, 1)). The discriminator's other two heads, angle and energy sum, are fixed
    functions of the image: `training.models.gan.physics`.
    """

    # Losses of the discriminator's answers are left out: it changes from epoch to epoch, so they cannot be compared.
    weights: Mapping[str, float] = MappingProxyType(LOSS_WEIGHTS | {"generation": 0.0, "auxiliary": 0.0})
    averaged = ("generator",)
    guards = GUARDS
    noise_numbers = uniform_for_normal(LATENT - 2)
    evaluation_cost = 0.1
    generation_batch = 32  # a processor is about as fast with 16 to 64; more showers do not fit its caches

    def __init__(self, generator: keras.Model, discriminator: keras.Model) -> None:
        self.generator = generator
        self.discriminator = discriminator
        self.networks = {"generator": generator, "discriminator": discriminator}
        self.phases = (
            Phase("discriminator_real", "discriminator", self._discriminator_on_real, _WATCHED),
            Phase("discriminator_fake", "discriminator", self._discriminator_on_fake, _WATCHED),
            Phase("generator_first", "generator", self._generator, LOSS_WEIGHTS),
            Phase("generator_second", "generator", self._generator, LOSS_WEIGHTS),
        )

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:  # noqa: ARG002
        return keras.optimizers.RMSprop(learning_rate)

    def decode_judged(self, records: Tensor, manifest: Manifest) -> Batch:
        """Dense showers and labels, whose shapes are the same in all batches."""
        return decode(records, manifest)

    def view(self, batch: Batch, draws: Draws) -> Batch:
        """The labels, the images, their energy sums, and fake images with the same labels, made in inference mode."""
        cells = ops.cast(dense(batch, self.generator.output_shape[1:4]), self.generator.variable_dtype)
        labels = self._labels(batch, cells)
        fake = self._made(labels, draws, training=False)
        return labels | {"image": physics.image_of(cells), "fake": fake}

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Tensor]:
        labels = self._labels(batch, ops.cast(batch["cells"], self.generator.variable_dtype))
        image = self._made(labels, draws, training=False)
        losses = self._losses(image, ops.ones_like(labels["energy_gev"]), labels, training=False)
        return {name: losses[name] for name in self.weights}, physics.cells_of(image)

    def score(self, losses: Mapping[str, float], found: Mapping[str, Any], showers: int) -> float | None:
        """The metric, if there are enough showers for it: the losses of a GAN say little of its showers."""
        return found["metric"]["value"] if enough(showers) else losses["total"]

    def generate(self, labels: Batch, draws: Draws | NoiseDraws) -> Tensor:
        return physics.cells_of(self._made(labels, draws, training=False))

    def _made(self, labels: Batch, draws: Draws | NoiseDraws, *, training: bool) -> Tensor:
        energy, theta = labels["energy_gev"], labels["theta_rad"]
        noise = ops.cast(draws.normal("latent", (ops.shape(energy)[0], LATENT - 2)), energy.dtype)
        latent = ops.concatenate([ops.stack([energy / ENERGY_SCALE_GEV, theta], axis=1), noise], axis=1)
        return self.generator(latent, training=training)

    def _labels(self, batch: Batch, cells: Tensor) -> dict[str, Tensor]:
        """The labels in the precision of the weights, with the energy sums of the showers."""
        labels = {name: ops.cast(batch[name], self.generator.variable_dtype) for name in _LABELS}
        return labels | {"ecal": physics.ecal_sum(cells)}

    def _discriminator_on_real(self, view: Batch, draws: Draws) -> Losses:
        return self._losses(view["image"], 1.0 - self._flips(view, draws), view, training=True)

    def _discriminator_on_fake(self, view: Batch, draws: Draws) -> Losses:
        return self._losses(ops.stop_gradient(view["fake"]), self._flips(view, draws), view, training=True)

    def _generator(self, view: Batch, draws: Draws) -> Losses:
        image = self._made(view, draws, training=True)
        return self._losses(image, ops.ones_like(view["energy_gev"]), view, training=True)

    @staticmethod
    def _flips(view: Batch, draws: Draws) -> Tensor:
        """1 for the showers whose label is flipped, else 0; drawn anew at every step."""
        return ops.cast(draws.uniform("flips", view["energy_gev"].shape) < _FLIPPED, view["energy_gev"].dtype)

    def _losses(self, image: Tensor, label: Tensor, targets: Batch, *, training: bool) -> Losses:
        probability, energy = self.discriminator(image, training=training)
        cells = physics.cells_of(image)
        return {
            "generation": ops.binary_crossentropy(label, probability[:, 0]),
            "auxiliary": physics.percentage_error(targets["energy_gev"] / ENERGY_SCALE_GEV, energy[:, 0]),
            "angle": ops.abs(physics.ecal_angle(cells) - targets["mtheta_rad"]),
            "ecal": physics.percentage_error(targets["ecal"], physics.ecal_sum(cells)),
            "spread": ops.square(probability[:, 0] - ops.mean(probability)),
        }
