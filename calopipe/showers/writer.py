"""Write showers to an HDF5 file, in the layout of variable angles or in CaloChallenge's layout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from zlib_ng import zlib_ng

from calopipe.events.hdf5 import Sink, new_file
from calopipe.labels import DATASETS
from calopipe.showers.cells import FloatArray, Geometry, Showers
from calopipe.showers.layouts import CELLS, ENERGIES, GEOMETRY, VOXELS
from calopipe.showers.positions import require_cells, voxel_order
from calopipe.storage import Location

_LEVEL = 2  # of the compression; level 1 is hardly faster, and its files are 40 % larger


def showers_a_chunk(geometry: Geometry) -> int:
    """How many showers of this geometry are stored and compressed together in a file."""
    return 50 if geometry.rings else 10


class _Deposits:
    """The deposits of a file, compressed by zlib-ng in an eighth of the time that HDF5's own gzip filter takes."""

    def __init__(self, file: h5py.File, name: str, chunk: int, shape: tuple[int, ...]) -> None:
        """Make the dataset `name` of showers of this `shape`, with `chunk` showers in a chunk."""
        self._stored = file.create_dataset(
            name, (0, *shape), "f4", maxshape=(None, *shape), chunks=(chunk, *shape), compression="gzip"
        )
        self._chunk, self._unfilled = chunk, np.empty((0, *shape), np.float32)  # showers that do not fill a chunk yet

    def write(self, showers: FloatArray) -> None:
        """Append `showers` (N, ...)."""
        if len(self._unfilled):
            showers = np.concatenate([self._unfilled, showers])
        whole = len(showers) - len(showers) % self._chunk
        for first in range(0, whole, self._chunk):
            chunk = np.ascontiguousarray(showers[first : first + self._chunk], np.float32)
            self._append(zlib_ng.compress(chunk, _LEVEL), self._chunk)
        self._unfilled = showers[whole:].copy()

    def append(self, other: h5py.Dataset) -> None:
        """Append the showers of another such dataset, as they are stored. The showers before must fill whole chunks.

        ValueError: they do not, or the other dataset has byte shuffle.
        """
        if len(self._unfilled) or len(self._stored) % self._chunk or other.shuffle:
            raise ValueError(f"{other.file.filename} cannot be appended as it is stored")
        for number in range(other.id.get_num_chunks()):
            place = other.id.get_chunk_info(number).chunk_offset
            filters, content = other.id.read_direct_chunk(place)
            self._append(content, min(self._chunk, len(other) - place[0]), filters)

    def _append(self, content: bytes, showers: int, filters: int = 0) -> None:
        start, *cells = self._stored.shape
        self._stored.resize(start + showers, axis=0)
        self._stored.id.write_direct_chunk((start, *(0 for _ in cells)), content, filters)

    def close(self) -> None:
        """Write the last showers, which fill no chunk."""
        start = len(self._stored)
        self._stored.resize(start + len(self._unfilled), axis=0)
        self._stored[start:] = self._unfilled


class ShowerWriter:
    """Writes showers batch by batch into the file that `shower_writer` opened."""

    def __init__(self, file: h5py.File, sink: Sink, geometry: Geometry, deposits: str) -> None:
        self._file, self._sink, self._geometry, self._deposits = file, sink, geometry, deposits
        shape = (len(voxel_order(geometry)),) if deposits == VOXELS else geometry.shape
        self.cells = _Deposits(file, deposits, showers_a_chunk(geometry), shape)
        if deposits == VOXELS:
            # double precision, so an energy in GeV is the same, to the bit, when it is read again
            file.create_dataset(ENERGIES, (0, 1), "f8", maxshape=(None, 1), chunks=(1024, 1))
            return
        for name in ("energy", "theta", "mtheta", "eta", "sum"):
            self._require_label(name, "f4")

    def write(self, showers: Showers) -> None:
        """Append `showers`. Their measured angle is taken from `mtheta_rad`, the pseudorapidity from `theta_rad`.

        CaloChallenge's layout holds no theta. InputError: showers hold energy where the calorimeter has no cell.
        """
        require_cells(showers.cells, self._geometry)
        if self._deposits == VOXELS:
            self.cells.write(showers.cells.reshape(len(showers), -1)[:, voxel_order(self._geometry)])
            columns: dict[str, Any] = {ENERGIES: showers.energy_gev.astype(np.float64)[:, None] * 1e3}
        else:
            self.cells.write(showers.cells)
            columns = {
                "energy": showers.energy_gev,
                "theta": showers.theta_rad,
                "mtheta": showers.mtheta_rad,
                "eta": -np.log(np.tan(showers.theta_rad / 2)),
                "sum": showers.cells.sum(axis=(1, 2, 3)),
            }
        columns |= {DATASETS[name]: values for name, values in showers.more.items()}
        self._append_labels(columns)

    def append(self, path: Path) -> None:
        """Append the showers of a file of this geometry that `shower_writer` made, without decompressing the cells.

        The showers before must fill whole chunks.
        """
        with h5py.File(path) as part:
            self.cells.append(part[self._deposits])
            self._append_labels({name: stored[()] for name, stored in part.items() if name != self._deposits})

    def _append_labels(self, columns: Mapping[str, Any]) -> None:
        for name, values in columns.items():
            self._require_label(name, values.dtype)
            start = len(self._file[name])
            self._file[name].resize(start + len(values), axis=0)
            self._file[name][start:] = values
        self._sink.require_written()

    def _require_label(self, name: str, kind: Any) -> None:
        """Make the dataset of a label, with a number for each shower, if it is not there."""
        if name not in self._file:
            self._file.create_dataset(name, (0,), kind, maxshape=(None,), chunks=(1024,))


@contextmanager
def shower_writer(
    path: Location, geometry: Geometry, attributes: Mapping[str, Any], deposits: str = ""
) -> Iterator[ShowerWriter]:
    """A writer of the file `path`, which appears when it is complete. `attributes` are added to the geometry's.

    The layout is CaloChallenge's if `deposits`, as in a `ShowerFile`, is `VOXELS`, or is empty and cells are in rings.
    """
    deposits = VOXELS if deposits == VOXELS or (geometry.rings and not deposits) else CELLS
    with new_file(path) as (file, sink):
        described = geometry.to_json()
        stated = {name: value for name, value in described.items() if name not in {"shape", "layers"}}
        if geometry.layers or deposits == VOXELS:
            stated[GEOMETRY] = json.dumps(described)
        file.attrs.update({**stated, **attributes})
        writer = ShowerWriter(file, sink, geometry, deposits)
        yield writer
        writer.cells.close()
