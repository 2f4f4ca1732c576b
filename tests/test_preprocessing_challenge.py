"""CaloChallenge's layout: from its files to a dataset and back, and the messages about wrong files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import refused
from showers import make_ring_showers, make_showers, write_file, write_voxels, write_whole

from calopipe.errors import InputError
from calopipe.events.tolerance import BadFileError
from calopipe.showers.detectors import detectors
from calopipe.showers.files import open_all, open_showers
from calopipe.showers.layouts import CELLS, VOXELS


@pytest.mark.parametrize("name", list(detectors()))
def test_planted_voxels_in_mev(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Voxels come layer by layer, then by angle, then by radius; energies in MeV, along the axis: all is known."""
    geometry = detectors()[name]
    planted, index, offset = [], [], 0
    for layer, each in enumerate(geometry.layers):
        angles, rings = each.cells
        for angle, ring in {(0, 0), (angles - 1, rings - 1), (angles // 2, rings // 3)}:
            planted.append([len(planted), angle, ring, layer])
            index.append(offset + angle * rings + ring)
        offset += angles * rings
    showers = np.zeros((len(index), offset), np.float32)
    showers[np.arange(len(index)), index] = 250.0
    path = write_voxels(tmp_path / "a.h5", showers, np.linspace(1500.0, 65536.0, len(index))[:, None])
    (file,) = open_all([path])
    assert not caplog.records
    assert file.geometry == geometry
    found = file.read()
    assert np.argwhere(found.cells).tolist() == planted
    assert found.cells.max() * file.geometry.file_unit_gev == pytest.approx(0.25)
    np.testing.assert_allclose(found.energy_gev, np.linspace(1.5, 65.536, len(index)), rtol=1e-6)
    np.testing.assert_allclose(np.degrees(found.theta_rad), 90)


def test_what_is_given_counts_more_than_what_the_file_states(tmp_path: Path) -> None:
    path = write_voxels(tmp_path / "a.h5", np.ones((2, 6480)), np.ones(2), file_unit_gev=1.0)
    assert open_showers(path).geometry.file_unit_gev == 1
    assert open_showers(path, "file_unit_gev=2").geometry.file_unit_gev == 2
    assert open_showers(path, "calochallenge-2").geometry.file_unit_gev == 1e-3
    assert open_showers(path, "layer_pitch_mm=3").geometry.layers[0].pitch_mm == 3


def test_deposits_outside_of_the_cells_of_a_layer(tmp_path: Path) -> None:
    geometry = detectors()["calochallenge-1-photons"]
    showers = make_ring_showers(events=4, geometry=geometry)
    cells = showers.cells.copy()
    cells[2, 3, 1, 4] = np.nan  # the last layer has one angle
    path = write_file(tmp_path / "a.h5", showers, geometry=None, ECAL=cells)
    with pytest.raises(InputError, match=r"event 2: ECAL holds energy at \(3, 1, 4\), but layer 4 has \(1, 5\) cells"):
        open_showers(path, "calochallenge-1-photons").read()
    assert open_showers(path, "calochallenge-1-photons").read(0, 2).cells.shape == (2, 10, 19, 5)
    with pytest.raises(InputError, match=r"event 2: ECAL holds energy"):
        open_showers(path, "calochallenge-1-photons").read(1, 4)
    for deposits, energy in ((CELLS, 1.0), (VOXELS, 1.0), (CELLS, -1.0), (CELLS, np.nan)):
        cells[2, 3, 1, 4] = energy
        with pytest.raises(InputError, match=r"are not 0 at \(3, 1, 4\), where the calorimeter has no cell"):
            write_whole(tmp_path / "b.h5", replace(showers, cells=cells), geometry, deposits)
    assert not (tmp_path / "b.h5").exists()


def test_wrong_files_end_with_one_line(tmp_path: Path) -> None:
    voxels, energy = np.ones((4, 6480), np.float32), np.full((4, 1), 5000.0)
    bad = voxels.copy()
    bad[2, 144 + 9 + 3] = np.nan
    own, path = tmp_path / "one.toml", tmp_path / "a.h5"
    own.write_text("file_unit_gev = 1\n[[layers]]\nangles = 3\nr_edges_mm = [0, 1, 2]\npitch_mm = 1\nx0 = 1\n")
    # the cells, the energies and the geometry that is given; what is said
    cases: list[tuple[np.ndarray, np.ndarray, object, str]] = [
        (voxels[:, :6000], energy, "", "its showers have 6000 voxels, known are 368 (calochallenge-1-photons), 533 ("),
        (voxels, energy, own, "its showers have (6480,) cells, the geometry has (6,); give the --geometry of this"),
        (voxels.reshape(4, 45, 144), energy, "", "showers has shape (4, 45, 144) of float32, expected numbers (N, vox"),
        (voxels, energy * [[1], [-1], [1], [1]], "", "event 1: incident_energies, in GeV, is -5.0, expected a"),
        (bad, energy, "", "event 2: showers holds nan in 1 cell(s), the first is 156; expected finite deposits"),
    ]
    for cells, energies, geometry, told in cases:
        write_voxels(path, cells, energies)
        assert told in refused("--input", path, "--output", tmp_path / "ds", "--geometry", geometry)
    write_voxels(path, voxels[:, :6000], energy)
    with pytest.raises(BadFileError, match="6000 voxels"):  # one that may be left out
        open_showers(path)
    write_file(path, make_showers(events=4))
    with pytest.raises(InputError, match=r"its showers have \(17, 17, 5\) cells, the geometry has \(16, 9, 45\)"):
        open_showers(path, "calochallenge-2")
