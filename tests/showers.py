"""Test showers, and files of them. Showers are deterministic, small, and of a known form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from calopipe.events.splits import SplitRule
from calopipe.events.tolerance import SKIP
from calopipe.showers.angle import angle_of_cells, angle_of_moments
from calopipe.showers.cells import FloatArray, Geometry, Layer, Showers
from calopipe.showers.hits import Hits
from calopipe.showers.positions import positions
from calopipe.showers.selection import Selection
from calopipe.showers.writer import shower_writer
from preprocessing.manifest import Manifest
from preprocessing.pipeline import preprocess
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from validation.measure.observables import Observables, observe

# A coarse calorimeter of the Geant4 sample's outer size: three by three cells and five layers joined.
SMALL_GEOMETRY = Geometry(shape=(17, 17, 5), cell_mm=15.3, layer_pitch_mm=20.0, x0_per_layer=5.02, file_unit_gev=0.02)
# Thin layers of one angle about thick ones of eight, with other radii.
RING_GEOMETRY = Geometry.of_layers(
    [
        Layer(10.0, 1.5, (1, 4), r_edges_mm=(0, 10, 20, 40, 80)),
        *[Layer(30.0, 4.5, (8, 5), r_edges_mm=(0, 5, 10, 20, 40, 60))] * 4,
        Layer(10.0, 1.5, (1, 4), r_edges_mm=(0, 10, 20, 40, 80)),
    ],
    0.001,
)
# A smaller one: one layer without angles, three with.
RINGS = Geometry.of_layers(
    [Layer(4.0, 1.0, (1, 3), r_edges_mm=(0.0, 5.0, 10.0, 30.0))]
    + [Layer(4.0, 1.0, (6, 4), r_edges_mm=(0.0, 5.0, 10.0, 20.0, 40.0))] * 3,
    1e-3,
)
SAMPLE = Path(__file__).parent.parent / "data" / "geant4"
CYLINDER = Path(__file__).parent.parent / "data" / "cylinder" / "Ele_Cylinder_1_100_000.h5"
# The showers of a file of 500 by which preprocessing judges it.
SPREAD_OUT = np.concatenate([np.arange(first, first + 20) for first in (0, 120, 240, 360, 480)])


def measured_angle(cells: Any, cell_size: float = 1.0, layer_pitch: float = 1.0) -> Any:
    """The reference's angle (N,) of dense showers (N, x, y, layer), with lengths in cells or, given sizes, in mm."""
    image = np.asarray(cells, dtype=np.float64)
    in_x, in_y = image.sum(axis=2), image.sum(axis=1)
    sizes = (cell_size, cell_size, layer_pitch)
    x, y, depth = ((np.arange(n) + 0.5) * size for n, size in zip(image.shape[1:], sizes, strict=True))
    return angle_of_moments(in_x.sum(axis=1), np.einsum("nxl,x->nl", in_x, x), np.einsum("nyl,y->nl", in_y, y), depth)


def make_showers(*, events: int, seed: int = 0, geometry: Geometry = SMALL_GEOMETRY) -> Showers:
    """Sparse showers of 100-200 GeV at 60-120 degrees, with a gamma profile in depth and an exponential one across."""
    rng = np.random.default_rng(seed)
    energy = rng.uniform(100, 200, events).astype(np.float32)
    theta = np.radians(rng.uniform(60, 120, events)).astype(np.float32)
    z = np.arange(geometry.shape[2]) + 0.5
    peak = 0.35 * geometry.shape[2]
    depth = z**2 * np.exp(-2 * z / peak)
    shift = np.tan(np.pi / 2 - theta)[:, None] * (z - peak) * geometry.layer_pitch_mm / geometry.cell_mm
    depths = np.broadcast_to(depth, shift.shape)
    cells = _cells_about(np.zeros_like(shift), shift, depths, energy, geometry=geometry, rng=rng)
    return Showers(cells, energy, theta, measured_angle(cells))


def _cells_about(
    at_x: Any, at_y: Any, depth: Any, energy_gev: FloatArray, *, geometry: Geometry, rng: np.random.Generator
) -> FloatArray:
    """Cells of showers whose axes go through these places, in cells, with these energies of layers; all (N, layer)."""
    x, y = (np.arange(n) + 0.5 - n / 2 for n in geometry.shape[:2])
    distance = np.hypot(x[:, None, None] - at_x[:, None, None, :], y[None, :, None] - at_y[:, None, None, :])
    density = np.exp(-1.5 * distance) * depth[:, None, None, :]
    density /= density.sum(axis=(1, 2, 3), keepdims=True)
    quanta = rng.poisson(density * 20 * energy_gev[:, None, None, None])  # 50 MeV each, in the files' unit
    return (quanta * 0.05).astype(np.float32)


