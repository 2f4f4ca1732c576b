"""The unit of data, a batch of showers, and the geometry of the calorimeter that recorded them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError

FloatArray = npt.NDArray[np.float32]

# The reference stores deposits as GeV x 50 (svalleco/3Dgan), which brings a shower's sum near its incident energy.
REFERENCE_UNIT_GEV = 0.02


@dataclass(frozen=True)
class Layer:
    """One layer of a calorimeter: `pitch_mm` thick, `x0` radiation lengths, with `cells` (n, m) of them.

    Rectangular cells lie n along x and m along y, `size_mm` each, the calorimeter's axis in the middle. Cells in rings
    lie n in angle and m in radius: `r_edges_mm` are the m + 1 radii between the rings, and the angles begin at -pi.
    """

    pitch_mm: float
    x0: float
    cells: tuple[int, int]
    size_mm: tuple[float, float] | None = None
    r_edges_mm: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.cells) != 2 or min(self.cells) < 1:
            raise InputError(f"geometry: a layer has {self.cells} cells, expected two positive counts")
        if not (self.pitch_mm > 0 and self.x0 > 0 and np.isfinite([self.pitch_mm, self.x0]).all()):
            raise InputError(f"geometry: a layer of {self.pitch_mm} mm and {self.x0} X0, expected positive numbers")
        if (self.size_mm is None) == (self.r_edges_mm is None):
            raise InputError("geometry: a layer needs either the size of its cells or the edges of its rings")
        if self.size_mm is not None and not (np.isfinite(self.size_mm).all() and min(self.size_mm) > 0):
            raise InputError(f"geometry: a layer has cells of {self.size_mm} mm, expected positive numbers")
        edges = self.r_edges_mm
        if edges is not None and not (
            len(edges) == self.cells[1] + 1
            and edges[0] >= 0
            and np.isfinite(edges).all()
            and (np.diff(edges) > 0).all()
        ):
            raise InputError(
                f"geometry: a layer has rings between {edges} mm, expected {self.cells[1] + 1} rising radii"
            )

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Layer:
        pairs = {name: tuple(document[name]) for name in ("cells", "size_mm", "r_edges_mm") if document.get(name)}
        return cls(document["pitch_mm"], document["x0"], **pairs)


@dataclass(frozen=True)
class Geometry:
    """Cells of a sampling calorimeter: `shape` counts them along x, y and depth (layers).

    `file_unit_gev` is the energy, in GeV, of a deposit of 1.0 in a cell. Where layers differ, or their cells are in
    rings, `layers` describes each, the first to be hit first; then `shape` is the most cells that a layer has, in angle
    and radius where they are in rings, and `cell_mm`, `layer_pitch_mm`, `x0_per_layer` are typical sizes (`of_layers`).
    """

    shape: tuple[int, int, int]
    cell_mm: float
    layer_pitch_mm: float
    x0_per_layer: float
    file_unit_gev: float
    layers: tuple[Layer, ...] = ()

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise InputError(f"geometry: shape must be three positive counts of cells, found {self.shape}")
        for name in ("cell_mm", "layer_pitch_mm", "x0_per_layer", "file_unit_gev"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"geometry: {name} must be a positive number, found {value}")
        if self.layers and len({layer.r_edges_mm is None for layer in self.layers}) > 1:
            raise InputError("geometry: the cells of all layers must be rectangular, or of all layers in rings")

    @classmethod
    def of_layers(cls, layers: Sequence[Layer], file_unit_gev: float) -> Geometry:
        """A calorimeter of these layers. `cell_mm` is the median over layers of a cell's size, or of the width of the
        innermost ring; pitch and radiation lengths are means.
        """
        if not layers:
            raise InputError("geometry: no layers")
        sizes = [
            layer.size_mm or (layer.r_edges_mm[1] - layer.r_edges_mm[0],) * 2  # type: ignore[index]  # one or the other
            for layer in layers
        ]
        shape = (max(layer.cells[0] for layer in layers), max(layer.cells[1] for layer in layers), len(layers))
        return cls(
            shape,
            cell_mm=float(np.median([np.sqrt(np.prod(size)) for size in sizes])),
            layer_pitch_mm=float(np.mean([layer.pitch_mm for layer in layers])),
            x0_per_layer=float(np.mean([layer.x0 for layer in layers])),
            file_unit_gev=file_unit_gev,
            layers=tuple(layers),
        )

    @property
    def cells(self) -> int:
        """Number of places for cells in one shower: the product of `shape`."""
        return int(np.prod(self.shape))

    @property
    def rings(self) -> bool:
        """Whether the cells are in rings about the calorimeter's axis."""
        return bool(self.layers) and self.layers[0].r_edges_mm is not None

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        if not self.layers:
            del document["layers"]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Geometry:
        layers = tuple(Layer.from_json(layer) for layer in document.get("layers", ()))
        return cls(**{**document, "shape": tuple(document["shape"]), "layers": layers})


# The reference's detector, as in the Geant4 sample: 25 layers of 3.5 mm W + 0.5 mm Si, cells of 5.1 mm.
REFERENCE_GEOMETRY = Geometry(
    shape=(51, 51, 25), cell_mm=5.1, layer_pitch_mm=4.0, x0_per_layer=1.004, file_unit_gev=REFERENCE_UNIT_GEV
)


@dataclass(frozen=True)
class Showers:
    """N showers and the particles that made them.

    `cells` (N, x, y, layer) holds the deposits in file units (see `Geometry.file_unit_gev`); `energy_gev` (N,) the
    incident energy; `theta_rad` (N,) the incident polar angle, pi/2 being normal incidence; `mtheta_rad` (N,) the
    angle measured from the cells (`calopipe.showers.angle`).
    """

    cells: FloatArray
    energy_gev: FloatArray
    theta_rad: FloatArray
    mtheta_rad: FloatArray

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, field.name)) for field in fields(self)}
        if len(lengths) != 1 or self.cells.ndim != 4:
            shapes = {field.name: getattr(self, field.name).shape for field in fields(self)}
            raise ValueError(f"the arrays of a batch of showers disagree: {shapes}")

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, index: Any) -> Showers:
        """The showers that a slice, an index array or a mask selects."""
        return Showers(*(getattr(self, field.name)[index] for field in fields(self)))
