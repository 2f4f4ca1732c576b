"""Showers that the scales are taken from: evenly from all batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from likelihoods import new_model, uneven_showers

from training.models.autoregressive.constants import _some


def _batches(sizes: list[int]) -> list[dict[str, Any]]:
    """Batches of showers of rising energies, whose hits are the more."""
    found, first = [], 0
    for number, size in enumerate(sizes):
        energy = np.arange(first, first + size, dtype=np.float32)
        first += size
        cell = np.tile(np.arange(number + 2, dtype=np.int32), (size, 1))
        value = np.ones(cell.shape, np.float32) * (energy[:, None] + 1)
        found.append({"energy_gev": energy, "theta_rad": energy / 1000, "cell": cell, "value": value, "pdg": energy})
    return found


@pytest.mark.parametrize("sizes", [[100] * 7, [256, 256, 37], [3] * 50, [1, 400, 2]])
@pytest.mark.parametrize("number", [10, 60, 10_000])
def test_some_showers_are_taken_evenly_from_all_batches(sizes: list[int], number: int) -> None:
    """Of showers sorted by energy: every k-th one, with its labels and its hits."""
    found, every = _some(_batches(sizes), number), sum(sizes)
    step = max(1, every // number)
    np.testing.assert_array_equal(found["energy_gev"], np.arange(0, every, step))
    for name, unit in (("theta_rad", 1000), ("pdg", 1)):
        np.testing.assert_allclose(found[name], np.arange(0, every, step) / unit, rtol=1e-6)
    assert found["cell"].shape == found["value"].shape == (len(found["energy_gev"]), len(sizes) + 1)
    of_batch = np.repeat(np.arange(len(sizes)), sizes)[::step]
    hits = found["cell"] >= 0
    np.testing.assert_array_equal(hits.sum(1), of_batch + 2)
    np.testing.assert_array_equal(found["value"], np.where(hits, found["energy_gev"][:, None] + 1, 0))


def test_the_deposits_of_reference_are_those_of_all_batches() -> None:
    cells, _, _ = uneven_showers(events=300)
    constants = new_model().networks["constants"]
    assert float(constants["deposit"]) == pytest.approx(np.median(cells[cells > 0]), rel=1e-6)
    assert float(constants["least"]) == cells[cells > 0].min()
