"""The unit of data, a batch of showers, and the geometry of the calorimeter that recorded them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError

FloatArray = npt.NDArray[np.float32]

# The reference stores deposits as GeV x 50 (svalleco/3Dgan), which brings a shower's sum near its incident energy.
REFERENCE_UNIT_GEV = 0.02


@dataclass(frozen=True)
class Geometry:
    """Cells of a sampling calorimeter: `shape` counts them along x, y and depth (layers).

    `file_unit_gev` is the energy, in GeV, of a deposit of 1.0 in a cell.
    """

    shape: tuple[int, int, int]
    cell_mm: float
    layer_pitch_mm: float
    x0_per_layer: float
    file_unit_gev: float

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise InputError(f"geometry: shape must be three positive counts of cells, found {self.shape}")
        for name in ("cell_mm", "layer_pitch_mm", "x0_per_layer", "file_unit_gev"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"geometry: {name} must be a positive number, found {value}")

    @property
    def cells(self) -> int:
        """Number of cells of one shower."""
        return int(np.prod(self.shape))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Geometry:
        return cls(**{**document, "shape": tuple(document["shape"])})

    def with_values(self, text: str) -> Geometry:
        """This geometry with the values of `text` ("cell_mm=5.1,layer_pitch_mm=4") in place of its own."""
        names = [field.name for field in fields(self) if field.name != "shape"]
        values: dict[str, float] = {}
        for item in filter(None, text.split(",")):
            name, _, value = item.partition("=")
            try:
                values[name.strip()] = float(value)
            except ValueError:
                raise InputError(f"--geometry: {item!r} is not NAME=NUMBER") from None
        if unknown := set(values) - set(names):
            raise InputError(f"--geometry: unknown {', '.join(sorted(unknown))}; known: {', '.join(names)}")
        return replace(self, **values)  # type: ignore[arg-type]


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
