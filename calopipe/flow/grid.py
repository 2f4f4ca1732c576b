"""Where and when a flow's velocity is known: the cells of its frames, and the time between two."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from calopipe.errors import InputError


@dataclass(frozen=True)
class Grid:
    """`shape` (x, y) counts square cells along and across the inflow. Lengths are in heights D of the obstacle, times
    in D/U, U being the speed of the inflow.

    A cell is `cell_d` wide. Frames are `interval_d` apart; in a dataset, the two frames of a pair are.
    """

    items: ClassVar[str] = "pairs of frames"  # what a dataset of this kind holds
    alike: ClassVar[str] = "flows of one grid and interval"  # what a dataset is made of
    rescaled: ClassVar[tuple[str, ...]] = ()  # may differ from the grid of the model that a warm start begins with

    shape: tuple[int, int]
    cell_d: float
    interval_d: float

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise InputError(f"grid: shape must be two positive counts of cells, found {self.shape}")
        for name in ("cell_d", "interval_d"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"grid: {name} must be a positive number, found {value}")

    @property
    def cells(self) -> int:
        """Number of cells of a frame."""
        return self.shape[0] * self.shape[1]

    def difference(self, other: Grid, *, unit: bool = False) -> tuple[str, str, str] | None:  # noqa: ARG002  one unit
        """The first property in which the grids differ: its name, its value here and in `other`; None if they agree.

        Lengths and times that agree to a millionth are equal, because files state them as computed by the solver.
        """
        if self.shape != other.shape:
            return "shape", str(self.shape), str(other.shape)
        for name in ("cell_d", "interval_d"):
            value, other_value = getattr(self, name), getattr(other, name)
            if not np.isclose(value, other_value, rtol=1e-6, atol=0):
                return name, f"{value:g}", f"{other_value:g}"
        return None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"shape": list(self.shape)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Grid:
        """The grid that `to_json` wrote. KeyError, TypeError or InputError: the document is not a grid."""
        return cls(**document | {"shape": tuple(document["shape"])})
