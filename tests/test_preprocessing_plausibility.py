"""Units, scale and axes that are not plausible are named with numbers; correct showers are not doubted."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from commands import run
from scipy import special, stats
from showers import (
    CYLINDER,
    SAMPLE,
    SMALL_GEOMETRY,
    SPREAD_OUT,
    make_labelled_showers,
    make_ring_showers,
    make_showers,
    write_file,
    write_voxels,
    write_whole,
)

from calopipe.errors import InputError
from calopipe.labels import PARTICLE, PHI
from calopipe.showers.cells import Geometry, Layer
from calopipe.showers.detectors import detectors, split_values
from calopipe.showers.files import open_showers
from pipelines.checks import check
from preprocessing.dataset import read_manifest
from preprocessing.showers.plausibility import Look, _doubt_of_energies, _doubt_of_widths, look_at
from training.configs import named_config
from training.fit import _checked_manifest

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "two-sections.toml"


def _look(path: Path, geometry: str = "") -> Look:
    look = look_at(open_showers(path, geometry))
    assert look is not None
    return look


_RECTANGULAR = 5.1 * np.stack(np.meshgrid(np.arange(51), np.arange(51), indexing="ij"))
_RADIUS, _ANGLE = 4.65 * (np.arange(9) + 0.5), (np.arange(16) + 0.5) * np.pi / 8 - np.pi
_IN_RINGS = np.multiply.outer([np.cos(_ANGLE), np.sin(_ANGLE)], _RADIUS)


@pytest.mark.parametrize(
    ("path", "places", "x0", "unit_gev"),
    [
        (next(SAMPLE.glob("*.h5")), _RECTANGULAR, 1.004, 0.02),
        (CYLINDER, _IN_RINGS, 1.4 / 3.504 + 0.3 / 93.70, 1e-3),
    ],
    ids=["rectangular", "rings"],
)
def test_the_numbers_are_those_of_the_cells(path: Path, places: np.ndarray, x0: float, unit_gev: float) -> None:
    """Radius by a loop over the layers; `places` are x and y of the cells in mm."""
    look, showers = _look(path), open_showers(path).read()[SPREAD_OUT]
    cells = showers.cells.astype(np.float64)
    assert look.doubts == ()
    assert look.showers == 100
    assert look.response == pytest.approx(unit_gev * cells.sum() / showers.energy_gev.sum(), rel=1e-3)
    layers = cells.shape[3]
    depth = np.interp(0.5, np.cumsum(cells.sum(axis=(0, 1, 2))) / cells.sum(), np.arange(layers) + 1)
    assert look.depth_x0 == pytest.approx(depth * x0 * np.mean(1 / np.sin(showers.theta_rad)), rel=1e-3)
    squares = 0.0
    for layer in (cells[event, :, :, k] for event in range(100) for k in range(layers)):
        if layer.any():
            centre = [(layer * along).sum() / layer.sum() for along in places]
            squares += (layer * sum((along - at) ** 2 for along, at in zip(places, centre, strict=True))).sum()
    assert look.radius_mm == pytest.approx(np.sqrt(squares / cells.sum()), rel=1e-3)


def test_the_way_through_a_layer_is_longer_by_both_angles(tmp_path: Path) -> None:
    showers = make_labelled_showers(events=80)
    path = write_file(tmp_path / "a.h5", showers, phi=showers.more[PHI], pdg=showers.more[PARTICLE])
    cells, x0 = showers.cells.astype(np.float64), SMALL_GEOMETRY.x0_per_layer
    depth = np.interp(0.5, np.cumsum([0, *cells.sum(axis=(0, 1, 2))]) / cells.sum(), np.arange(6)) * x0
    straight = 1 / np.sin(showers.theta_rad)
    assert _look(path).depth_x0 == pytest.approx(depth * np.mean(straight / np.cos(showers.more[PHI])), rel=1e-3)


@pytest.mark.parametrize(
    ("layers", "size_mm", "leaks"), [(60, (10.0, 10.0), False), (8, (10.0, 10.0), True), (60, (10.0, 9.0), False)]
)
def test_the_expected_depth_is_half_of_the_gamma_function(
    tmp_path: Path, layers: int, size_mm: tuple[float, float], leaks: bool
) -> None:
    """The known integral, for a calorimeter so deep that nothing leaks, and for one that ends within the shower.

    If layers are listed, as layers of different sizes are, energy lost before the first layer does not count.
    """
    geometry = Geometry.of_layers([Layer(4.0, 1.0, (5, 5), size_mm=size_mm)] * layers, 0.02)
    energy, straight = (np.full(20, value, np.float32) for value in (50, np.pi / 2))
    showers = replace(make_showers(events=20, geometry=geometry), energy_gev=energy, theta_rad=straight)
    low, high = _look(write_whole(tmp_path / "a.h5", showers, geometry, "ECAL")).expected_x0
    for found, critical, margin in ((low, 0.025, 3.0), (high, 0.007, -2.0)):
        a = 1 + 0.5 * (np.log(50 / critical) - 0.5)
        share = special.gammainc(a, 0.5 * layers)
        assert (share < 0.9) == leaks
        lost = special.gammainc(a, 0.5 * margin) if geometry.layers and margin > 0 else 0.0
        assert found == pytest.approx(2 * special.gammaincinv(a, (lost + share) / 2) - margin, rel=0.01)


_SHOWERS = make_showers(events=60)
_CELLS = _SHOWERS.cells * np.float32(1.01)  # no whole numbers
_SPREAD = np.random.default_rng(5).permutation(60)
_UNIT = re.escape("with file_unit_gev=0.02: is that the unit of ECAL (--geometry file_unit_gev=...)")
_AXES = r"are the cells \(N, x, y, layer\), are these"
_RESPONSE = 0.02 * _SHOWERS.cells.sum(axis=(1, 2, 3)).mean() / _SHOWERS.energy_gev.mean()


def _responding(response: float) -> dict[str, Any]:
    return {"ECAL": _SHOWERS.cells * np.float32(response / _RESPONSE)}


def _late(kind: int) -> dict[str, Any]:
    """Showers that begin late, as if read from the back: impossible for electrons, but possible for pions."""
    return {"ECAL": _CELLS[..., ::-1], "pdg": np.full(60, kind)}


def _beam_of_hadrons(energy_gev: float) -> dict[str, Any]:
    """The depth of hadrons says nothing about their energy."""
    return {"energy": np.full(60, energy_gev), "ECAL": _CELLS * 50, "pdg": np.full(60, 211)}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"ECAL": _CELLS * 1000}, f"E_vis/E is 20.2 {_UNIT}"),
        ({"energy": _SHOWERS.energy_gev * 1000}, "is energy in GeV, is x0_per_layer right"),
        ({"energy": _SHOWERS.energy_gev / 1000}, "is energy in GeV, is x0_per_layer right"),
        ({"ECAL": _CELLS.transpose(0, 3, 1, 2)}, _AXES),
        ({"ECAL": _CELLS.transpose(0, 1, 3, 2)}, _AXES),
        (
            {"energy": _SHOWERS.energy_gev[_SPREAD]},
            r"E_vis does not rise with the energies of 10\d.* are they",
        ),
        *((_responding(response), "^E_vis/E is") for response in (0.0009, 0.36, 0.69, 1.21)),
        *((_late(kind), "are these electromagnetic showers?") for kind in (11, -11, 22, 111)),
        (_beam_of_hadrons(10_100), "is energy in GeV"),
    ],
)
def test_what_is_off_is_named(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    doubts = _look(write_file(tmp_path / "a.h5", _SHOWERS, chunks=False, **changed)).doubts
    assert any(re.search(told, doubt) for doubt in doubts)


@pytest.mark.parametrize(
    "changed", [*map(_responding, (0.0011, 0.34, 0.71, 1.19)), _late(-211), _beam_of_hadrons(9_900)]
)
def test_what_may_be_is_not_doubted(tmp_path: Path, changed: dict[str, Any]) -> None:
    """A response of gaps, or of cells that are calibrated; late pions; and the highest energies of accelerators."""
    assert _look(write_file(tmp_path / "a.h5", _SHOWERS, chunks=False, **changed)).doubts == ()


@pytest.mark.parametrize(
    ("events", "least", "spread", "doubted"),
    [(19, 150, 6.0, False), (20, 150, 6.0, True), (60, 150, 4.2, False), (60, 150, 4.8, True), (60, 147, 6.0, False)],
)
def test_a_beam_is_doubted_from_twenty_showers_that_spread_fourfold(
    events: int, least: float, spread: float, doubted: bool
) -> None:
    """If showers are evenly spread in log E_vis, nine in ten of them spread by the power 0.9 of the whole spread."""
    doubt = _doubt_of_energies(np.linspace(least, 150, events), np.geomspace(1, spread, events))
    assert (f"all energies are {least} GeV, but E_vis of nine in ten showers spreads" in doubt) == doubted


@pytest.mark.parametrize(
    ("share", "highest", "doubted"), [(0.30, 190, True), (0.35, 190, False), (0.30, 181, True), (0.30, 179, False)]
)
def test_energies_that_vary_by_four_fifths_are_doubted_below_a_rank_correlation_of_three_tenths(
    share: float, highest: float, doubted: bool
) -> None:
    energy = np.linspace(100, highest, 200, dtype=np.float32)
    visible = share * np.arange(200) + (1 - share) * np.random.default_rng(0).permutation(200)
    assert (stats.spearmanr(energy, visible).statistic < 0.3) == (share < 0.35)
    assert ("does not rise" in _doubt_of_energies(energy, visible)) == doubted


@pytest.mark.parametrize(("size_mm", "doubted"), [((9.0, 99.0), False), ((9.75, 99.0), False), ((10.25, 99.0), True)])
def test_a_layer_four_times_as_wide_as_another_is_doubted(size_mm: tuple[float, float], doubted: bool) -> None:
    """The shorter side of a layer counts; that of the other layer is 10 mm."""
    layers = [Layer(1.0, 1.0, (8, 2), size_mm=(9.0, 5.0)), Layer(1.0, 1.0, (4, 4), size_mm=size_mm)]
    assert bool(_doubt_of_widths(Geometry.of_layers(layers, 1.0))) == doubted


def test_a_section_that_is_ten_times_as_narrow_is_named(tmp_path: Path) -> None:
    """Its cells are 0.5 mm by mistake, and should be 5 mm."""
    showers = make_ring_showers(events=30, geometry=split_values(str(EXAMPLE))[0], seed=3)
    path, narrow = write_file(tmp_path / "a.h5", showers, geometry=None), tmp_path / "narrow.toml"
    narrow.write_text(EXAMPLE.read_text().replace("cell_mm = 5.0", "cell_mm = 0.5"))
    assert _look(path, str(EXAMPLE)).doubts == ()
    doubts = _look(path, str(narrow)).doubts
    assert any(re.match(r"layer 0 is 6 mm wide and layer \d+ 60 mm: are their cells in mm", each) for each in doubts)


@pytest.mark.parametrize(
    ("energy", "deposits", "geometry", "told"),
    [
        (1e-3, 1.0, "", "is incident_energies in MeV"),
        (1.0, 1e-3, "", "is that the unit of showers (--geometry"),
        (1.0, 1e3, "", "is that the unit of showers (--geometry"),
        (1.0, 1.0, "x0_per_layer=4", "is x0_per_layer right"),
        (1.0, 1.0, "layer_pitch_mm=0.01", "are its layers right?"),
    ],
)
def test_other_units_and_layers_than_those_of_challenges_layout_are_named(
    tmp_path: Path, energy: float, deposits: float, geometry: str, told: str
) -> None:
    with h5py.File(CYLINDER) as file:
        voxels, energies = file["showers"][:100] * deposits, file["incident_energies"][:100] * energy
    assert told in " ".join(_look(write_voxels(tmp_path / "a.h5", voxels, energies), geometry).doubts)


def test_layers_as_thick_as_a_shower_are_not_doubted(tmp_path: Path) -> None:
    """The third layer of the barrel is 16 radiation lengths thick: the depth of half of the energy is not seen."""
    geometry = detectors()["calochallenge-1-photons"]
    showers = make_ring_showers(events=60, geometry=geometry)
    assert _look(write_whole(tmp_path / "a.h5", showers, geometry)).doubts == ()


def test_a_run_stops_at_it_before_training_unless_it_is_to_go_on(tmp_path: Path) -> None:
    path = write_file(tmp_path / "mev.h5", _SHOWERS, ECAL=_CELLS * 1000)
    values = {"input": [str(path)], "output": str(tmp_path / "run"), "config": "small"}
    with pytest.raises(InputError, match=r"mev.h5: not plausible: E_vis/E is 20.* go on with --on-doubt warn"):
        check(values)
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="the train split"):  # of which it is not the last word
        check(values | {"on_doubt": "warn", "split_files": ["test=mev.h5"]})


def test_by_default_it_is_a_warning_and_the_manifest_keeps_the_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [
        write_file(tmp_path / "good.h5", _SHOWERS),
        write_file(tmp_path / "mev.h5", make_showers(events=60, seed=2), ECAL=_CELLS * 1000),
    ]
    for _ in range(2):  # found out, and remembered
        caplog.clear()
        run("--input", *paths, "--output", tmp_path / "ds")
        assert "mev.h5: not plausible: E_vis/E is 20" in caplog.text
        assert "good.h5: not plausible" not in caplog.text
    caplog.clear()
    _checked_manifest(tmp_path / "ds", tmp_path / "model", named_config("fast"))  # a training says it again
    assert "1 of the 2 input files are not plausible: mev.h5: E_vis/E is 20" in caplog.text
    noted = {each["name"]: each for each in read_manifest(tmp_path / "ds").plausibility}
    assert noted["good.h5"]["doubts"] == []
    assert noted["good.h5"]["response"] == pytest.approx(0.02, rel=0.02)
    assert "E_vis/E is 20" in noted["mev.h5"]["doubts"][0]


def test_no_shower_that_is_sound_is_no_look(tmp_path: Path) -> None:
    empty = write_file(tmp_path / "a.h5", make_showers(events=5), ECAL=np.zeros((5, 17, 17, 5), np.float32))
    assert look_at(open_showers(empty)) is None
