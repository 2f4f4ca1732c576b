"""A roll-out beside its simulation: which frames are compared, what is measured of them, and how it is drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from wakes import CELL_D, INTERVAL_D, SHAPE, measured, paired, street

from calopipe.errors import InputError
from calopipe.flow.files import open_flow
from calopipe.flow.grid import Grid
from calopipe.flow.mechanics import vorticity
from validation.flow.compare import _floors
from validation.flow.measurements import Measured, _period
from validation.flow.pairing import _same_flow, _stride, floor_frames, pair_of
from validation.flow.report import _by_step, _spectra, _vorticity


@pytest.mark.parametrize(("frames", "compared"), [(34, 25), (33, 25), (32, 24), (24, 16)])
def test_frames_are_compared_as_far_as_both_go(tmp_path: Path, frames: int, compared: int) -> None:
    """A roll-out of 25 frames from the frame 8 of a simulation, which is longer, ends with it or ends before; or is
    stored twice as often.
    """
    rollout = open_flow(street(tmp_path / "rollout.h5", frames=25, start=8))
    reference = open_flow(street(tmp_path / "solver.h5", frames=frames))
    often = open_flow(street(tmp_path / "often.h5", frames=2 * frames - 1, interval_d=INTERVAL_D / 2))
    for stored in (reference, often):
        pair = pair_of(rollout, [stored])
        found = measured(pair)
        assert pair.count == len(found.steps["relative_l2"]) == compared
        assert found.steps["relative_l2"].max() < 1e-6
        assert found.period_d == pytest.approx(5.0)
        assert found.strouhal == pytest.approx((0.2, 0.2), rel=0.01)


def test_a_floor_begins_where_it_goes_on_for_as_long_as_the_roll_out(tmp_path: Path) -> None:
    """Of 54 frames, stored twice as often, frame 6 is the roll-out's first; 25 frames fit only from frame 5 on."""
    pair = paired(tmp_path)
    often = open_flow(street(tmp_path / "often.h5", frames=54, start=10, interval_d=INTERVAL_D / 2))
    np.testing.assert_array_equal(often.velocity(6, 7), pair.solver()[:1])
    np.testing.assert_array_equal(floor_frames(pair, often), often.velocity(5, 54)[::2])


def test_the_divergence_is_judged_in_units_of_the_solvers_vorticity(tmp_path: Path) -> None:
    pair = paired(tmp_path, noise=0.05, strength=0.5)
    found, (u, v) = measured(pair), np.moveaxis(pair.solver().astype(np.float64), -1, 0)
    turning = np.gradient(v, CELL_D, axis=1) - np.gradient(u, CELL_D, axis=2)
    rms = np.sqrt(np.mean(turning[:, ~pair.reference.solid] ** 2))
    mine, theirs = np.sqrt(np.mean(np.square(found.steps["divergence"]), axis=0))
    assert found.values["divergence"] == pytest.approx((theirs - mine) / rms, rel=1e-3)


def test_spectra_are_compared_where_the_solver_has_a_ten_thousandth_of_its_energy(tmp_path: Path) -> None:
    found = measured(paired(tmp_path, noise=0.02))
    solver, candidate = found.spectra.T
    held, rare = (solver > share * solver.sum() for share in (1e-4, 1e-2))
    assert 1 < rare.sum() < held.sum() < len(solver)
    expected = np.sqrt(np.mean(np.log10(candidate[held] / solver[held]) ** 2))
    assert found.values["spectrum"] == pytest.approx(expected, rel=1e-3)


def test_every_floor_is_measured_as_far_as_it_goes_and_one_on_other_cells_is_refused(tmp_path: Path) -> None:
    pair = paired(tmp_path, frames=12)
    files = [open_flow(street(tmp_path / f"{frames}.h5", frames=frames, start=8)) for frames in (12, 11)]
    lengths = {floor.candidate: len(floor.steps["relative_l2"]) for floor in _floors([pair], files)}
    assert lengths == {"12.h5": 12, "11.h5": 11}
    other: Any = SimpleNamespace(
        path="other.h5", grid=Grid((47, 24), CELL_D, INTERVAL_D), reynolds=100.0, obstacle_d=(1.0, 1.0)
    )
    with pytest.raises(InputError, match=r"other.h5: \(47, 24\) cells; --floor needs the \(48, 24\)"):
        floor_frames(pair, other)


