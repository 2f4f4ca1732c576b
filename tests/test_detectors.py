"""Calorimeters by name and from files: against the published numbers, and every way in which a file can be wrong.

A user's own calorimeter is the example of docs/detectors.md, run with its files on toy showers.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from calorimeters.draw import write
from showers import make_ring_showers

from calopipe.errors import InputError
from calopipe.events.splits import SPLITS
from calopipe.showers.cells import REFERENCE_GEOMETRY, Geometry, Layer, Showers
from calopipe.showers.detectors import detectors, settled, split_values, with_values
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from preprocessing import __main__ as command
from preprocessing.dataset import read_manifest
from preprocessing.reading import ordered_batches

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "two-sections.toml"
PAGE = EXAMPLE.parent.parent.joinpath("detectors.md").read_text()

# arXiv 2410.21611, section 2, and the binning files published with the data: of each layer its id, the number of
# angles, and the edges of the rings in mm. Layers with one edge hold nothing.
_PHOTONS = {
    0: (1, "0,5,10,30,50,100,200,400,600"),
    1: (10, "0,2,4,6,8,10,12,15,20,30,40,50,70,90,120,150,200"),
    2: (10, "0,2,5,10,15,20,25,30,40,50,60,80,100,130,160,200,250,300,350,400"),
    3: (1, "0,50,100,200,400,600"),
    12: (1, "0,100,200,400,1000,2000"),
}
_PIONS = {
    0: (1, "0,5,10,30,50,100,200,400,600"),
    1: (10, "0,1,4,7,10,15,30,50,90,150,200"),
    2: (10, "0,5,10,20,30,50,80,130,200,300,400"),
    3: (1, "0,50,100,200,400,600"),
    12: (10, "0,10,20,30,50,80,100,130,160,200,250,300,350,400,1000,2000"),
    13: (10, "0,10,20,30,50,80,100,130,160,200,250,300,350,400,600,1000,2000"),
    14: (1, "0,50,100,150,200,250,300,400,600,1000,2000"),
}
_RINGS_2 = "0,4.65,9.3,13.95,18.6,23.25,27.9,32.55,37.2,41.85"
_RINGS_3 = ",".join(f"{2.325 * k:g}" for k in range(19))
_PUBLISHED = {
    "calochallenge-1-photons": (_PHOTONS, 368),
    "calochallenge-1-pions": (_PIONS, 533),
    "calochallenge-2": (dict.fromkeys(range(45), (16, _RINGS_2)), 6480),
    "calochallenge-3": (dict.fromkeys(range(45), (50, _RINGS_3)), 40500),
}


def test_calorimeters_drawn_at_random_are_read_and_stop_showers(tmp_path: Path) -> None:
    write(tmp_path, 30, 5)
    for number in range(1, 31):
        geometry = _geometry(str(tmp_path / f"drawn-{number}.toml"))
        assert 16 < geometry.x0_per_layer * geometry.shape[2] < 33


def _geometry(text: str) -> Geometry:
    geometry, values = split_values(text)
    return with_values(geometry, values)


@pytest.mark.parametrize("name", _PUBLISHED)
def test_the_known_calorimeters_are_as_published(name: str) -> None:
    layers, number = _PUBLISHED[name]
    geometry = detectors()[name]
    assert geometry.voxels == number
    assert [(layer.cells[0], layer.r_edges_mm) for layer in geometry.layers] == [
        (angles, pytest.approx([float(edge) for edge in edges.split(",")])) for angles, edges in layers.values()
    ]
    assert geometry.rings
    assert geometry.file_unit_gev == 1e-3
    assert _geometry(name) == geometry


def test_rings_and_gaps_beside_materials_and_layers_that_are_alike(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    rings = "angles = 8\nr_edges_mm = [0, 2, 5]\nmaterials_mm = { Pb = 5.612 }\npitch_mm = 9.0\n"
    file.write_text(f"file_unit_gev = 1\n[[layers]]\n{rings}")
    assert _geometry(str(file)).layers == (Layer(9.0, 1.0, (8, 2), r_edges_mm=(0.0, 2.0, 5.0)),)
    alike = "count = 25\ncells = [51, 51]\ncell_mm = 5.1\npitch_mm = 4.0\nx0 = 1.004\n"
    file.write_text(f"file_unit_gev = 0.02\n[[layers]]\n{alike}")
    assert _geometry(str(file)) == REFERENCE_GEOMETRY


def test_one_text_names_a_calorimeter_wherever_it_came_from(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes(EXAMPLE.read_bytes())
    of_file, text = _geometry(str(file)), settled(str(file))
    assert Selection(geometry=str(file)).geometry == text
    file.unlink()
    assert settled(text) == text
    assert _geometry(text) == of_file
    text = settled("calochallenge-1-photons")
    assert _geometry(text) == detectors()["calochallenge-1-photons"]
    assert _geometry(text + ", file_unit_gev=1").file_unit_gev == 1
    for as_it_is in ("", "cell_mm=5.1, layer_pitch_mm=4"):
        assert Selection(geometry=as_it_is).geometry == as_it_is
    file.mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        settled(str(file))


_LAYER = "[[layers]]\ncells = [2, 2]\ncell_mm = 5\npitch_mm = 4\nx0 = 1\n"
_UNIT = "file_unit_gev = 1\n"
_WRONG_TOML = {
    "not TOML": ("file_unit_gev = \n", "not a whole TOML file"),
    "one table": (_UNIT + "layers = 3\n", r"expected \[\[layers\]\]"),
    "no unit": (_LAYER, "file_unit_gev is missing"),
    "unit in words": ('file_unit_gev = "MeV"\n' + _LAYER, "file_unit_gev is 'MeV', expected a number"),
    "other key": ("unit = 1\n" + _UNIT + _LAYER, "the file has unit; known: file_unit_gev, layers"),
    "other key of a layer": (_UNIT + _LAYER + "depth = 3\n", "number 1: a layer has depth; known: count"),
    "material": (_UNIT + _LAYER + "materials_mm = { Xx = 1 }\n", "the radiation length of Xx is not known"),
    "materials": (_UNIT + _LAYER + 'materials_mm = "W"\n', "materials_mm is 'W', expected a table"),
    "thickness": (_UNIT + _LAYER + 'materials_mm = { W = "1 mm" }\n', "W is '1 mm', expected a number"),
    "no thickness": (_UNIT + _LAYER.replace("x0 = 1\n", ""), "x0 is missing"),
    "none": (_UNIT + _LAYER + "materials_mm = { W = 1.0, Pb = 0 }\n", "materials_mm: Pb = 0, expected"),
    "endless": (_UNIT + _LAYER + "materials_mm = { W = inf }\n", "materials_mm: W = inf, expected"),
    "half a cell": (_UNIT + _LAYER.replace("[2, 2]", "[2.5, 2]"), "cells, expected two positive"),
    "true cells": (_UNIT + _LAYER.replace("[2, 2]", "[true, 2]"), "cells, expected two positive"),
    "no count": (_UNIT + _LAYER + _LAYER + "count = 0\n", "count is 0, expected 1 to 10000"),
    "count past memory": (_UNIT + _LAYER + "count = 1000000000\n", "count is 1000000000, expected 1 to 10000"),
    "thin": (_UNIT + _LAYER + "materials_mm = { W = 2.5, Si = 1.6 }\n", "pitch_mm is 4, but its materials are 4.1 mm"),
    "negative pitch": (_UNIT + _LAYER.replace("pitch_mm = 4", "pitch_mm = -4"), "a layer of -4 mm and"),
    "rings and cells": (_UNIT + _LAYER + "r_edges_mm = [0, 1]\nangles = 1\n", "a layer of rings has cell_mm, cells"),
    "rings without angles": (_UNIT + "[[layers]]\npitch_mm = 1\nx0 = 1\nr_edges_mm = [0, 1]\n", "angles is missing"),
    "angles without rings": (_UNIT + "[[layers]]\npitch_mm = 1\nx0 = 1\nangles = 1\n", "r_edges_mm is missing"),
    "both kinds": (
        _UNIT + _LAYER + "[[layers]]\npitch_mm = 1\nx0 = 1\nangles = 1\nr_edges_mm = [0, 1]\n",
        "the cells of all layers must be rectangular, or of all layers in rings",
    ),
}


@pytest.mark.parametrize("kind", _WRONG_TOML)
def test_a_wrong_file_of_layers(kind: str, tmp_path: Path) -> None:
    content, told = _WRONG_TOML[kind]
    (tmp_path / "own.toml").write_text(content)
    with pytest.raises(InputError, match=told) as raised:
        settled(str(tmp_path / "own.toml"))
    assert str(raised.value).startswith(f"--geometry {tmp_path / 'own.toml'}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no.toml", "no.toml: no such file"),
        ("calochallenge-4", "'calochallenge-4' is neither NAME=NUMBER, nor a file .* nor one of calochallenge-1-ph"),
        ("calochallenge-2,cell_mm=3", "cell_mm is not for a calorimeter whose layers are listed"),
        ("calochallenge-2,file_unit_gev=MeV", "'file_unit_gev=MeV' is not NAME=NUMBER"),
        ("cells=3", "unknown cells; known: cell_mm, "),
        ('{"shape": [1, 2', "not the whole JSON of a calorimeter"),
        ('{"shape": [1, 2, 3], "cells": 3}', "not the whole JSON of a calorimeter"),
    ],
)
def test_what_names_no_calorimeter(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        _geometry(text)


def test_a_file_is_read_whatever_an_editor_of_windows_calls_and_begins_it(tmp_path: Path) -> None:
    (tmp_path / "OWN.TOML").write_bytes(b"\xef\xbb\xbf" + (_UNIT + _LAYER).encode())
    assert _geometry(str(tmp_path / "OWN.TOML")) == Geometry((2, 2, 1), 5, 4, 1, 1)


def test_a_list_of_layers_must_be_of_the_shape() -> None:
    document = detectors()["calochallenge-2"].to_json()
    with pytest.raises(InputError, match=r"shape is \(16, 9, 44\), by the list of its layers \(16, 9, 45\)"):
        Geometry.from_json(document | {"shape": [16, 9, 44]})


def test_layers_that_differ_have_the_means_of_their_depths_and_the_median_of_their_cells() -> None:
    """By hand. The size of a cell is the side of a square of its area; in rings, the width of the innermost ring."""
    sections = [
        Layer(3.0, 1.0, (4, 6), size_mm=(2.0, 8.0)),
        Layer(5.0, 4.0, (2, 9), size_mm=(9.0, 9.0)),
        Layer(10.0, 1.0, (3, 3), size_mm=(30.0, 30.0)),
    ]
    found = Geometry.of_layers(sections, 0.5)
    assert found.shape == (4, 9, 3)
    assert (found.cell_mm, found.layer_pitch_mm, found.x0_per_layer) == pytest.approx((9, 6, 2))
    assert found.layers == tuple(sections)
    first = Geometry.of_layers([sections[0], sections[0]], 0.5)
    assert first.layers == tuple([sections[0]] * 2)  # alike, but their cells are no squares
    assert first.cell_mm == pytest.approx(4)
    rings = [Layer(1.0, 1.0, (1, 2), r_edges_mm=(1.0, 4.0, 20.0)), Layer(1.0, 1.0, (1, 1), r_edges_mm=(0.0, 5.0))]
    assert Geometry.of_layers(rings, 1.0).cell_mm == pytest.approx(4)


def test_arrays_of_showers_are_of_one_length() -> None:
    one, two = np.ones(1, np.float32), np.ones(2, np.float32)
    Showers(np.ones((2, 3, 3, 1), np.float32), two, two, two, more={"phi_rad": two})
    for lengths in ((one, two, two, two), (two, two, two, one)):
        energy, theta, measured, phi = lengths
        with pytest.raises(ValueError, match="disagree"):
            Showers(np.ones((2, 3, 3, 1), np.float32), energy, theta, measured, more={"phi_rad": phi})


def test_the_page_shows_the_file_and_the_calorimeter_is_as_it_says() -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert shown == EXAMPLE.read_text()
    geometry = _geometry(str(EXAMPLE))
    assert (geometry.shape, geometry.voxels) == ((12, 12, 22), 10 * 144 + 12 * 48)
    front, back = geometry.layers[0], geometry.layers[-1]
    assert (front.pitch_mm, front.x0) == (pytest.approx(3.3), pytest.approx(2.8 / 3.504 + 0.5 / 93.70))
    assert (back.pitch_mm, back.x0) == (7.0, pytest.approx(5.6 / 3.504 + 0.5 / 93.70))
    assert (back.cells, back.size_mm) == ((6, 8), (10.0, 7.5))


def test_from_arrays_to_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The page's own code writes the file, its command makes the dataset; every deposit is where it was."""
    geometry = _geometry(str(EXAMPLE))
    showers = make_ring_showers(events=60, geometry=geometry, seed=3)
    front, back = (np.moveaxis(part, 3, 1) for part in (showers.cells[:, :12, :12, :10], showers.cells[:, :6, :8, 10:]))
    assert front.sum() + back.sum() == pytest.approx(showers.cells.sum(), rel=1e-5)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {"front": front, "back": back, "energy_gev": showers.energy_gev})  # noqa: S102  the page's
    (line,) = re.findall(r"^python -m preprocessing (--input showers.h5 .*)", PAGE, re.MULTILINE)
    arguments = line.replace("docs/examples", str(EXAMPLE.parent)).split()
    command.main([*arguments, "--cut-gev", "0"])
    assert not caplog.records
    manifest = read_manifest(tmp_path / "runs" / "dataset")
    assert (manifest.geometry, manifest.settings["geometry"]) == (geometry, settled(str(EXAMPLE)))
    folder = tmp_path / "runs" / "dataset"
    batches = [batch for split in SPLITS for batch in ordered_batches(folder, manifest, split, batch=10)]
    energy, cells, mtheta = (
        np.concatenate([batch[name] for batch in batches]) for name in ("energy_gev", "cells", "mtheta_rad")
    )
    found, made = np.argsort(energy), np.argsort(showers.energy_gev)
    np.testing.assert_array_equal(energy[found], showers.energy_gev[made])
    np.testing.assert_allclose(cells[found] * 20, showers.cells[made], rtol=1e-5)  # from units of 0.02 GeV to MeV
    np.testing.assert_allclose(mtheta[found], showers.mtheta_rad[made], rtol=1e-6)
    assert open_showers(tmp_path / "showers.h5", str(EXAMPLE)).geometry == geometry
