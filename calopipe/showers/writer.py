"""Write showers to an HDF5 file, in the layout of variable angles."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np

from calopipe import storage
from calopipe.showers.cells import Geometry, Showers
from calopipe.storage import Location


class _Sink(io.FileIO):
    """A file that keeps its first error of writing, for HDF5 crashes the process where one is raised."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while len(rest) and self.error is None:
            try:
                rest = rest[super().write(rest) :]
            except OSError as error:
                self.error = error
        return size


class ShowerWriter:
    """Writes showers batch by batch into the file that `shower_writer` opened."""

    def __init__(self, file: h5py.File, sink: _Sink, geometry: Geometry) -> None:
        self._file, self._sink = file, sink
        self._events = 0
        file.create_dataset(
            "ECAL", (0, *geometry.shape), "f4", maxshape=(None, *geometry.shape),
            chunks=(10, *geometry.shape), compression="gzip", compression_opts=1, shuffle=True,
        )  # fmt: skip
        for name in ("energy", "theta", "mtheta", "eta", "sum"):
            file.create_dataset(name, (0,), "f4", maxshape=(None,), chunks=(1024,))

    def write(self, showers: Showers) -> None:
        """Append `showers`. Their measured angle is taken from `mtheta_rad`, the pseudorapidity from `theta_rad`."""
        columns = {
            "ECAL": showers.cells,
            "energy": showers.energy_gev,
            "theta": showers.theta_rad,
            "mtheta": showers.mtheta_rad,
            "eta": -np.log(np.tan(showers.theta_rad / 2)),
            "sum": showers.cells.sum(axis=(1, 2, 3)),
        }
        start, self._events = self._events, self._events + len(showers)
        for name, values in columns.items():
            self._file[name].resize(self._events, axis=0)
            self._file[name][start:] = values
        if self._sink.error is not None:
            raise self._sink.error


@contextmanager
def shower_writer(path: Location, geometry: Geometry, attributes: Mapping[str, Any]) -> Iterator[ShowerWriter]:
    """A writer of the file `path`, which appears when it is complete. `attributes` are added to the geometry's."""
    with storage.replacing(path) as temporary, _Sink(temporary, "w+") as sink:
        with h5py.File(sink, "w") as file:
            stated = {name: value for name, value in geometry.to_json().items() if name != "shape"}
            file.attrs.update({**stated, **attributes})
            yield ShowerWriter(file, sink, geometry)
        if sink.error is not None:  # from what HDF5 wrote as it closed
            raise sink.error
