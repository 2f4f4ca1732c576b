"""Measures of a flow against closed forms, and against TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from calopipe.flow.mechanics import kinetic_energy, strouhal, transverse, unsettled, wake
from validation.flow import measurements
from validation.flow.measurements import Array

N = 64
CELL_D = 2 * np.pi / N
EVERYWHERE = np.ones((N, N), dtype=np.bool_)


def taylor_green(time: float = 0.0, nu: float = 0.1) -> Array:
    """u = cos x sin y, v = -sin x cos y, which decay as exp(-2 nu t): an exact flow, (N, N, 2)."""
    x, y = np.meshgrid(*[(np.arange(N) + 0.5) * CELL_D] * 2, indexing="ij")
    return np.stack([np.cos(x) * np.sin(y), -np.sin(x) * np.cos(y)], axis=-1) * np.exp(-2 * nu * time)


def test_a_taylor_green_vortex_has_no_divergence_and_its_energy_decays() -> None:
    assert measurements.rms_divergence(taylor_green(), EVERYWHERE, CELL_D) < 1e-12
    strained = taylor_green() + np.linspace(0, 1, N)[:, None, None] * [1.0, 0.0]  # du/dx = 1 / length
    found = measurements.rms_divergence(strained, EVERYWHERE, CELL_D)
    assert found == pytest.approx(1 / ((N - 1) * CELL_D))
    energy = [float(kinetic_energy(taylor_green(time), EVERYWHERE)) for time in (0.0, 3.0)]
    assert energy[0] == pytest.approx(0.25)
    assert energy[1] / energy[0] == pytest.approx(np.exp(-4 * 0.1 * 3.0))
    # The decay scales the field, so that the error relative to the start is that of the scale.
    away = measurements.relative_l2(taylor_green(), taylor_green(3.0), EVERYWHERE)
    assert away == pytest.approx(1 - np.exp(-2 * 0.1 * 3.0))


def test_cells_beside_the_solid_do_not_count_as_divergence() -> None:
    fluid = EVERYWHERE.copy()
    fluid[20:30, 20:30] = False
    assert measurements.rms_divergence(taylor_green() * fluid[..., None], fluid, CELL_D) < 1e-12


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
