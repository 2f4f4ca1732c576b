"""A user's own calorimeter: the example of docs/detectors.md, run with its files on toy showers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from showers import make_ring_showers

from calopipe.events.splits import SPLITS
from calopipe.showers.detectors import settled, split_values
from calopipe.showers.files import open_showers
from preprocessing import __main__ as command
from preprocessing.dataset import read_manifest
from preprocessing.reading import ordered_batches

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "two-sections.toml"
PAGE = (ROOT / "docs" / "detectors.md").read_text()


def test_the_page_shows_the_file_and_the_calorimeter_is_as_it_says() -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert shown == EXAMPLE.read_text()
    geometry, _ = split_values(str(EXAMPLE))
    assert geometry is not None
    assert (geometry.shape, geometry.voxels) == ((12, 12, 22), 10 * 144 + 12 * 48)
    front, back = geometry.layers[0], geometry.layers[-1]
    assert (front.pitch_mm, front.x0) == (pytest.approx(3.3), pytest.approx(2.8 / 3.504 + 0.5 / 93.70))
    assert (back.pitch_mm, back.x0) == (7.0, pytest.approx(5.6 / 3.504 + 0.5 / 93.70))
    assert (back.cells, back.size_mm) == ((6, 8), (10.0, 7.5))


def test_from_arrays_to_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The page's own code writes the file, its command makes the dataset; every deposit is where it was."""
    geometry, _ = split_values(str(EXAMPLE))
    assert geometry is not None
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
