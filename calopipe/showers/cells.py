"""The unit of data, a batch of showers, and the geometry of the calorimeter that recorded them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import groupby, pairwise
from math import fsum, inf, isclose
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.labels import MoreLabels, taken

FloatArray = npt.NDArray[np.float32]
Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

# The reference stores deposits as GeV x 50 (svalleco/3Dgan), which brings a shower's sum near its incident energy.
REFERENCE_UNIT_GEV = 0.02
# A hit, in training and validation: 0.3 MeV, about twice what a minimum ionising particle most often leaves in 0.5 mm
# of silicon. 64 % of the non-zero cells of the Geant4 sample are hits, with 98 % of its energy.
HIT_GEV = 3e-4
_SINGLE = 1e-6  # relative difference of a length between a file in single precision and another file
EMPTY_SHOWER_ANGLE = 100.0  # the reference's value for a shower without energy, in rad: far from any angle

# Radiation lengths in mm: Particle Data Group, Review of Particle Physics, "Atomic and nuclear properties".
# Ar is the gas at 20 degrees Celsius and one atmosphere.
RADIATION_LENGTHS_MM = {
    "Al": 88.97, "Ar": 117_600.0, "BGO": 11.18, "CsI": 18.60, "Cu": 14.35, "Fe": 17.57, "LAr": 140.0, "LKr": 47.03,
    "LXe": 28.72, "NaI": 25.88, "Pb": 5.612, "PbWO4": 8.903, "Si": 93.70, "Sn": 12.06, "U": 3.166, "W": 3.504,
    "polystyrene": 413.1,
}  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One layer of a calorimeter: `pitch_mm` thick, of `x0` radiation lengths, with `cells` (n, m).

    Rectangular cells: n along x and m along y, each of `size_mm`, with the calorimeter's axis in the middle. Cells in
    rings: n in angle and m in radius; `r_edges_mm` are the m + 1 edges of the rings, and the angles begin at -pi.
    """

    pitch_mm: float
    x0: float
    cells: tuple[int, int]
    size_mm: tuple[float, float] | None = None
    r_edges_mm: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.cells) != 2 or not all(type(count) is int and count > 0 for count in self.cells):
            raise InputError(f"geometry: a layer has {self.cells} cells, expected two positive counts")
        if not _positive(self.pitch_mm, self.x0):
            raise InputError(
                f"geometry: a layer of {self.pitch_mm:.6g} mm and {self.x0:.6g} X0, expected positive numbers"
            )
        if (self.size_mm is None) == (self.r_edges_mm is None):
            raise InputError("geometry: a layer needs either the size of its cells or the edges of its rings")
        size, edges = self.size_mm, self.r_edges_mm
        if size is not None and not (len(size) == 2 and _positive(*size)):
            raise InputError(f"geometry: a layer has cells of {size} mm, expected two positive numbers")
        radii = self.cells[1] + 1
        rising = all(0 <= inner < outer < inf for inner, outer in pairwise(edges or ()))
        if edges is not None and not (len(edges) == radii and rising):
            raise InputError(f"geometry: a layer has rings between {edges} mm, expected {radii} rising radii")

    def __str__(self) -> str:
        n, m = self.cells
        of = f"{n} x {m} cells of {_numbers(self.size_mm)} mm" if self.size_mm else ""
        of = of or f"{n} angles x {m} rings between {_numbers(self.r_edges_mm or ())} mm"
        return f"{of}, {self.pitch_mm:g} mm and {self.x0:.4g} X0 thick"


def _positive(*values: float) -> bool:
    return all(0 < value < inf for value in values)


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


