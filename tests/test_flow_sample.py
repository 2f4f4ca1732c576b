"""The simulations of the sample, and input that is refused before a simulation. The solver is not needed here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from simulate import Case, cases

from calopipe.errors import InputError
from calopipe.events.splits import SPLITS, SplitRule
from calopipe.flow.files import FlowFile, open_flow
from calopipe.flow.mechanics import divergence, strouhal, transverse, unsettled, vorticity

DATA = Path(__file__).parent.parent / "data" / "vortex"
SAMPLE = sorted(DATA.glob("*.h5"))


@pytest.fixture(scope="module")
def flows() -> list[FlowFile]:
    return [open_flow(path) for path in SAMPLE]


def test_the_sample_is_small_and_fills_every_split(flows: list[FlowFile]) -> None:
    assert sum(path.stat().st_size for path in DATA.rglob("*.h5")) < 5_000_000
    places = SplitRule().assign("any", np.array([flow.digest for flow in flows], dtype=np.uint64))
    assert np.bincount(places, minlength=len(SPLITS)).tolist() == [14, 1, 5]
    trained = [flow.reynolds for flow, place in zip(flows, places, strict=True) if place == 0]
    assert (min(trained), max(trained)) == (65, 200)  # the others are between
    assert [len(flow.time) for flow, place in zip(flows, places, strict=True) if place == 2] == [48] * 5


@pytest.mark.parametrize("number", range(len(SAMPLE)))
def test_each_flow_is_a_settled_street_of_a_liquid(flows: list[FlowFile], number: int) -> None:
    flow = flows[number]
    velocity = flow.velocity(0, len(flow.time))
    signal = transverse(velocity, flow.solid, flow.grid.cell_d)
    assert unsettled(signal) == ""
    found = strouhal(signal, flow.grid.interval_d)
    # Okajima (J. Fluid Mech. 123, 379 (1982)) has .12 to .16 for rectangles in the open; a channel raises it, since the
    # flow beside the obstacle is faster: here in units of that speed
    height = flow.obstacle_d[1]
    assert 0.12 < found * height * (1 - height / (flow.grid.shape[1] * flow.grid.cell_d)) < 0.20
    assert 16 <= 1 / (found * flow.grid.interval_d) <= 24
    away = np.ones(flow.solid.shape, dtype=bool)
    x, y = np.nonzero(flow.solid)
    away[x.min() - 3 : x.max() + 4, y.min() - 3 : y.max() + 4] = False
    away[:, [0, -1]] = away[[0, -1]] = False
    spread = [np.sqrt(np.mean(of(velocity, 0.2)[:, away] ** 2)) for of in (divergence, vorticity)]
    assert spread[0] < 0.1 * spread[1]
    through = velocity[..., 0].sum(axis=2).mean(axis=0)  # the same in every cross-section
    np.testing.assert_allclose(through[[10, 60, 120]] / through[0], 1, atol=0.02)
    assert not velocity[:, flow.solid].any()
    with h5py.File(flow.path) as file:
        np.testing.assert_allclose(file["vorticity"][()], vorticity(velocity, 0.2), atol=1 / 16 + 1e-6)


def test_the_floor_is_a_test_flow_of_a_finer_solver_from_the_same_phase(flows: list[FlowFile]) -> None:
    (path,) = (DATA / "floor").glob("*.h5")
    fine = open_flow(path)
    (coarse,) = (flow for flow in flows if flow.digest == fine.digest)
    assert coarse.path.name == path.name == "vortex_80_02.h5"
    with h5py.File(path) as file:
        assert file.attrs["resolution"] == 2
    frames = [flow.velocity(0, 40) for flow in (coarse, fine)]
    away = [np.linalg.norm(ours - theirs) / np.linalg.norm(ours) for ours, theirs in zip(*frames, strict=True)]
    assert 0 < away[0] < 0.02  # a frame later it would be .08, and half a period .5
    assert away[-1] < 0.05  # after two periods
    numbers = [strouhal(transverse(each, fine.solid, fine.grid.cell_d), fine.grid.interval_d) for each in frames]
    assert numbers[1] / numbers[0] == pytest.approx(1, abs=0.03)


def test_a_case_is_what_the_sample_says(flows: list[FlowFile]) -> None:
    made = cases(Case(100, seed=16354), 15) + cases(Case(100, seed=80), 5, (80, 185))
    for flow, case in zip(flows, made, strict=True):
        assert (flow.reynolds, flow.obstacle_d) == (case.reynolds, case.obstacle_d)
        np.testing.assert_array_equal(flow.solid, case.solid)
        assert not flow.grid.difference(case.grid)
    with pytest.raises(InputError, match="expected more than 50, where wakes shed"):
        cases(Case(100), 2, (45, 90))
    fine = Case(100, resolution=2)
    assert (fine.solver_cells, fine.steps) == (20, 70)
    assert fine.grid == Case(100).grid


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"reynolds": 1000}, "--reynolds is 1000, expected 10 to 300"),
        ({"reynolds": 100, "frames": 1}, "1 frames, 0.28 D/U apart"),
        ({"reynolds": 100, "middle_d": (0.5, 3.2)}, r"an obstacle of \(1.0, 1.0\) D at \(0.5, 3.2\) D: expected one"),
        ({"reynolds": 100, "obstacle_d": (1.0, 9.0)}, "with room before and behind"),
    ],
)
def test_impossible_cases_are_refused(given: dict[str, float], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Case(**given)  # type: ignore[arg-type]


def test_a_missing_solver_and_a_bad_option_are_one_line(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        program = (
            "import runpy, sys; sys.modules['pylbm'] = None; "
            "runpy.run_path('data/vortex/simulate.py', run_name='__main__')"
        )
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent)
        assert done.returncode == 2
        return done.stderr.strip().splitlines()[-1]

    output = str(tmp_path / "a.h5")
    told = run("--output", output)
    assert "pylbm is not installed here" in told
    assert "pip install 'calopipe[flow]'" in told
    assert "--obstacle" in run("--output", output, "--obstacle", "wide")
    assert "--many is -1, expected at least 0" in run("--output", output, "--many", "-1")
    assert not list(tmp_path.iterdir())
