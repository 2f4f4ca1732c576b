"""A roll-out beside its simulation: which frames are compared, what is measured of them, and how it is drawn.

Measures are compared with closed forms, and with TensorFlow's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from wakes import CELL_D, INTERVAL_D, SHAPE, measured, paired, street

from calopipe.errors import InputError
from calopipe.flow.files import open_flow
from calopipe.flow.grid import Grid
from calopipe.flow.mechanics import kinetic_energy, strouhal, transverse, unsettled, vorticity, wake
from validation.flow import measurements
from validation.flow.compare import _floors
from validation.flow.measurements import Array, Measured, _period
from validation.flow.pairing import _same_flow, _stride, floor_frames, pair_of
from validation.flow.report import _by_step, _spectra, _vorticity

N = 64
SIDE_D = 2 * np.pi / N  # of a cell of the vortex below
EVERYWHERE = np.ones((N, N), dtype=np.bool_)


def taylor_green(time: float = 0.0, nu: float = 0.1) -> Array:
    """u = cos x sin y, v = -sin x cos y, which decay as exp(-2 nu t): an exact flow, (N, N, 2)."""
    x, y = np.meshgrid(*[(np.arange(N) + 0.5) * SIDE_D] * 2, indexing="ij")
    return np.stack([np.cos(x) * np.sin(y), -np.sin(x) * np.cos(y)], axis=-1) * np.exp(-2 * nu * time)


def test_a_taylor_green_vortex_has_no_divergence_and_its_energy_decays() -> None:
    assert measurements.rms_divergence(taylor_green(), EVERYWHERE, SIDE_D) < 1e-12
    strained = taylor_green() + np.linspace(0, 1, N)[:, None, None] * [1.0, 0.0]  # du/dx = 1 / length
    found = measurements.rms_divergence(strained, EVERYWHERE, SIDE_D)
    assert found == pytest.approx(1 / ((N - 1) * SIDE_D))
    energy = [float(kinetic_energy(taylor_green(time), EVERYWHERE)) for time in (0.0, 3.0)]
    assert energy[0] == pytest.approx(0.25)
    assert energy[1] / energy[0] == pytest.approx(np.exp(-4 * 0.1 * 3.0))
    # The decay scales the field, so that the error relative to the start is that of the scale.
    away = measurements.relative_l2(taylor_green(), taylor_green(3.0), EVERYWHERE)
    assert away == pytest.approx(1 - np.exp(-2 * 0.1 * 3.0))


def test_cells_beside_the_solid_do_not_count_as_divergence() -> None:
    fluid = EVERYWHERE.copy()
    fluid[20:30, 20:30] = False
    assert measurements.rms_divergence(taylor_green() * fluid[..., None], fluid, SIDE_D) < 1e-12


def test_a_spectrum_sums_to_the_energy_also_at_its_last_wavenumber() -> None:
    """For alternating cells, by Parseval's theorem; with an even number of cells, the last wavenumber is there once."""
    velocity = np.zeros((16, 3, 2))
    velocity[..., 0] = np.where(np.arange(16) % 2, -1.0, 1.0)[:, None]
    assert measurements.energy_spectrum(velocity, 0.5)[1].sum() == pytest.approx(0.5)


@pytest.mark.parametrize("cells", [15, 16])
def test_a_spectrum_is_the_mean_over_rows_of_what_each_has_beside_its_mean(cells: int) -> None:
    """For sines with energy at the last wavenumber; with an odd number of cells, this wavenumber is there twice."""
    velocity = np.zeros((cells, 3, 2))
    wave = np.sin(2 * np.pi * 6 * np.arange(cells) / cells + 0.2)
    velocity[..., 0] = wave[:, None] * [1.0, 2.0, 3.0] + [5.0, -1.0, 2.0]
    wavenumber, energy = measurements.energy_spectrum(velocity, 0.5)
    assert energy.sum() == pytest.approx((1 + 4 + 9) / 3 / 4)
    assert energy[6] > 0.1 * energy.sum()
    assert wavenumber[energy.argmax()] == pytest.approx(6 / (cells * 0.5))


def test_the_errors_are_those_of_the_fluid_alone() -> None:
    """For frames of 5 U with an error of 1 U along y. Values in the solid are arbitrary."""
    fluid = EVERYWHERE.copy()
    fluid[:16] = False
    reference = np.where(fluid[..., None], [3.0, 4.0], 100.0)
    candidate = np.where(fluid[..., None], [3.0, 5.0], -70.0)
    assert measurements.relative_l2(reference, candidate, fluid) == pytest.approx(1 / 5)
    assert measurements.psnr(reference, candidate, fluid, 10.0) == pytest.approx(10 * np.log10(10**2 / (1 / 2)))


