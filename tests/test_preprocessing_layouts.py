"""Reading, writing and joining HDF5 showers: every layout, CaloChallenge's too, and all ways a file can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from commands import refused
from showers import (
    RING_GEOMETRY,
    SMALL_GEOMETRY,
    make_file,
    make_ring_showers,
    make_showers,
    write_file,
    write_voxels,
    write_whole,
)

from calopipe.errors import InputError
from calopipe.events.tolerance import BadFileError
from calopipe.showers import layouts
from calopipe.showers.cells import REFERENCE_GEOMETRY, Geometry
from calopipe.showers.detectors import detectors
from calopipe.showers.files import open_all, open_showers
from calopipe.showers.layouts import CELLS, VOXELS
from calopipe.showers.writer import shower_writer

_SHOWERS = make_showers(events=20)


def test_measured_angle_of_the_file_wins_and_stands_for_theta_where_it_is_alone(tmp_path: Path) -> None:
    showers = make_showers(events=5)
    mtheta = np.linspace(1.2, 1.9, 5).astype(np.float32)
    both = open_showers(write_file(tmp_path / "a.h5", showers, mtheta=mtheta)).read()
    np.testing.assert_array_equal(both.mtheta_rad, mtheta)
    np.testing.assert_array_equal(both.theta_rad, showers.theta_rad)
    alone = open_showers(write_file(tmp_path / "b.h5", showers, mtheta=mtheta, theta=None)).read()
    np.testing.assert_array_equal(alone.theta_rad, mtheta)


def test_fixed_angle_layout(tmp_path: Path) -> None:
    showers = make_showers(events=5)
    target = np.zeros((5, 1, 5), np.float32)
    target[:, 0, 1] = showers.energy_gev
    found = open_showers(write_file(tmp_path / "a.h5", showers, energy=None, theta=None, target=target)).read()
    np.testing.assert_array_equal(found.energy_gev, showers.energy_gev)
    np.testing.assert_allclose(np.degrees(found.theta_rad), 90)


@pytest.mark.parametrize("code", [np.nan, np.inf, -np.inf, 0.0, 22.5, 2.0**31, -(2.0**31)])
def test_the_code_of_a_particle_is_a_whole_number_of_32_bits(code: float) -> None:
    layouts._require_kinds(np.array([11.0, -211.0, 2.0**31 - 1]))
    with pytest.raises(InputError, match="'pdg' of event 1 is "):
        layouts._require_kinds(np.array([11.0, code, 22.0]))


def _in_mev(datasets: layouts.Datasets) -> layouts.Labels:
    return {"energy": datasets["incident_mev"][()] / 1e3, "theta": np.radians(datasets["polar_deg"][()])}


def test_a_layout_of_ones_own_converts_labels_and_names_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels that the layout cannot convert are refused before it is called. Its showers are written as `ECAL`."""
    own = layouts.Layout(frozenset({"hits", "incident_mev", "polar_deg"}), _in_mev, cells="hits")
    monkeypatch.setattr(layouts, "LAYOUTS", (*layouts.LAYOUTS, own))
    cells = _SHOWERS.cells.copy()
    cells[13, 4, 5, 2] = -1.0
    path, stored = tmp_path / "own.h5", dict.fromkeys(("ECAL", "energy", "theta"))
    stored |= {"hits": cells, "incident_mev": _SHOWERS.energy_gev[:, None] * 1e3}
    found = open_showers(write_file(path, _SHOWERS, **stored, polar_deg=np.degrees(_SHOWERS.theta_rad)))
    np.testing.assert_allclose(found.energy_gev, _SHOWERS.energy_gev, rtol=1e-6)
    np.testing.assert_allclose(found.theta_rad, _SHOWERS.theta_rad, rtol=1e-6)
    for name in ("cells", "mtheta_rad"):
        np.testing.assert_array_equal(getattr(found.read(stop=13), name), getattr(_SHOWERS[:13], name))
    with pytest.raises(InputError, match=r"event 13: hits holds -1.0 in 1 cell\(s\), the first is \(4, 5, 2\)"):
        found.read(10)
    written = open_showers(write_whole(tmp_path / "b.h5", _SHOWERS, SMALL_GEOMETRY, found.deposits))
    assert written.deposits == "ECAL"
    np.testing.assert_array_equal(written.read().cells, _SHOWERS.cells)
    with h5py.File(path, "r+") as file:
        assert layouts.read_labels_alone(file) is None
        del file["hits"]
        alone = layouts.read_labels_alone(file)
    assert alone is not None
    np.testing.assert_allclose(alone["energy"], _SHOWERS.energy_gev, rtol=1e-6)
    write_file(path, _SHOWERS, **stored, polar_deg=[b"x"] * 20)
    with pytest.raises(InputError, match=r"own.h5: 'polar_deg' has shape \(20,\) of .*, expected 20 entries of num"):
        open_showers(path)


