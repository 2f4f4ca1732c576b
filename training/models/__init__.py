"""Generative models: each states its networks, its phases and how it generates; the engine does the rest."""

from __future__ import annotations

import keras

from preprocessing.showers import Geometry
from training.configs import FitConfig
from training.models.base import Model
from training.models.gan import ConditionalGAN
from training.models.networks_2d import discriminator_2d, generator_2d
from training.models.networks_3d import REFERENCE, SMALL, discriminator_3d, generator_3d
from training.strategies import arithmetic


def build(config: FitConfig, geometry: Geometry) -> Model:
    """The model that `config` names, for showers of `geometry`, with initial weights drawn from the config's seed."""
    keras.utils.set_random_seed(config.seed)  # the initialisers draw from it
    with arithmetic(config.precision):
        if config.model == "2dgan":
            return ConditionalGAN(
                generator_2d(geometry.shape, config.momentum), discriminator_2d(geometry.shape, config.momentum)
            )
        table = {"3dgan": REFERENCE, "3dgan-small": SMALL}[config.model.removesuffix("-plain")]
        plain = config.model.endswith("-plain")
        return ConditionalGAN(
            generator_3d(table, config.momentum, plain=plain), discriminator_3d(table, config.momentum, plain=plain)
        )
