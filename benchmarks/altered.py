"""Files with as many showers as a benchmark needs, made from the showers of the sample.

A shower may be mirrored in x and in y; the detector and the beam have these symmetries. Deposits and energy are scaled
by a factor, within 5 %, that is different for each shower. So no two events are equal.
"""

from __future__ import annotations

import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import h5py
import numpy as np

from calopipe.showers.cells import REFERENCE_GEOMETRY, FloatArray
from calopipe.showers.files import open_showers
from calopipe.showers.hits import Hits

PER_FILE = 5_000
_CHUNK = 10  # showers in a chunk, as in the sample
_SCALED = 0.05  # largest change of the energy, as a share
_WORKERS = 2


@cache
def sources(inputs: tuple[Path, ...]) -> tuple[Hits, FloatArray, FloatArray]:
    """Hits, energies in GeV and angles in rad (N,) of all showers of `inputs`, which each process reads once."""
    opened = [open_showers(path) for path in inputs]
    parts = [Hits.of(piece) for file in opened for _, piece in file.pieces(0, file.events)]
    before = np.cumsum([0, *map(len, parts)])
    hits = Hits(
        np.concatenate([part.row + first for part, first in zip(parts, before, strict=False)]),
        np.concatenate([part.cell for part in parts]),
        np.concatenate([part.value for part in parts]),
        (int(before[-1]), *parts[0].shape[1:]),
    )
    energy, theta = (np.concatenate([getattr(file, name) for file in opened]) for name in ("energy_gev", "theta_rad"))
    return hits, energy, theta


def write_altered(inputs: tuple[Path, ...], path: Path, number: int, *, shuffle: bool) -> None:
    """Write file `number` of altered showers of `inputs` to `path`."""
    hits, energy, theta = sources(inputs)
    edges = hits.edges()
    nx, ny, layers = hits.shape[1:]
    rng = np.random.default_rng(number)
    chosen = rng.integers(len(hits), size=PER_FILE)
    scale = rng.uniform(1 - _SCALED, 1 + _SCALED, PER_FILE)  # float32 has too few numbers: events would be equal
    mirror_x, mirror_y = rng.integers(2, size=(2, PER_FILE)).astype(bool)
    temporary = path.with_suffix(".partial")
    with h5py.File(temporary, "w") as file:
        file.attrs.update({name: value for name, value in REFERENCE_GEOMETRY.to_json().items() if name != "shape"})
        file["energy"] = (energy[chosen] * scale).astype(np.float32)
        file["theta"] = np.where(mirror_y, np.float32(np.pi) - theta[chosen], theta[chosen])  # the tilt is along y
        chunks = (_CHUNK, nx, ny, layers)
        ecal = file.create_dataset(
            "ECAL", (PER_FILE, nx, ny, layers), "f4", chunks=chunks, compression=1, shuffle=shuffle
        )
        for first in range(0, PER_FILE, _CHUNK):
            block = np.zeros((_CHUNK, nx * ny * layers), np.float32)
            for row, event in enumerate(range(first, first + _CHUNK)):
                inside = slice(edges[chosen[event]], edges[chosen[event] + 1])
                column, layer = np.divmod(hits.cell[inside], layers)
                x, y = np.divmod(column, ny)
                x, y = (nx - 1 - x if mirror_x[event] else x), (ny - 1 - y if mirror_y[event] else y)
                block[row, (x * ny + y) * layers + layer] = hits.value[inside] * scale[event]
            data = block.view(np.uint8).reshape(-1, 4).T.tobytes() if shuffle else block.data
            ecal.id.write_direct_chunk((first, 0, 0, 0), zlib.compress(data, 1))
    temporary.replace(path)


def make(inputs: tuple[Path, ...], folder: Path, showers: int, *, shuffle: bool) -> list[Path]:
    """Make files with `showers` altered showers of `inputs` in `folder`; existing files are kept.

    Files are compressed by gzip at level 1. With a byte `shuffle`, as in the sample, HDF5 takes several times as long
    to read them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:04d}.h5" for number in range(-(-showers // PER_FILE))]
    missing = [number for number, path in enumerate(paths) if not path.exists()]
    if missing:
        began = time.perf_counter()
        with ProcessPoolExecutor(_WORKERS) as pool:
            for done in [pool.submit(write_altered, inputs, paths[n], n, shuffle=shuffle) for n in missing]:
                done.result()
        print(f"made {len(missing) * PER_FILE:,} showers in {time.perf_counter() - began:,.0f} s", flush=True)
    return paths
