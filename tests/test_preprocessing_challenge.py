"""CaloChallenge's layout: from its files to a dataset and back, and what is said of files that are wrong."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from commands import refusal, run
from showers import CYLINDER, SPREAD_OUT, make_showers, make_toy_showers, write_file, write_voxels

from calopipe.errors import InputError
from calopipe.events.tolerance import BadFileError
from calopipe.showers.cells import Showers
from calopipe.showers.challenge.datasets import known
from calopipe.showers.files import open_showers
from calopipe.showers.layouts import CELLS, VOXELS
from calopipe.showers.writer import shower_writer
from preprocessing import __main__ as command
from preprocessing.dataset import SHARDS, read_manifest
from preprocessing.reading import ordered_batches
from preprocessing.showers.plausibility import look_at

TWO = known()["calochallenge-2"]


@pytest.mark.parametrize("name", list(known()))
def test_a_planted_voxel_in_mev(name: str, tmp_path: Path) -> None:
    """Voxels come layer by layer, then by angle, then by radius; energies in MeV, along the axis."""
    geometry = known()[name]
    sizes = [layer.cells[0] * layer.cells[1] for layer in geometry.layers]
    layer, angle, ring = (2, 7, 4) if len(geometry.layers) < 10 else (30, 11, 5)
    showers = np.zeros((2, sum(sizes)), np.float64)
    showers[1, sum(sizes[:layer]) + angle * geometry.layers[layer].cells[1] + ring] = 250.0
    file = open_showers(write_voxels(tmp_path / "a.h5", showers, np.array([[1500.0], [65536.0]])))
    assert file.geometry == geometry
    found = file.read()
    assert np.argwhere(found.cells).tolist() == [[1, angle, ring, layer]]
    assert found.cells.max() * file.geometry.file_unit_gev == pytest.approx(0.25)
    assert found.energy_gev.tolist() == pytest.approx([1.5, 65.536])
    np.testing.assert_allclose(np.degrees(found.theta_rad), 90)


def test_the_sample_needs_no_options(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every deposit arrives, in the unit of the file, and nothing is doubted."""
    with caplog.at_level(logging.WARNING):
        command.main(["--input", str(CYLINDER), "--output", str(tmp_path / "ds")])
    assert not caplog.records
    manifest = read_manifest(tmp_path / "ds")
    assert manifest.geometry == TWO
    assert manifest.events["written"] == 500
    assert manifest.energy_gev[0] >= 1
    assert manifest.energy_gev[1] <= 100
    with h5py.File(CYLINDER) as file:
        mev, energy = file["showers"][()].astype(np.float64), file["incident_energies"][:, 0].astype(np.float64)
    found = {}
    for split in ("train", "validation", "test"):
        for batch in ordered_batches(tmp_path / "ds", manifest, split, batch=50):
            sums = batch["cells"].numpy().sum(axis=(1, 2), dtype=np.float64)  # (N, layer)
            found |= dict(zip(batch["energy_gev"].numpy().tolist(), sums, strict=True))
    assert len(found) == 500
    for event, layers in enumerate(mev.reshape(500, 45, 144).sum(axis=2)):
        np.testing.assert_allclose(found[float(np.float32(energy[event] * 1e-3))] * 20, layers, rtol=1e-5)


def test_a_dataset_says_which_calorimeter_wherever_it_is_named(tmp_path: Path) -> None:
    """By name or by file, the shards and the fingerprint are the same; the second run does nothing."""
    name = tmp_path / "own.toml"
    edges = ", ".join(f"{4.65 * k:.2f}" for k in range(10))
    name.write_text(
        f"file_unit_gev = 0.001\n[[layers]]\ncount = 45\nangles = 16\nr_edges_mm = [{edges}]\n"
        "materials_mm = { W = 1.4, Si = 0.3 }\n"
    )
    whole = open_showers(CYLINDER).read(0, 60)
    with shower_writer(tmp_path / "a.h5", TWO, {}) as writer:
        writer.write(whole)
    made = []
    for text in (str(name), "calochallenge-2"):
        command.main(["--input", str(tmp_path / "a.h5"), "--output", str(tmp_path / "ds"), "--geometry", text])
        made.append(((tmp_path / "ds" / "manifest.json").read_bytes(), sorted((tmp_path / "ds" / SHARDS).iterdir())))
        stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "ds" / SHARDS).iterdir()}
    assert made[0] == made[1]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "ds" / SHARDS).iterdir()} == stamps


