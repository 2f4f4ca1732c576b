"""A cut on visible energy: none by default. A cut that drops low energies is reported, and bounds the valid range."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from commands import made
from showers import make_showers, write_file

from preprocessing.showers.cut import doubt, whole_from
from preprocessing.showers.manifest import ShowerManifest

_VISIBLE = 0.02  # GeV of a GeV, of the test showers


def _preprocessed(tmp_path: Path, *options: object, keep: np.ndarray | None = None) -> ShowerManifest:
    showers = make_showers(events=900)
    cells = showers.cells if keep is None else showers.cells * keep[:, None, None, None]
    paths = [write_file(tmp_path / f"{part}.h5", showers[part::2], ECAL=cells[part::2]) for part in (0, 1)]
    return made("--input", *paths, "--output", tmp_path / "ds", *options)


_FEW = np.random.default_rng(2).uniform(size=900) > 0.05
_ONE = np.where(np.arange(900) == 3, 0, 1e-4)


@pytest.mark.parametrize(("keep", "options"), [(_ONE, ()), (_FEW, ("--cut-gev", 0.2))], ids=["no cut", "all energies"])
def test_showers_without_energy_are_dropped_and_bound_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keep: np.ndarray, options: tuple[object, ...]
) -> None:
    """By default only showers without energy: one, or many at all energies alike, if particles miss the calorimeter."""
    manifest = _preprocessed(tmp_path, *options, keep=keep.astype(np.float32))
    assert manifest.events["dropped"]["below_cut"] == (keep == 0).sum()
    assert manifest.whole_range == manifest.valid_range
    assert "--cut-gev" not in caplog.text


def test_a_cut_of_the_low_energies_says_so_and_bounds_the_valid_range(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut = 130 * _VISIBLE  # in the middle of the showers of 130 GeV
    manifest = _preprocessed(tmp_path, "--cut-gev", cut)
    showers = make_showers(events=900)
    energy = showers.energy_gev
    dropped = showers.cells.sum(axis=(1, 2, 3), dtype=np.float64) * 0.02 <= cut
    assert 0.2 < dropped.mean() < 0.4
    low, high = manifest.whole_range["energy_gev"]
    assert high == manifest.energy_gev[1]
    assert 130 < low < 150
    assert dropped[(energy >= low)].mean() < 0.01
    assert dropped[(energy >= low / 1.13) & (energy < low * 1.2)].mean() > 0.01
    below = energy < low
    assert f"drops {dropped[below].sum()} of {below.sum()} showers below {low:.3g} GeV, and 0 of " in caplog.text
    assert manifest.valid_range["energy_gev"][0] < 135
    for least, most, count, lost in manifest.cut_by_energy:
        inside = (energy >= least) & (energy < most)
        assert (inside.sum(), dropped[inside].sum()) == (count, lost)


@pytest.mark.parametrize(("lost", "whole"), [(25, 2), (35, 3)])
def test_showers_are_whole_where_three_bins_lose_less_than_a_hundredth(lost: int, whole: int) -> None:
    """Bins of 1,000 showers each: two bins lose half, the next bin loses `lost`, the others lose none."""
    edges, losses = 10 ** (np.arange(9) / 20), (500, 500, lost, 0, 0, 0, 0, 0)
    rows = [(*pair, 1_000, count) for pair, count in zip(pairwise(edges), losses, strict=True)]
    assert whole_from(rows) == edges[whole]


def test_a_cut_spoils_energies_of_which_it_takes_twice_its_share_of_all() -> None:
    """A tenth of 100 to 200 GeV is lost, and nothing above."""
    rows = [(100.0, 200.0, 1000, 100), (200.0, 400.0, 1000, 0), (400.0, 800.0, 500, 0)]
    assert whole_from(rows[:2]) == 0  # just twice
    assert whole_from(rows) == 200
    assert whole_from(rows[1:]) == 0
    rows[2] = (400.0, 800.0, 2000, 7)
    assert "drops 100 of 1000 showers below 200 GeV, and 7 of 3000 above" in doubt(rows, 0.5)
    assert doubt(rows[1:], 0.5) == ""
