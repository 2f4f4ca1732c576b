"""Write showers to an HDF5 file: in the layout of variable angles, or in CaloChallenge's."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from calopipe import storage
from calopipe.labels import DATASETS
from calopipe.showers.cells import Geometry, Showers
from calopipe.showers.layouts import CELLS, ENERGIES, GEOMETRY, VOXELS
from calopipe.showers.positions import voxel_order
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


def showers_a_chunk(geometry: Geometry) -> int:
    """How many showers a file of this geometry stores, and compresses, together."""
    return 50 if geometry.rings else 10


class ShowerWriter:
    """Writes showers batch by batch into the file that `shower_writer` opened."""

    def __init__(self, file: h5py.File, sink: _Sink, geometry: Geometry, deposits: str) -> None:
        self._file, self._sink, self._geometry, self._deposits = file, sink, geometry, deposits
        self._events = 0
        self._outside = np.delete(np.arange(geometry.cells), voxel_order(geometry))
        if deposits == VOXELS:
            self._create(VOXELS, len(voxel_order(geometry)))
            # double precision: an energy in GeV is the same, to the bit, when it is read again
            file.create_dataset(ENERGIES, (0, 1), "f8", maxshape=(None, 1), chunks=(1024, 1))
            return
        self._create(CELLS, *geometry.shape)
        for name in ("energy", "theta", "mtheta", "eta", "sum"):
            self._require_label(name, "f4")

    def _create(self, name: str, *shape: int) -> None:
        self._file.create_dataset(
            name, (0, *shape), "f4", maxshape=(None, *shape), chunks=(showers_a_chunk(self._geometry), *shape),
            compression="gzip", compression_opts=1, shuffle=True,
        )  # fmt: skip

    def write(self, showers: Showers) -> None:
        """Append `showers`. Their measured angle is taken from `mtheta_rad`, the pseudorapidity from `theta_rad`.

        CaloChallenge's layout holds no theta. ValueError: they hold energy where the calorimeter has no cell.
        """
        flat = showers.cells.reshape(len(showers), -1)
        if self._outside.size and flat[:, self._outside].any():
            raise ValueError("showers hold energy where the calorimeter has no cell")
        if self._deposits == VOXELS:
            mev = showers.energy_gev.astype(np.float64)[:, None] * 1e3
            columns: dict[str, Any] = {VOXELS: flat[:, voxel_order(self._geometry)], ENERGIES: mev}
        else:
            columns = {
                CELLS: showers.cells,
                "energy": showers.energy_gev,
                "theta": showers.theta_rad,
                "mtheta": showers.mtheta_rad,
                "eta": -np.log(np.tan(showers.theta_rad / 2)),
                "sum": showers.cells.sum(axis=(1, 2, 3)),
            }
        columns |= {DATASETS[name]: values for name, values in showers.more.items()}
        start, self._events = self._events, self._events + len(showers)
        for name, values in columns.items():
            self._require_label(name, values.dtype)
            self._file[name].resize(self._events, axis=0)
            self._file[name][start:] = values
        self._require_written()

    def _require_label(self, name: str, kind: Any) -> None:
        """Make the dataset of a label, a number a shower, if it is not there."""
        if name not in self._file:
            self._file.create_dataset(name, (0,), kind, maxshape=(None,), chunks=(1024,))

    def append(self, path: Path) -> None:
        """Append the showers of a file of this geometry that `shower_writer` made, chunks of cells as they are stored.

        The showers before must fill whole chunks.
        """
        start = self._events
        with h5py.File(path) as part:
            for name, stored in part.items():
                self._require_label(name, stored.dtype)
                self._events = start + len(stored)
                self._file[name].resize(self._events, axis=0)
                if stored.compression is None:
                    self._file[name][start:] = stored[()]
                    continue
                for number in range(stored.id.get_num_chunks()):
                    first, *others = stored.id.get_chunk_info(number).chunk_offset
                    filters, content = stored.id.read_direct_chunk((first, *others))
                    self._file[name].id.write_direct_chunk((start + first, *others), content, filters)
        self._require_written()

    def _require_written(self) -> None:
        if self._sink.error is not None:
            raise self._sink.error


@contextmanager
def shower_writer(
    path: Location, geometry: Geometry, attributes: Mapping[str, Any], deposits: str = ""
) -> Iterator[ShowerWriter]:
    """A writer of the file `path`, which appears when it is complete. `attributes` are added to the geometry's.

    `deposits` says which layout, as of a `ShowerFile`; without it, cells in rings are written in CaloChallenge's.
    """
    deposits = deposits or (VOXELS if geometry.rings else CELLS)
    with storage.replacing(path) as temporary, _Sink(temporary, "w+") as sink:
        with h5py.File(sink, "w") as file:
            described = geometry.to_json()
            stated = {name: value for name, value in described.items() if name not in {"shape", "layers"}}
            if geometry.layers or deposits == VOXELS:
                stated[GEOMETRY] = json.dumps(described)
            file.attrs.update({**stated, **attributes})
            yield ShowerWriter(file, sink, geometry, deposits)
        if sink.error is not None:  # from what HDF5 wrote as it closed
            raise sink.error
