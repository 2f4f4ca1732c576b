"""The 3DGAN of CERN openlab (svalleco/3Dgan; arXiv 2111.04628), and a small model of the same form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from calopipe.errors import InputError
from calopipe.options import setting
from calopipe.showers.cells import Geometry
from training.models.config import CONFIGS, DEFAULT, FitConfig, register

if TYPE_CHECKING:
    from training.models.gan.model import ConditionalGAN

# Models by name; each is for showers of this shape (x, y, layer) only.
_SHAPES = {"3dgan": (51, 51, 25), "3dgan-small": (17, 17, 5)}


@register(*_SHAPES)
@dataclass(frozen=True, kw_only=True)
class GANConfig(FitConfig):
    """The config. `momentum` is that of the batch normalisation's moving averages; the reference's is 0.99."""

    momentum: float = setting(0.99, help="of the batch normalisation of the 3DGANs", least=0, below=1)

    def check_shape(self, geometry: Geometry) -> None:
        if _SHAPES[self.model] != geometry.shape:
            raise InputError(
                f"the showers have {geometry.shape} cells, the model {self.model} is for {_SHAPES[self.model]}; "
                f"choose --config {DEFAULT}, which takes any shape"
            )

    def build(self, geometry: Geometry) -> ConditionalGAN:  # noqa: ARG002  the model is for one shape
        from training.models.gan import networks  # noqa: PLC0415  TensorFlow
        from training.models.gan.model import ConditionalGAN  # noqa: PLC0415

        table = {"3dgan": networks.REFERENCE, "3dgan-small": networks.SMALL}[self.model]
        return ConditionalGAN(
            networks.generator_3d(table, self.momentum), networks.discriminator_3d(table, self.momentum)
        )


CONFIGS |= {
    # The published training: days on a laptop, an hour on 8 GPUs.
    "3dgan": GANConfig(model="3dgan", batch=64, epochs=60, learning_rate=1e-3),
    # The reference's network for a coarse calorimeter of 17 x 17 x 5 cells: seconds.
    "small": GANConfig(model="3dgan-small", batch=8, epochs=2, learning_rate=1e-3, momentum=0.9),
}
