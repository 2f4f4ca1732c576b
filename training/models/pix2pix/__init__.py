"""pix2pix (Isola et al., arXiv 1611.07004): from a frame of a flow to the next frame; and a small model of its form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from calopipe.flow.grid import Grid
from calopipe.options import setting
from training.models.config import CONFIGS, FitConfig, register
from training.models.pix2pix.tables import table_of

if TYPE_CHECKING:
    from training.models.pix2pix.model import Pix2Pix


@register("pix2pix", "pix2pix-small")
@dataclass(frozen=True, kw_only=True)
class Pix2PixConfig(FitConfig):
    """The config. Noise is added to the velocities that a step begins with; its spread is drawn for each frame from 0
    to `noise`. Without noise a roll-out leaves the flows that the model has seen, since the errors of steps add up.
    """

    domain: ClassVar[type[Grid]] = Grid

    l1_weight: float = setting(100.0, help="of the L1 loss, beside the adversarial one's 1", least=0)
    noise: float = setting(0.01, help="on the velocities that a step begins with, in U", least=0)

    def check_shape(self, geometry: Grid) -> None:
        table_of(self.model, geometry.shape)

    def build(self, geometry: Grid) -> Pix2Pix:
        from training.models.pix2pix.model import Pix2Pix  # noqa: PLC0415  TensorFlow

        return Pix2Pix(self.model, geometry, noise=self.noise, l1_weight=self.l1_weight)


CONFIGS |= {
    # As published, but with as many of the eight levels as the frames' sides can be halved: for GPUs.
    "pix2pix": Pix2PixConfig(model="pix2pix", batch=8, epochs=45, learning_rate=2e-4, patience=10),
    # A U-Net of three levels, which predicts the change of the flow: minutes on a laptop.
    "pix2pix-small": Pix2PixConfig(
        model="pix2pix-small", batch=4, epochs=40, learning_rate=2e-3, schedule="cosine", patience=15, noise=0.02
    ),
}
