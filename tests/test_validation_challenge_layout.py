"""Showers in rings, over two decades of energy, judged: faults by their names, the command line, and its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from judging import criteria_of, failed, validated
from showers import RING_GEOMETRY, make_ring_showers, observed, write_whole

from calopipe.showers.cells import FloatArray, Showers
from validation.judge.answers import Criterion
from validation.measure.observables import Observables

pytestmark = pytest.mark.usefixtures("undrawn")

EVENTS = 1_500


@cache
def showers(seed: int) -> Showers:
    return make_ring_showers(events=EVENTS, seed=seed)


def table(made: Showers, cells: FloatArray) -> Observables:
    found = observed(replace(made, cells=cells), RING_GEOMETRY)
    return found[~found.empty]


def judged(cells: FloatArray, grade: str = "gan") -> dict[str, Criterion]:
    """The verdict on showers of seed 2 with these cells, against showers of seed 1."""
    mine, theirs = table(showers(1), showers(1).cells), table(showers(2), cells)
    return criteria_of(mine, theirs, grade=grade, geometry=RING_GEOMETRY)


def scaled_layer(cells: FloatArray) -> FloatArray:
    return cells * np.where(np.arange(6) == 2, 1.2, 1.0).astype(np.float32)


def farther_out(cells: FloatArray) -> FloatArray:
    """Energy one ring farther out, if the layer has such a ring."""
    moved = np.zeros_like(cells)
    moved[:, :, 1:5, 1:5] = cells[:, :, :4, 1:5]
    return moved


def test_independent_showers_turned_about_the_axis_are_not_rejected() -> None:
    """So the grade `gan` does not reject them either, as all its tolerances are wider."""
    rng = np.random.default_rng(0)
    cells = showers(2).cells.copy()
    for shower in cells:
        shower[:, :, 1:5] = np.roll(shower[:, :, 1:5], rng.integers(8), axis=0)
    assert not failed(judged(cells, "precision"))


@pytest.mark.parametrize(
    ("fault", "name"), [(scaled_layer, "Mean energy, layer 2"), (farther_out, "Energy in rings about the axis")]
)
def test_a_fault_is_rejected_by_the_criterion_that_names_it(
    fault: Callable[[FloatArray], FloatArray], name: str
) -> None:
    assert name in failed(judged(fault(showers(2).cells)))


def test_the_command_line_judges_files_of_rings(tmp_path: Path) -> None:
    paths = [write_whole(tmp_path / f"{seed}.h5", showers(seed)[:700], RING_GEOMETRY) for seed in (1, 2)]
    document = validated(*paths, tmp_path / "out", "--grade", "gan")
    assert document["verdict"] != "rejected"
    assert set(document["resolution"]["candidate"]["terms"]) == {"a", "b", "c"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Response and resolution against energy" in page
    assert "stochastic" in page
    for found in document["classifier"].values():
        assert found["interval"][0] < 0.5 < found["interval"][1] or abs(found["value"] - 0.5) < 0.07