def test_ssim_and_psnr_are_those_of_tensorflow() -> None:
    rng = np.random.default_rng(3)
    first = taylor_green()
    second = first + 0.1 * rng.standard_normal(first.shape)
    peak = float(np.ptp(first))
    images = [each.transpose(2, 0, 1)[..., None] for each in (first, second)]  # each component an image of its own
    expected = tf.image.ssim(*images, max_val=peak, filter_size=11, filter_sigma=1.5).numpy().mean()
    assert measurements.ssim(first, second, peak) == pytest.approx(float(expected), abs=1e-5)
    assert expected < 0.95
    decibels = float(tf.image.psnr(first, second, max_val=peak))
    assert measurements.psnr(first, second, EVERYWHERE, peak) == pytest.approx(decibels, abs=1e-4)
    assert measurements.psnr(first, first, EVERYWHERE, peak) == np.inf
    assert measurements.ssim(first, first, peak) == pytest.approx(1.0)


@pytest.mark.parametrize("periods", [1.0, 1.6, 5.3])
@pytest.mark.parametrize("frequency", [0.15, 0.2])
def test_the_frequency_of_a_sine_is_found_within_a_period_or_two(periods: float, frequency: float) -> None:
    interval_d = 0.25
    time = np.arange(round(periods / frequency / interval_d)) * interval_d
    signal = 0.1 + 0.3 * np.sin(2 * np.pi * frequency * time + 1)
    assert strouhal(signal, interval_d) == pytest.approx(frequency, rel=5e-3)
    harmonic = signal + 0.03 * np.sin(6 * np.pi * frequency * time)
    assert strouhal(harmonic, interval_d) == pytest.approx(frequency, rel=0.05)


def test_what_does_not_swing_has_no_frequency() -> None:
    time = np.arange(100) * 0.25
    swing = 0.3 * np.sin(2 * np.pi * 0.2 * time)
    for signal in (0.01 * swing, 0.05 * swing, swing[:12], swing[:5], 0.3 * np.exp(-time / 5), 0.01 * time):
        assert np.isnan(strouhal(signal, 0.25))


def test_a_sine_is_fitted_to_eight_frames_of_which_each_is_finite() -> None:
    swing = 0.3 * np.sin(np.pi / 2 * np.arange(9) + 0.4)  # a period is four frames
    assert strouhal(swing[:8], 0.5) == pytest.approx(0.5, rel=0.02)
    assert np.isnan(strouhal(swing[:7], 0.5))
    assert np.isnan(strouhal(np.append(swing, np.nan), 0.5))


@pytest.mark.parametrize(
    ("early", "late", "begins"),
    [
        (0.3, 0.3, ""),
        (0.19, 0.3, ""),
        (0.17, 0.3, "the wake's swing still grows"),
        (0.6, 0.3, ""),  # one that settles from above has settled
        (0.01, 0.021, "the wake's swing still grows"),
        (0.019, 0.019, "the wake swings by"),
        (0.021, 0.021, ""),
    ],
)
def test_a_wake_has_settled_once_its_first_half_has_six_tenths_of_the_swing(
    early: float, late: float, begins: str
) -> None:
    assert unsettled(np.ones(1)).startswith("no two frames")
    told = unsettled(np.tile([1.0, -1.0], 20) * np.repeat([early, late], 20))
    assert told.startswith(begins)
    assert bool(told) == bool(begins)


def test_the_transverse_velocity_is_taken_two_heights_behind_the_obstacle() -> None:
    solid = np.zeros((40, 20), dtype=np.bool_)
    solid[5:9, 8:12] = True  # 4 cells high: D
    velocity = np.zeros((3, 40, 20, 2))
    velocity[:, 9 + 8, 8:12, 1] = np.add([[1.0], [2.0], [3.0]], [-1, 0, 0, 1])
    assert transverse(velocity, solid, 0.25).tolist() == [1.0, 2.0, 3.0]
    short = velocity[:, :14], solid[:14]  # which ends before: of the last column
    short[0][:, 13, 8:12, 1] = [[4.0], [5.0], [6.0]]
    assert transverse(*short, 0.25).tolist() == [4.0, 5.0, 6.0]
    velocity[:, 8, :, 1] = np.arange(20)  # two D from where the frame begins
    assert transverse(velocity, np.zeros_like(solid), 0.25).tolist() == [9.5] * 3
    assert wake(solid) == slice(9, 40)
    assert wake(np.zeros_like(solid)) == slice(0, 40)


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
