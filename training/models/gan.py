"""The reference's adversarial training: four phases a step, with the physics in the loss.

Source: svalleco/3Dgan (branch Anglegan) and recardoso/ISC_HPC_3DGAN; arXiv 2111.04628. It differs in what
`docs/reference.md` lists as defects of the published code.
"""

from __future__ import annotations

import keras
from keras import ops

from training import physics
from training.models.base import Batch, Losses, Model, Phase, Tensor
from training.randomness import Draws

LATENT = 256  # E/100, the angle, and standard normals
ENERGY_SCALE_GEV = 100.0
_FLIPPED = 0.05  # share of labels that the discriminator is told wrongly, against over-confidence


class ConditionalGAN(Model):
    """A generator of showers of given energy and angle, against a discriminator that also regresses the energy.

    The generator maps (N, 256) to images (N, x, y, layer, 1); the discriminator maps images to (probability of being
    Monte Carlo (N, 1), E / 100 GeV (N, 1)). The discriminator's other two heads, angle and energy sum, are fixed
    functions of the image: `training.physics`.
    """

    loss_weights = {"generation": 3.0, "auxiliary": 0.1, "angle": 25.0, "ecal": 0.1}  # noqa: RUF012  read only

    def __init__(self, generator: keras.Model, discriminator: keras.Model) -> None:
        self.generator = generator
        self.discriminator = discriminator
        self.networks = {"generator": generator, "discriminator": discriminator}
        self.phases = (
            Phase("discriminator_real", "discriminator", self._discriminator_on_real),
            Phase("discriminator_fake", "discriminator", self._discriminator_on_fake),
            Phase("generator_first", "generator", self._generator),
            Phase("generator_second", "generator", self._generator),
        )

    def view(self, batch: Batch, draws: Draws) -> Batch:
        """Adds the images, their energy sums, and fake images with the batch's labels, from inference mode."""
        batch = self._in_full_precision(batch)
        labels = {**batch, "ecal": physics.ecal_sum(batch["cells"])}
        latent = self._latent(batch["energy_gev"], batch["theta_rad"], draws)
        return labels | {"image": physics.image_of(batch["cells"]), "fake": self.generator(latent, training=False)}

    def evaluate(self, batch: Batch, draws: Draws) -> Losses:
        batch = self._in_full_precision(batch)
        labels = {**batch, "ecal": physics.ecal_sum(batch["cells"])}
        image = self.generator(self._latent(batch["energy_gev"], batch["theta_rad"], draws), training=False)
        return self._losses(image, ops.ones_like(batch["energy_gev"]), labels, training=False)

    def generate(self, energy_gev: Tensor, theta_rad: Tensor, draws: Draws) -> Tensor:
        return physics.cells_of(self.generator(self._latent(energy_gev, theta_rad, draws), training=False))

    def _in_full_precision(self, batch: Batch) -> Batch:
        """The batch in the dtype of the networks' weights, in which their inputs and answers are."""
        return {name: ops.cast(value, self.generator.variable_dtype) for name, value in batch.items()}

    def _latent(self, energy_gev: Tensor, theta_rad: Tensor, draws: Draws) -> Tensor:
        noise = ops.cast(draws.normal("latent", (ops.shape(energy_gev)[0], LATENT - 2)), energy_gev.dtype)
        labels = ops.stack([energy_gev / ENERGY_SCALE_GEV, theta_rad], axis=1)
        return ops.concatenate([labels, noise], axis=1)

    def _discriminator_on_real(self, view: Batch, draws: Draws) -> Losses:
        return self._losses(view["image"], 1.0 - self._flips(view, draws), view, training=True)

    def _discriminator_on_fake(self, view: Batch, draws: Draws) -> Losses:
        return self._losses(ops.stop_gradient(view["fake"]), self._flips(view, draws), view, training=True)

    def _generator(self, view: Batch, draws: Draws) -> Losses:
        image = self.generator(self._latent(view["energy_gev"], view["theta_rad"], draws), training=True)
        return self._losses(image, ops.ones_like(view["energy_gev"]), view, training=True)

    @staticmethod
    def _flips(view: Batch, draws: Draws) -> Tensor:
        """1 for the showers whose label is flipped, else 0; drawn anew at every step."""
        return ops.cast(draws.uniform("flips", view["energy_gev"].shape) < _FLIPPED, view["energy_gev"].dtype)

    def _losses(self, image: Tensor, label: Tensor, targets: Batch, *, training: bool) -> Losses:
        probability, energy = self.discriminator(image, training=training)
        cells = physics.cells_of(image)
        return {
            "generation": physics.binary_cross_entropy(label, probability[:, 0]),
            "auxiliary": physics.percentage_error(targets["energy_gev"] / ENERGY_SCALE_GEV, energy[:, 0]),
            "angle": physics.absolute_error(targets["mtheta_rad"], physics.ecal_angle(cells)),
            "ecal": physics.percentage_error(targets["ecal"], physics.ecal_sum(cells)),
        }
