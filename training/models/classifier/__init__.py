"""CaloChallenge's classifiers of cells and of high-level features, which tell generated showers from Geant4's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from calopipe.options import setting
from calopipe.showers.calochallenge.highlevel import require_rings
from calopipe.showers.cells import Geometry
from training.models.config import FitConfig, register

if TYPE_CHECKING:
    from training.models.classifier.model import Discriminator

LEVELS = ("low", "high")


@register(*(f"{level}-level-classifier" for level in LEVELS))
@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(FitConfig):
    """The defaults are those of evaluate.py in the public repository CaloChallenge/homepage (at 04b79ce0).

    The network has a layer from the inputs to `hidden` numbers, `hidden_layers` more such layers, and a layer with one
    answer. Leaky ReLU and `dropout` follow each but the last. The epoch of the highest validation accuracy is kept.
    """

    epochs: int = setting(50, help="passes over the train split", least=1)
    batch: int = setting(1000, help="showers a replica and step", least=1)
    learning_rate: float = setting(2e-4, help="of the optimizers")
    evaluation_share: float = 0.0  # the whole split, as published
    hidden: int = setting(512, help="width of the classifier's hidden layers", least=1)
    hidden_layers: int = setting(2, help="the classifier's hidden layers after the first", least=0)
    dropout: float = setting(0.0, help="share of a hidden layer's numbers that a step leaves out", least=0, below=1)

    def check_shape(self, geometry: Geometry) -> None:
        if self.model.startswith("high"):
            require_rings(geometry)

    def build(self, geometry: Geometry) -> Discriminator:
        from training.models.classifier.model import Discriminator  # noqa: PLC0415  TensorFlow

        return Discriminator(
            geometry,
            high=self.model.startswith("high"),
            hidden=self.hidden,
            layers=self.hidden_layers,
            dropout=self.dropout,
        )