def _truncated(path: Path) -> None:
    whole = write_file(path, _SHOWERS).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def _declared(path: Path, events: int, chunks: tuple[int, ...] | bool | None, stored: int = 0) -> None:
    """A file of a writer that made its datasets and was then killed, with the cells of `stored` showers written."""
    with h5py.File(path, "w") as file:
        file.create_dataset("ECAL", (events, *SMALL_GEOMETRY.shape), "f4", chunks=chunks)
        for name in ("energy", "theta"):
            file.create_dataset(name, (events,), "f4", chunks=chunks and True)
        if stored:
            file["ECAL"][:stored] = _SHOWERS.cells[:stored]


def _labels_past_memory(path: Path) -> None:
    write_file(path, _SHOWERS, energy=None)
    with h5py.File(path, "r+") as file:
        file.create_dataset("energy", (10**15,), "f4", chunks=True)


def _stating(path: Path, **attributes: Any) -> Path:
    write_file(path, _SHOWERS)
    with h5py.File(path, "r+") as file:
        file.attrs.update(attributes)
    return path


# How a file is written, or what it holds instead; and what is said of it.
BAD_HEADERS: dict[str, tuple[Callable[[Path], object] | dict[str, Any], str]] = {
    "nothing stored": (
        lambda path: _declared(path, 2_000_000_000, chunks=True), "declares 2,000,000,000 showers, but .* never written"
    ),
    "nothing stored in one piece": (
        lambda path: _declared(path, 2_000_000_000, chunks=None), "but 1 of the 1 pieces of ECAL were never written"
    ),
    "half stored": (
        lambda path: _declared(path, 40, (10, 17, 17, 5), stored=20),
        "declares 40 showers, but 2 of the 4 pieces of ECAL were never written",
    ),
    "labels past memory": (_labels_past_memory, r"'energy' has shape \(1000000000000000,\)"),
    "missing": (lambda _: None, "no such file"),
    "text": (lambda path: path.write_text("not an HDF5 file at all"), "not an HDF5 file"),
    "truncated": (_truncated, "not a whole HDF5 file"),
    "missing key": ({"energy": None}, r"found datasets \['ECAL', 'theta'\], expected"),
    "wrong shape": ({"ECAL": _SHOWERS.cells[..., 0]}, r"ECAL has shape \(20, 17, 17\)"),
    "zero energy": ({"energy": np.float32([150] * 3 + [0] * 17)}, "event 3: energy is 0.0, expected a positive number"),
    "degrees": (
        {"theta": np.degrees(_SHOWERS.theta_rad)},
        "event 0: theta is .*, expected an angle between 0 and pi rad, .* is normal incidence; is it in degrees",
    ),
    "azimuth in degrees": (
        {"phi": np.full(20, 5.0)}, "event 0: phi is 5.0, expected an angle of -pi/2 to pi/2 rad; is it in degrees?"
    ),
    "half a particle": ({"pdg": np.full(20, 11.5)}, "'pdg' of event 0 is 11.5, expected the PDG code of a particle"),
    "other numbers of labels": (  # the first by name is told, in each run
        dict.fromkeys(("theta", "pdg", "phi", "mtheta"), np.zeros(7)),
        r"'mtheta' has shape \(7,\) of float64, expected 20 entries of numbers, one a shower",
    ),
    "one label for all": ({"energy": np.float32(5)}, r"'energy' has shape \(\)"),
    "geometry in words": (lambda path: _stating(path, cell_mm="5.1mm"), r"attribute cell_mm is '5\.1mm', expected a"),
    "negative unit": (
        lambda path: _stating(path, file_unit_gev=-1.0),
        r"file_unit_gev is -1\.0, expected a number above 0; correct it, or give --geometry file_unit_gev=NUMBER",
    ),
    "no unit": (lambda path: _stating(path, file_unit_gev=np.nan), "attribute file_unit_gev is nan, expected"),
    "two sizes": (lambda path: _stating(path, cell_mm=[5.1, 5.2]), r"cell_mm is \[5\.1, 5\.2\], expected a number"),
    "no calorimeter": (lambda path: _stating(path, calopipe_geometry="{}"), "calopipe_geometry is not the JSON"),
    "no showers": (lambda path: write_file(path, _SHOWERS[:0], chunks=False), "holds no showers"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_HEADERS)
def test_a_bad_header_or_label_is_found_on_opening(tmp_path: Path, kind: str) -> None:
    path, (made, told) = tmp_path / "bad.h5", BAD_HEADERS[kind]
    if isinstance(made, dict):
        write_file(path, _SHOWERS, **made)
    else:
        made(path)
    with pytest.raises(InputError, match=told) as caught:
        open_showers(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_array_of_one_number_or_a_text_states_it(tmp_path: Path) -> None:
    stating = _stating(tmp_path / "a.h5", cell_mm=np.array([4.5]), file_unit_gev=np.array([[2]]), x0_per_layer="1.5")
    geometry = open_showers(stating).geometry
    assert (geometry.cell_mm, geometry.file_unit_gev, geometry.x0_per_layer) == (4.5, 2, 1.5)
    stating = _stating(tmp_path / "a.h5", file_unit_gev=-1.0)  # no number: what the user gives counts
    assert open_showers(stating, "file_unit_gev=0.5").geometry.file_unit_gev == 0.5


def test_a_virtual_dataset_is_read_from_its_files(tmp_path: Path) -> None:
    """The dataset itself stores no values; the other files do."""
    showers = make_showers(events=10)
    path = write_file(tmp_path / "a.h5", showers)
    layout = h5py.VirtualLayout(showers.cells.shape, "f4")
    layout[:] = h5py.VirtualSource(str(path), "ECAL", showers.cells.shape)
    with h5py.File(write_file(tmp_path / "b.h5", showers, ECAL=None), "r+") as file:
        file.create_virtual_dataset("ECAL", layout)
    np.testing.assert_array_equal(open_showers(tmp_path / "b.h5").read().cells, showers.cells)
    path.rename(tmp_path / "c.h5")
    with pytest.raises(InputError, match=r"b\.h5: its showers are in .*a\.h5, which is not there"):
        open_showers(tmp_path / "b.h5")


def test_showers_that_a_missing_plugin_compressed_are_told_of(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", events=10)
    with h5py.File(path, "r+") as file:
        kind, space = file["ECAL"].id.get_type(), file["ECAL"].id.get_space()
        del file["ECAL"]
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((10, *SMALL_GEOMETRY.shape))
        how.set_filter(32001, h5py.h5z.FLAG_OPTIONAL)  # Blosc
        stored = h5py.h5d.create(file.id, b"ECAL", kind, space, how)
        stored.write_direct_chunk((0, 0, 0, 0), b"compressed")
    with pytest.raises(InputError, match=r"a\.h5: compressed by a filter that HDF5 has not got here .*; write it with"):
        open_showers(path).read()


def test_a_length_in_single_precision_is_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = [make_file(tmp_path / f"{seed}.h5", events=4, seed=seed) for seed in range(3)]
    with h5py.File(paths[1], "r+") as file:
        file.attrs["cell_mm"] = np.float32(SMALL_GEOMETRY.cell_mm)
    assert len(open_all(paths)) == 3
    for path in paths:
        with h5py.File(path, "r+") as file:
            del file.attrs["layer_pitch_mm"]
            file.attrs["cut_gev"] = "0.7 mm"  # of a user's own
    assumed = REFERENCE_GEOMETRY.layer_pitch_mm
    assert [(file.cut_gev, file.geometry.layer_pitch_mm) for file in open_all(paths)] == [(0, assumed)] * 3
    (told,) = [line for line in caplog.messages if "layer_pitch_mm" in line]
    assert "0.h5 and 2 more do not state layer_pitch_mm: the" in told
    with h5py.File(paths[1], "r+") as file:
        file.attrs["cell_mm"] = SMALL_GEOMETRY.cell_mm * (1 + 1e-5)
    with pytest.raises(InputError, match=r"1\.h5: its geometry's cell_mm is .*; use files of one detector"):
        open_all(paths)


def _contents(path: Path) -> dict[str, Any]:
    """The whole content of a file: attributes, and each dataset with its type, storage and values."""
    with h5py.File(path) as file:
        found: dict[str, Any] = {"attributes": dict(file.attrs), "names": sorted(file)}
        for name, data in file.items():
            form = (data.dtype, data.shape, data.maxshape, data.chunks, data.compression, data.shuffle)
            found[name] = (form, data[()].tobytes(), dict(data.attrs))
    return found


@pytest.mark.parametrize(
    ("geometry", "asked", "deposits"),
    [(SMALL_GEOMETRY, "", CELLS), (RING_GEOMETRY, "", VOXELS), (RING_GEOMETRY, CELLS, CELLS)],
    ids=["rectangular", "rings", "rings in the other layout"],
)
def test_joined_files_hold_what_one_does_that_is_written_whole_and_is_read_back(
    tmp_path: Path, geometry: Geometry, asked: str, deposits: str
) -> None:
    """The last chunk of the last file is not full. Each file states its calorimeter."""
    make = make_ring_showers if geometry.rings else make_showers
    showers = make(events=243, geometry=geometry)
    assert (showers.cells.sum(axis=(1, 2, 3)) > 0).mean() > 0.5

    def write(name: str, chosen: slice, batch: int = 243) -> Path:
        with shower_writer(tmp_path / name, geometry, {"generator": "test"}, asked) as writer:
            for first in range(0, len(showers[chosen]), batch):
                writer.write(showers[chosen][first : first + batch])
        return tmp_path / name

    whole = write("whole.h5", slice(0, 243))
    parts = [write(f"{start}.h5", slice(start, min(start + 100, 243)), batch=64) for start in (0, 100, 200)]
    with shower_writer(tmp_path / "joined.h5", geometry, {"generator": "test"}, asked) as writer:
        for part in parts:
            writer.append(part)
    assert _contents(tmp_path / "joined.h5") == _contents(whole)
    found = open_showers(whole)
    assert (found.geometry, found.deposits) == (geometry, deposits)
    np.testing.assert_array_equal(found.energy_gev, showers.energy_gev)  # to the bit, also if the file is in MeV
    for name, values in found.read(5, 243).arrays.items():
        np.testing.assert_allclose(values, getattr(showers[5:], name), rtol=1e-6)
    with h5py.File(whole) as file:
        assert file.attrs["generator"] == "test"
        if deposits == CELLS:
            np.testing.assert_allclose(file["sum"][:], showers.cells.sum(axis=(1, 2, 3)), rtol=1e-6)
            np.testing.assert_allclose(np.tanh(file["eta"][:]), np.cos(showers.theta_rad), atol=1e-6)
        else:
            shapes = {"showers": (243, geometry.voxels), "incident_energies": (243, 1)}
            assert {name: item.shape for name, item in file.items()} == shapes
            np.testing.assert_allclose(file["incident_energies"][:, 0], showers.energy_gev * 1e3, rtol=1e-6)


def test_showers_that_would_not_lie_after_those_before_are_not_appended(tmp_path: Path) -> None:
    """Showers after a chunk that is not full, written or appended, and showers of a file with byte shuffle."""
    shuffled, joined = tmp_path / "shuffled.h5", tmp_path / "joined.h5"
    showers = make_showers(events=17)
    short = write_whole(tmp_path / "short.h5", showers, SMALL_GEOMETRY)
    with h5py.File(shuffled, "w") as file:
        file.create_dataset("ECAL", data=showers.cells, chunks=(10, 17, 17, 5), compression="gzip", shuffle=True)
    for begin in (lambda writer: writer.write(showers), lambda writer: writer.append(short)):
        with shower_writer(joined, SMALL_GEOMETRY, {}) as writer:
            begin(writer)
            with pytest.raises(ValueError, match=r"short\.h5 cannot be appended"):
                writer.append(short)
        np.testing.assert_array_equal(open_showers(joined).read().cells, showers.cells)
    with (
        shower_writer(joined, SMALL_GEOMETRY, {}) as writer,
        pytest.raises(ValueError, match=r"shuffled\.h5 cannot"),
    ):
        writer.append(shuffled)


# --- CaloChallenge's layout


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
