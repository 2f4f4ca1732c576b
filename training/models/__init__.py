"""Generative models: each states its networks, its phases and how it generates; the engine does the rest."""

from __future__ import annotations

import keras

from calopipe.showers.cells import Geometry
from training.configs import FitConfig
from training.models.autoregressive.model import Autoregressive
from training.models.base import Model
from training.models.gan import ConditionalGAN
from training.models.networks_3d import REFERENCE, SMALL, discriminator_3d, generator_3d
from training.models.precision import arithmetic


def build(config: FitConfig, geometry: Geometry) -> Model:
    """The model that `config` names, for showers of `geometry`, with initial weights drawn from the config's seed."""
    keras.utils.set_random_seed(config.seed)  # the initialisers draw from it
    with arithmetic(config.precision):
        if config.model == "autoregressive":
            return Autoregressive(geometry, width=config.width)
        table = {"3dgan": REFERENCE, "3dgan-small": SMALL}[config.model.removesuffix("-plain")]
        plain = config.model.endswith("-plain")
        return ConditionalGAN(
            generator_3d(table, config.momentum, plain=plain), discriminator_3d(table, config.momentum, plain=plain)
        )
