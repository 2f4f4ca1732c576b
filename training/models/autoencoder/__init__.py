"""An auto-encoder: showers in, few numbers, showers out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from calopipe.options import setting
from calopipe.showers.cells import Geometry
from training.models.config import CONFIGS, FitConfig, register

if TYPE_CHECKING:
    from training.models.autoencoder.model import AutoEncoder


@register("autoencoder")
@dataclass(frozen=True, kw_only=True)
class AutoEncoderConfig(FitConfig):
    """`code` is how many numbers a shower becomes, beside its visible energy."""

    code: int = setting(16, help="numbers that the auto-encoder makes of a shower, beside its energy", least=1)

    def build(self, geometry: Geometry) -> AutoEncoder:
        from training.models.autoencoder.model import AutoEncoder  # noqa: PLC0415  TensorFlow

        return AutoEncoder(geometry, code=self.code)


CONFIGS["autoencoder"] = AutoEncoderConfig(
    model="autoencoder", batch=32, epochs=1_000_000, steps=400, learning_rate=2e-3, schedule="cosine",
    evaluation_steps=100,
)  # fmt: skip