def test_what_is_written_is_read_again_to_the_bit(tmp_path: Path) -> None:
    """Energies too, though the file is in MeV."""
    rng = np.random.default_rng(5)
    energy = np.exp(rng.uniform(0, 7, 5000)).astype(np.float32)
    cells = np.zeros((5000, *known()["calochallenge-1-photons"].shape), np.float32)
    cells[:, 3, 7, 1] = rng.exponential(30, 5000)
    theta = np.full(5000, np.pi / 2, np.float32)
    with shower_writer(tmp_path / "a.h5", known()["calochallenge-1-photons"], {}) as writer:
        writer.write(Showers(cells, energy, theta, theta))
    found = open_showers(tmp_path / "a.h5").read()
    np.testing.assert_array_equal(found.cells, cells)
    np.testing.assert_array_equal(found.energy_gev, energy)
    np.testing.assert_array_equal(found.theta_rad, theta)
    with h5py.File(tmp_path / "a.h5") as file:
        assert {name: item.shape for name, item in file.items()} == {
            "showers": (5000, 368),
            "incident_energies": (5000, 1),
        }
        np.testing.assert_allclose(file["incident_energies"][:, 0], energy * 1e3, rtol=1e-6)


def test_a_file_of_ones_own_calorimeter_states_it(tmp_path: Path) -> None:
    """In either layout; rings with a tilt keep it where the layout has room for one."""
    geometry = known()["calochallenge-1-pions"]
    showers = make_toy_showers(events=4, geometry=geometry)
    for deposits in (CELLS, VOXELS):
        with shower_writer(tmp_path / f"{deposits}.h5", geometry, {}, deposits) as writer:
            writer.write(showers)
        file = open_showers(tmp_path / f"{deposits}.h5")
        assert (file.geometry, file.deposits) == (geometry, deposits)
        np.testing.assert_array_equal(file.read().cells, showers.cells)
        np.testing.assert_allclose(file.read().mtheta_rad, showers.mtheta_rad, rtol=1e-6)


def test_what_is_given_counts_more_than_what_the_file_states(tmp_path: Path) -> None:
    path = write_voxels(tmp_path / "a.h5", np.ones((2, 6480)), np.ones(2), file_unit_gev=1.0)
    assert open_showers(path).geometry.file_unit_gev == 1
    assert open_showers(path, "file_unit_gev=2").geometry.file_unit_gev == 2
    assert open_showers(path, "calochallenge-2").geometry.file_unit_gev == 1e-3
    assert open_showers(path, "layer_pitch_mm=3").geometry.layers[0].pitch_mm == 3


def test_deposits_outside_of_the_cells_of_a_layer(tmp_path: Path) -> None:
    geometry = known()["calochallenge-1-photons"]
    showers = make_toy_showers(events=4, geometry=geometry)
    cells = showers.cells.copy()
    cells[2, 3, 1, 4] = np.nan  # the last layer has one angle
    path = write_file(tmp_path / "a.h5", showers, geometry=None, ECAL=cells)
    with pytest.raises(InputError, match=r"event 2: ECAL holds energy at \(3, 1, 4\), but layer 4 has \(1, 5\) cells"):
        open_showers(path, "calochallenge-1-photons").read()
    assert open_showers(path, "calochallenge-1-photons").read(0, 2).cells.shape == (2, 10, 19, 5)
    with pytest.raises(InputError, match=r"event 2: ECAL holds energy"):
        open_showers(path, "calochallenge-1-photons").read(1, 4)
    cells[2, 3, 1, 4] = 1.0
    for deposits in (CELLS, VOXELS):
        with (
            pytest.raises(ValueError, match="where the calorimeter has no cell"),
            shower_writer(tmp_path / "b.h5", geometry, {}, deposits) as writer,
        ):
            writer.write(replace(showers, cells=cells))
    assert not (tmp_path / "b.h5").exists()