@dataclass(frozen=True)
class Geometry:
    """Cells of a sampling calorimeter: `shape` counts them along x, y and depth (layers).

    `file_unit_gev` is the energy, in GeV, of a deposit of 1.0 in a cell. If layers differ, or their cells are in rings,
    `layers` describes each layer; the layer that is hit first comes first. Then `shape` is the largest number of cells
    of a layer (for rings in angle and radius), and `cell_mm`, `layer_pitch_mm`, `x0_per_layer` are typical sizes
    (`of_layers`).
    """

    items: ClassVar[str] = "showers"  # what a dataset of this kind holds
    alike: ClassVar[str] = "files of one detector, or give --geometry"  # what a dataset is made of
    # these may differ from the geometry of the model that a warm start begins with
    rescaled: ClassVar[tuple[str, ...]] = ("cell_mm", "layer_pitch_mm", "x0_per_layer")

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
            if not _positive(value):
                raise InputError(f"geometry: {name} must be a positive number, found {value}")
        if not self.layers:
            return
        if len({layer.r_edges_mm is None for layer in self.layers}) > 1:
            raise InputError("geometry: the cells of all layers must be rectangular, or of all layers in rings")
        most = (*np.max([layer.cells for layer in self.layers], axis=0).tolist(), len(self.layers))
        if tuple(self.shape) != most:
            raise InputError(f"geometry: shape is {self.shape}, by the list of its layers {most}")

    @classmethod
    def of_layers(cls, layers: Sequence[Layer], file_unit_gev: float) -> Geometry:
        """A calorimeter of these layers. They are listed unless all are alike and their cells are squares.

        If the layers are listed, `cell_mm` is the median over layers of the size of a cell, or of the width of the
        innermost ring. Pitch and radiation lengths are means.
        """
        if not layers:
            raise InputError("geometry: no layers")
        first = layers[0]
        if set(layers) == {first} and first.size_mm is not None and first.size_mm[0] == first.size_mm[1]:
            return cls((*first.cells, len(layers)), first.size_mm[0], first.pitch_mm, first.x0, file_unit_gev)
        sizes = [
            layer.size_mm or (layer.r_edges_mm[1] - layer.r_edges_mm[0],) * 2  # type: ignore[index]  # one or the other
            for layer in layers
        ]
        shape = (max(layer.cells[0] for layer in layers), max(layer.cells[1] for layer in layers), len(layers))
        return cls(
            shape,
            cell_mm=float(np.median([np.sqrt(np.prod(size)) for size in sizes])),
            layer_pitch_mm=fsum(layer.pitch_mm for layer in layers) / len(layers),
            x0_per_layer=fsum(layer.x0 for layer in layers) / len(layers),
            file_unit_gev=file_unit_gev,
            layers=tuple(layers),
        )

    @property
    def every_layer(self) -> tuple[Layer, ...]:
        """The layers, also if they are alike and therefore not listed."""
        n, m, layers = self.shape
        alike = Layer(self.layer_pitch_mm, self.x0_per_layer, (n, m), size_mm=(self.cell_mm, self.cell_mm))
        return self.layers or (alike,) * layers

    @property
    def cells(self) -> int:
        """Number of places for cells in one shower: the product of `shape`."""
        return int(np.prod(self.shape))

    @property
    def voxels(self) -> int:
        """Number of cells that exist."""
        return sum(layer.cells[0] * layer.cells[1] for layer in self.every_layer)

    @property
    def rings(self) -> bool:
        """Whether the cells are in rings about the calorimeter's axis."""
        return bool(self.layers) and self.layers[0].r_edges_mm is not None

    def difference(self, other: Geometry, *, unit: bool = False) -> tuple[str, str, str] | None:
        """The first property in which the detectors differ: its name, its value here, and its value in `other`; None
        if they do not differ. The unit of the files counts only if `unit` is true.
        """
        names = ["shape"] if self.layers or other.layers else [name for name in asdict(self) if name != "layers"]
        for name in dict.fromkeys((*names, "file_unit_gev")):
            value, other_value = getattr(self, name), getattr(other, name)
            same = value == other_value if name == "shape" else isclose(value, other_value, rel_tol=_SINGLE)
            if not same and (unit or name != "file_unit_gev"):
                return name, str(value), str(other_value)
        if self.layers or other.layers:
            for number, (layer, other_layer) in enumerate(zip(self.every_layer, other.every_layer, strict=True)):
                if layer != other_layer:
                    return f"layer {number}", str(layer), str(other_layer)
        return None

    def to_json(self) -> dict[str, Any]:
        """As a JSON document. Alike layers that follow each other are written as one, with their `count`."""
        document = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "layers"}
        listed = [
            {name: value for name, value in asdict(layer).items() if value is not None} | {"count": len([*alike])}
            for layer, alike in groupby(self.layers)
        ]
        return document | ({"layers": listed} if listed else {})

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Geometry:
        """The geometry that `to_json` wrote. KeyError, TypeError or InputError: the document is not a geometry."""
        layers: list[Layer] = []
        for entry in {**document}.get("layers", ()):  # a TypeError if it is no table
            layer: dict[str, Any] = dict(entry)
            layer |= {name: tuple(value) for name, value in layer.items() if isinstance(value, list)}
            count = layer.pop("count", 1)
            layers += [Layer(**layer)] * count
        return cls(**{**document, "shape": tuple(document["shape"]), "layers": tuple(layers)})


# The reference's detector, as in the Geant4 sample: 25 layers of 3.5 mm W + 0.5 mm Si, cells of 5.1 mm.
REFERENCE_GEOMETRY = Geometry(
    shape=(51, 51, 25), cell_mm=5.1, layer_pitch_mm=4.0, x0_per_layer=1.004, file_unit_gev=REFERENCE_UNIT_GEV
)


@dataclass(frozen=True)
class Showers:
    """N showers and the particles that made them.

    `cells` (N, x, y, layer) holds the deposits in file units (see `Geometry.file_unit_gev`); `energy_gev` (N,) the
    incident energy; `theta_rad` (N,) the incident polar angle, pi/2 being normal incidence; `mtheta_rad` (N,) the
    angle measured from the cells (`calopipe.showers.angle`); `more` the labels that not all showers have.
    """

    cells: FloatArray
    energy_gev: FloatArray
    theta_rad: FloatArray
    mtheta_rad: FloatArray
    more: MoreLabels = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        arrays = self.arrays | dict(self.more)
        if len({len(array) for array in arrays.values()}) != 1 or self.cells.ndim != 4:
            shapes = {name: array.shape for name, array in arrays.items()}
            raise ValueError(f"the arrays of a batch of showers disagree: {shapes}")

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """The arrays that all showers have, by name."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "more"}

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, index: Any) -> Showers:
        """The showers that a slice, an index array or a mask selects."""
        return Showers(*(values[index] for values in self.arrays.values()), more=taken(self.more, index))
