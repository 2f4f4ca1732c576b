"""The manifest of a dataset of a flow."""

from __future__ import annotations

from dataclasses import dataclass

from calopipe.flow.grid import Grid
from preprocessing.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class FlowManifest(Manifest):
    """Of a dataset of pairs of frames. `reynolds` are the lowest and highest Reynolds number of the pairs written."""

    kind = "calopipe.flow.dataset"
    domain = Grid

    geometry: Grid
    reynolds: tuple[float, float]

    @property
    def valid_range(self) -> dict[str, tuple[float, float]]:
        return {"reynolds": self.reynolds}
