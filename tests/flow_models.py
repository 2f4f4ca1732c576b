"""Folders of flow models without a training, a flow in closed form to start them from, and pairs of its frames."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import numpy.typing as npt

from calopipe.events.splits import SplitRule
from calopipe.events.tolerance import Tolerance
from calopipe.flow.files import Flow, flow_writer
from calopipe.flow.grid import Grid
from calopipe.options import setting
from preprocessing.flow.manifest import PairSettings
from preprocessing.pipeline import preprocess
from training import model_folder
from training.model_folder import Card
from training.models.base import Phase, build
from training.models.config import FitConfig, register
from training.models.flow import INFLOW, FlowModel
from training.models.weights import save_weights

GRID = Grid((48, 16), cell_d=0.25, interval_d=0.25)
REYNOLDS = (60.0, 160.0)


def street(frames: int, grid: Grid = GRID) -> npt.NDArray[np.float32]:
    """Velocities (T, x, y, 2), free of divergence, of vortices that the inflow carries along by one cell a frame.

    Their stream function is that of Stuart's vortices, periodic along x.
    """
    x, y = ((np.arange(cells) + 0.5) * grid.cell_d for cells in grid.shape)
    x, y = np.meshgrid(x, y - y.mean(), indexing="ij")
    time = np.arange(frames)[:, None, None] * grid.cell_d
    wave = 2 * np.pi / (grid.shape[0] * grid.cell_d / 4)
    denominator = np.cosh(wave * y) + 0.5 * np.cos(wave * (x - time))
    u, v = 0.3 * np.sinh(wave * y) / denominator, 0.15 * np.sin(wave * (x - time)) / denominator
    return np.stack([1 + u, v], -1).astype(np.float32)


def write_model(place: Path, config: FitConfig, grid: Grid = GRID, *, spread: float = 0.0) -> Card:
    """The model of `config` with its initial weights, to which normal numbers of this `spread` are added."""
    place.mkdir()
    model, rng = build(config, grid), np.random.default_rng(4)
    for network in model.networks.values():
        for weight in network.trainable_weights:
            weight.assign_add(rng.normal(0, spread, weight.shape))
    card = Card(
        request="untrained", config=config, geometry=grid, dataset={}, valid_range={"reynolds": REYNOLDS}, trained={},
        losses={}, weights=save_weights(place, model.networks), versions={},
    )  # fmt: skip
    model_folder.write_card(place, card)
    return card


@register("carried")
@dataclass(frozen=True, kw_only=True)
class CarriedConfig(FitConfig):
    domain: ClassVar[type[Grid]] = Grid
    gain: float = setting(1.0, help="by which the deviation from the inflow grows in a step")

    def build(self, geometry: Grid) -> Carried:
        return Carried(self.gain)


class Carried(FlowModel):
    """Moves the deviation from the inflow by a cell a step, and lets inflow follow: exact for vortices of one speed."""

    def __init__(self, gain: float) -> None:
        frame = keras.Input((None, None, 2))
        shift = keras.layers.DepthwiseConv2D(3, padding="same", use_bias=False)
        self.networks = {"shift": keras.Model(frame, shift(frame))}
        kernel = np.zeros((3, 3, 2, 1))
        kernel[0, 1] = gain  # the cell upstream
        shift.kernel.assign(kernel)
        self.phases: tuple[Phase, ...] = ()

    def advance(self, velocity: Any, solid: Any, reynolds: Any) -> Any:
        return self.networks["shift"](velocity - np.float32(INFLOW)) + np.float32(INFLOW)


def carried(place: Path, gain: float = 1.0, grid: Grid = GRID) -> Path:
    """Make a model `Carried` in the folder `place`. Returns `place`."""
    write_model(place, CarriedConfig(model="carried", epochs=1, batch=1, learning_rate=0.1, gain=gain), grid)
    return place


def write_pairs(place: Path, velocity: npt.NDArray[np.float32], grid: Grid, *, train: int) -> Path:
    """A dataset of pairs of successive frames of `velocity` (T, x, y, 2), no obstacle; the first are trained on."""
    place.mkdir()
    for split, frames, reynolds in (("train", velocity[: train + 1], 80.0), ("validation", velocity[train:], 120.0)):
        flow = Flow(grid, np.zeros(grid.shape, bool), reynolds, (0.5, 1.0), "tests")
        with flow_writer(place / f"{split}.h5", flow) as write:
            write(frames)
    settings = PairSettings(SplitRule.parse([f"{split}={split}.h5" for split in ("train", "validation")]))
    preprocess(settings.discover([str(place / "*.h5")], Tolerance()), place / "ds", settings)
    return place / "ds"