@pytest.mark.parametrize(("stored", "stride"), [(0.5, 1), (0.2505, 2), (0.506, None), (0.3, None), (1.0, None)])
def test_frames_are_stored_at_the_interval_or_a_whole_part_of_it(stored: float, stride: int | None) -> None:
    file: Any = SimpleNamespace(path="solver.h5", grid=Grid(SHAPE, CELL_D, stored))
    if stride is None:
        with pytest.raises(
            InputError, match=r"solver.h5: its interval of .* does not divide that of the roll-out, 0.5"
        ):
            _stride(0.5, file)
    else:
        assert _stride(0.5, file) == stride


def test_a_faster_flow_is_measured_by_hand(tmp_path: Path) -> None:
    """A flow a tenth too fast in the last period and twice as fast before; values in the obstacle are arbitrary."""
    pair = paired(tmp_path, start=0)
    frames, solid = pair.solver(), pair.reference.solid
    faster = frames * np.where(np.arange(25) < 15, 2, 1.1)[:, None, None, None]
    faster[:, solid] = 7
    found = measured(pair, faster.astype(np.float32))
    expected = {"strouhal": 1, "kinetic_energy": 1.1**2, "fluctuation": 1.1**2, "relative_l2": 1}
    assert {name: found.values[name] for name in expected} == pytest.approx(expected, rel=0.02)
    assert found.steps["relative_l2"] == pytest.approx([1.0] * 15 + [0.1] * 10, rel=1e-5)
    error = np.mean((0.1 * frames[24][~solid]) ** 2)
    assert found.steps["psnr"][24] == pytest.approx(10 * np.log10(np.ptp(frames) ** 2 / error), rel=1e-5)
    energy = np.mean(np.sum(frames[24][~solid].astype(np.float64) ** 2, axis=-1)) / 2
    assert found.steps["kinetic_energy"][24] == pytest.approx([energy, 1.1**2 * energy], rel=1e-5)
    energies = (15 * 2**2 + 10 * 1.1**2) / 25  # mean over the frames, of all wavenumbers alike but for the phase
    assert found.spectra[:, 1].sum() / found.spectra[:, 0].sum() == pytest.approx(energies, rel=0.02)
    assert [step for step, _, _ in found.pictures] == [8, 16, 24]
    for step, *both in found.pictures:
        for turning, factor in zip(both, (1, 2 if step < 15 else 1.1), strict=True):
            of_solver = np.where(solid, np.nan, vorticity(frames[step].astype(np.float64), CELL_D))
            np.testing.assert_allclose(turning, factor * of_solver, atol=1e-5)


def test_what_flows_before_the_obstacle_is_not_in_the_spectrum(tmp_path: Path) -> None:
    pair = paired(tmp_path, frames=12)
    frames = pair.solver()
    frames[:, :8] *= 3
    found = measured(pair, frames)
    assert found.values["spectrum"] == 0
    assert len(found.wavenumbers) == (SHAPE[0] - 8) // 2


def test_a_period_may_be_as_long_as_the_roll_out_but_eight_frames_are_needed(tmp_path: Path) -> None:
    """Periods of ten frames, and of five."""
    for frequency, least, period in ((1.0, 10, 10), (2.0, 8, 5)):
        file = street(tmp_path / "solver.h5", frequency=frequency)
        pair = pair_of(open_flow(file), [open_flow(file)])
        assert _period(replace(pair, count=least), "rollout") == period
        with pytest.raises(InputError, match=f"only {least - 1} frames can be compared"):
            _period(replace(pair, count=least - 1), "rollout")