def make_ring_showers(
    *, events: int, seed: int = 0, geometry: Geometry = RING_GEOMETRY, width_mm: float = 8.0
) -> Showers:
    """Showers of 1-100 GeV, log-uniform, along the axis of a calorimeter of listed layers, in rings or rectangles.

    Sparse, quanta of 20 MeV: a gamma profile in depth, and an exponential one from the axis, over `width_mm`.
    """
    rng = np.random.default_rng(seed)
    where = positions(geometry)
    energy = np.exp(rng.uniform(0, np.log(100), events)).astype(np.float32)
    begin = np.minimum(rng.exponential(0.5, (events, 1)), where.z_x0[-1] / 2)  # so that none is empty
    depth = np.maximum(where.z_x0 - begin, 0)  # (events, layers)
    profile = depth**3 * np.exp(-0.5 * depth) * where.x0
    density = np.where(where.exists, np.exp(-where.r_mm / width_mm) * where.area_mm2, 0)
    density = profile[:, :, None] * density / density.sum(axis=1, keepdims=True)
    density /= density.sum(axis=(1, 2), keepdims=True)
    quanta = rng.poisson(density * 50 * energy[:, None, None])  # (events, layers, places)
    cells = np.moveaxis(quanta * 0.02 / geometry.file_unit_gev, 1, 2).reshape(events, *geometry.shape)
    cells = cells.astype(np.float32)
    return Showers(cells, energy, np.full(events, np.pi / 2, np.float32), angle_of_cells(cells, geometry))


def write_file(
    path: Path, showers: Showers, *, geometry: Geometry | None = SMALL_GEOMETRY, chunks: bool = True, **replaced: Any
) -> Path:
    """A file in the reference's layout. `replaced` gives other arrays for its datasets; None leaves a dataset out."""
    datasets = {"ECAL": showers.cells, "energy": showers.energy_gev, "theta": showers.theta_rad} | replaced
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            if values is not None:
                chunk = (min(10, len(values)), *values.shape[1:]) if chunks and name == "ECAL" else None
                file.create_dataset(name, data=values, chunks=chunk, compression="gzip" if chunk else None)
        if geometry is not None:
            file.attrs.update({name: value for name, value in geometry.to_json().items() if name != "shape"})
    return path


def write_whole(path: Path, showers: Showers, geometry: Geometry, deposits: str = "") -> Path:
    """A file of `showers`, written by calopipe in the layout `deposits`."""
    with shower_writer(path, geometry, {}, deposits) as writer:
        writer.write(showers)
    return path


def write_voxels(path: Path, voxels: np.ndarray, energy_mev: np.ndarray, **attributes: Any) -> Path:
    """A file in CaloChallenge's layout: `voxels` (N, voxels) and `energy_mev` (N,) or (N, 1), as they are."""
    with h5py.File(path, "w") as file:
        file["showers"], file["incident_energies"] = voxels, energy_mev
        file.attrs.update(attributes)
    return path


def make_file(path: Path, *, events: int, seed: int = 0, geometry: Geometry = SMALL_GEOMETRY) -> Path:
    """A file of `make_showers`."""
    return write_file(path, make_showers(events=events, seed=seed, geometry=geometry), geometry=geometry)


def make_rings(path: Path, *, events: int, seed: int, width_mm: float = 10.0) -> Path:
    """A file of `make_ring_showers`."""
    return write_whole(path, make_ring_showers(events=events, seed=seed, geometry=RINGS, width_mm=width_mm), RINGS)


def make_labelled_showers(*, events: int, seed: int = 0) -> Showers:
    """Showers of the kinds 11 and 211 (twice as deep), whose axes lean along x by the azimuth, -0.5 to 0.5 rad."""
    rng = np.random.default_rng(seed)
    layers = SMALL_GEOMETRY.shape[2]
    energy, theta, phi = (
        rng.uniform(low, high, events).astype(np.float32) for low, high in ((100, 200), (1.2, 1.94), (-0.5, 0.5))
    )
    kind = np.where(rng.uniform(size=events) < 0.5, 11, 211).astype(np.int32)
    depth = np.arange(layers) - 1.5
    lean = SMALL_GEOMETRY.layer_pitch_mm / SMALL_GEOMETRY.cell_mm * depth
    at_x, at_y = np.tan(phi)[:, None] * lean, (1 / (np.tan(theta) * np.cos(phi)))[:, None] * lean
    z = (np.arange(layers) + 0.5) / np.where(kind == 11, 0.8, 1.6)[:, None]
    cells = _cells_about(at_x, at_y, z**2 * np.exp(-z), energy, geometry=SMALL_GEOMETRY, rng=rng)
    return Showers(cells, energy, theta, measured_angle(cells), more={"phi_rad": phi, "particle": kind})


def upright(cells: FloatArray) -> Showers:
    """Showers of 100 GeV at normal incidence with these cells."""
    energy, theta = (np.full(len(cells), value, np.float32) for value in (100, np.pi / 2))
    return Showers(cells, energy, theta, theta)


def observed(showers: Showers, geometry: Geometry = SMALL_GEOMETRY) -> Observables:
    """What validation measures of the showers."""
    return observe(Hits.of(showers.cells), showers.energy_gev, showers.theta_rad, geometry)


def make_dataset(
    output: Path, *files: Path | str, split_files: Sequence[str] = (), on_copies: str = SKIP, **settings: Any
) -> Manifest:
    """The dataset of `files` in the folder `output`; `settings` are those of `Settings`."""
    asked = Settings(Selection(rule=SplitRule.parse(list(split_files))), **settings)
    return preprocess(discover([str(file) for file in files]), output, asked, on_copies=on_copies)