def test_wrong_files_end_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    voxels, energy = np.ones((4, 6480), np.float32), np.full((4, 1), 5000.0)
    bad = voxels.copy()
    bad[2, 144 + 9 + 3] = np.nan
    (tmp_path / "one.toml").write_text(
        "file_unit_gev = 1\n[[layers]]\nangles = 3\nr_edges_mm = [0, 1, 2]\npitch_mm = 1\nx0 = 1\n"
    )
    (tmp_path / "text.h5").write_text("these are no showers")
    (tmp_path / "folder.h5").mkdir()
    cases: dict[str, tuple[str, tuple[object, ...]]] = {
        "its showers have 6000 voxels, known are 368 (calochallenge-1-photons), 533 (": (
            str(write_voxels(tmp_path / "a.h5", voxels[:, :6000], energy)), (),
        ),
        "its showers have (6480,) cells, the geometry has (6,); give the --geometry of this file": (
            str(write_voxels(tmp_path / "b.h5", voxels, energy)), ("--geometry", tmp_path / "one.toml"),
        ),
        "its showers have (6480,) cells, the geometry has (40500,)": (
            str(tmp_path / "b.h5"), ("--geometry", "calochallenge-3"),
        ),
        "no.toml: no such file; check the path": (str(tmp_path / "b.h5"), ("--geometry", tmp_path / "no.toml")),
        "'incident_energies' has shape (3, 1) of float64, expected 4 entries of numbers": (
            str(write_voxels(tmp_path / "c.h5", voxels, energy[:3])), (),
        ),
        "showers has shape (4, 45, 144) of float32, expected numbers (N, voxels)": (
            str(write_voxels(tmp_path / "d.h5", voxels.reshape(4, 45, 144), energy)), (),
        ),
        "event 1: incident_energies, in GeV, is -5.0, expected a positive number": (
            str(write_voxels(tmp_path / "e.h5", voxels, energy * [[1], [-1], [1], [1]])), (),
        ),
        "event 2: showers holds nan in 1 cell(s), the first is 156; expected finite deposits": (
            str(write_voxels(tmp_path / "f.h5", bad, energy)), (),
        ),
        "not an HDF5 file": (str(tmp_path / "text.h5"), ()),
        "folder.h5: a folder, not a file; name its files": (str(tmp_path / "folder.h5"), ()),
        "its attributes must state the geometry in numbers": (
            str(write_voxels(tmp_path / "g.h5", voxels, energy, calopipe_geometry="{}")), (),
        ),
        "its showers have (17, 17, 5) cells, the geometry has (16, 9, 45)": (
            str(write_file(tmp_path / "h.h5", make_showers(events=4))), ("--geometry", "calochallenge-2"),
        ),
    }  # fmt: skip
    with h5py.File(tmp_path / "i.h5", "w") as file:
        file["showers"], file["energy"] = voxels, energy
    cases["found datasets ['energy', 'showers'], expected"] = (str(tmp_path / "i.h5"), ())
    with pytest.raises(BadFileError, match="6000 voxels"):  # one that may be left out
        open_showers(tmp_path / "a.h5")
    for told, (path, options) in cases.items():
        line = refusal(capsys, run, "--input", path, "--output", tmp_path / "ds", *options)
        assert told in line, line


@pytest.mark.parametrize(
    ("energy", "deposits", "told"),
    [
        (1e-3, 1.0, "is incident_energies in MeV"),
        (1.0, 1e-3, "is that the unit of showers (--geometry"),
        (1.0, 1e3, "is that the unit of showers (--geometry"),
        (1e-3, 1e-3, "is incident_energies in MeV"),
    ],
)
def test_another_unit_is_named(tmp_path: Path, energy: float, deposits: float, told: str) -> None:
    with h5py.File(CYLINDER) as file:
        path = write_voxels(
            tmp_path / "a.h5", file["showers"][:100] * deposits, file["incident_energies"][:100] * energy
        )
    look = look_at(open_showers(path))
    assert look is not None
    assert told in " ".join(look.doubts)


def test_other_layers_than_the_files_are_doubted() -> None:
    look = look_at(open_showers(CYLINDER, "x0_per_layer=4"))
    assert look is not None
    assert "is x0_per_layer right" in look.doubts[0]
    thin = look_at(open_showers(CYLINDER, "layer_pitch_mm=0.01"))
    assert thin is not None
    assert "are its layers right?" in thin.doubts[0]


@pytest.mark.parametrize("name", ["calochallenge-1-photons", "calochallenge-3"])
def test_layers_as_thick_as_a_shower_are_not_doubted(tmp_path: Path, name: str) -> None:
    """The third layer of the barrel is 16 radiation lengths thick: where in it half of the energy lies is not seen."""
    with shower_writer(tmp_path / "a.h5", known()[name], {}) as writer:
        writer.write(make_toy_showers(events=60, geometry=known()[name]))
    look = look_at(open_showers(tmp_path / "a.h5"))
    assert look is not None
    assert look.doubts == ()


def test_the_look_at_a_cylinder_is_that_of_its_voxels() -> None:
    """Depth and radius by loops over rings and layers."""
    look = look_at(open_showers(CYLINDER))
    assert look is not None
    with h5py.File(CYLINDER) as file:
        mev = file["showers"][:][SPREAD_OUT].astype(np.float64).reshape(100, 45, 16, 9)
        energy = file["incident_energies"][:][SPREAD_OUT].astype(np.float64)
    assert look.response == pytest.approx(mev.sum() / energy.sum(), rel=1e-3)
    x0 = 1.4 / 3.504 + 0.3 / 93.70
    profile = np.cumsum(mev.sum(axis=(0, 2, 3))) / mev.sum()
    assert look.depth_x0 == pytest.approx(np.interp(0.5, profile, np.arange(1, 46) * x0), rel=1e-3)
    squares = 0.0
    radius, angle = 4.65 * (np.arange(9) + 0.5), (np.arange(16) + 0.5) * np.pi / 8 - np.pi
    x, y = np.cos(angle)[:, None] * radius, np.sin(angle)[:, None] * radius
    for layer in mev.reshape(-1, 16, 9):
        if layer.any():
            cx, cy = (layer * x).sum() / layer.sum(), (layer * y).sum() / layer.sum()
            squares += (layer * ((x - cx) ** 2 + (y - cy) ** 2)).sum()
    assert look.radius_mm == pytest.approx(np.sqrt(squares / mev.sum()), rel=1e-3)