def _as_drawn(scale: float = 1.0, frames: int = 3) -> Measured:
    """Measurements of at most three frames; each number is the index of its frame."""
    step, turning = np.arange(frames, dtype=np.float64), np.arange(12.0).reshape(4, 3) - 20
    return Measured(
        candidate="rollout.h5", reference="solver.h5", interval_d=0.5, period_d=5.0, strouhal=(0.2, 0.2), values={},
        steps={"relative_l2": scale * step, "kinetic_energy": np.stack([scale * step, scale * step + 10], axis=1)},
        wavenumbers=np.array([0.5, 1.0]), spectra=np.array([[4.0, 8.0], [1.0, 3.0]]),
        pictures=[(step, turning, turning + 100) for step in (8, 16)],
    )  # fmt: skip


def test_the_limit_is_passed_at_the_first_step_that_is_above_it() -> None:
    assert [_as_drawn().steps_within(limit) for limit in (0.5, 1.0, 2.0)] == [1, 2, None]


def test_the_pictures_are_of_the_solver_the_roll_out_and_what_is_too_much() -> None:
    """The solver's vorticity is -20 to -9, the roll-out's is 100 larger. The scale is the solver's; y is upward."""
    figure = Figure()
    _vorticity(figure, _as_drawn(), height=4.0)
    assert [axis.get_title(loc="left") for axis in figure.axes[:3]] == ["Solver", "Roll-out", "Roll-out minus solver"]
    turning = np.arange(12.0).reshape(4, 3) - 20
    for axis, expected in zip(figure.axes, 2 * [turning, turning + 100, 100 + 0 * turning], strict=True):
        (image,) = axis.get_images()
        np.testing.assert_array_equal(image.get_array(), expected.T)
        assert image.origin == "lower"
        low, high = image.get_clim()
        assert low == -high
        assert 19 < high <= 20


def test_curves_are_of_each_roll_out_and_the_mean_of_all_as_far_as_the_shortest_goes() -> None:
    def lines(name: str, floors: list[Measured]) -> list[tuple[bool, list[float]]]:
        """For each curve, whether it is a roll-out's, and its values."""
        figure = Figure()
        _by_step(figure, name, name, [_as_drawn(), _as_drawn(3.0, frames=2)], floors)
        colours = {"#c8102e": True, "#3f3f3f": False}
        return [
            (next(of for colour, of in colours.items() if same_color(line.get_color(), colour)), [*line.get_ydata()])
            for line in figure.axes[0].get_lines()
        ]

    rollouts = [(True, [0, 1, 2]), (True, [0, 3]), (True, [0, 2])]
    assert lines("relative_l2", []) == rollouts
    assert lines("relative_l2", [_as_drawn(5.0), _as_drawn(7.0)]) == [*rollouts, (False, [0, 6, 12])]
    of_solver = [(False, [0, 1, 2]), (False, [0, 3]), (False, [0, 2])]
    of_rollouts = [(True, [10, 11, 12]), (True, [10, 13]), (True, [10, 12])]
    assert lines("kinetic_energy", [_as_drawn()]) == of_solver + of_rollouts


def test_spectra_are_drawn_at_their_wavenumbers_and_named_once() -> None:
    figure = Figure()
    _spectra(figure, [_as_drawn(), _as_drawn()])
    (axis,) = figure.axes
    drawn = [line.get_xydata().tolist() for line in axis.get_lines()]
    assert drawn == 2 * [[[0.5, 4.0], [1.0, 1.0]], [[0.5, 8.0], [1.0, 3.0]]]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["solver", "roll-out"]


@pytest.mark.parametrize("away", [0.009, 0.011])
def test_flows_are_one_up_to_a_hundredth_of_reynolds_number_and_obstacle(away: float) -> None:
    solver, other, longer = (
        SimpleNamespace(reynolds=reynolds, obstacle_d=(length, 1.0))
        for reynolds, length in ((100.0, 0.5), (100.0 * (1 + away), 0.5), (100.0, 0.5 * (1 + away)))
    )
    assert _same_flow(other, solver) == _same_flow(longer, solver) == (away < 0.01)
