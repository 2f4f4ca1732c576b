"""Measurements of a roll-out beside the solver's frames: values by step, and the numbers that the criteria judge.

A frame of velocity is (x, y, 2) in units of the inflow speed U, `fluid` is (x, y) bool; lengths are in obstacle heights
D. Cells in the solid count in no mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from calopipe.documents import finite
from calopipe.errors import InputError
from calopipe.flow.mechanics import (
    LEAST_FRAMES,
    divergence,
    kinetic_energy,
    strouhal,
    transverse,
    unsettled,
    vorticity,
    wake,
)
from validation.flow.pairing import Frames, Pair

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_SIGMA, _REACH = 1.5, 5  # of SSIM's Gaussian window, 11 x 11 cells (Wang et al. 2004)
_K1, _K2 = 0.01, 0.03  # SSIM's constants, as published
_SHOWN = 3  # frames of a roll-out that the report shows
_FILLED = 1e-4  # wavenumbers with less than this share of the spectrum's energy are not compared


@dataclass(frozen=True)
class Measured:
    """What was measured of a pair of N frames a side.

    `steps` holds values by step: (N,) for a comparison, (N, 2) for values of the solver and of the candidate. `spectra`
    (k, 2) in U^2 are means over the frames, at `wavenumbers` (k,) in cycles a D. The criteria judge `values`. A picture
    is the step, and the vorticity (x, y) of both.
    """

    candidate: str
    reference: str
    interval_d: float
    period_d: float
    strouhal: tuple[float, float]
    values: dict[str, float]
    steps: dict[str, Array]
    wavenumbers: Array
    spectra: Array
    pictures: list[tuple[int, Array, Array]]

    def steps_within(self, limit: float) -> int | None:
        """The first step at which the relative L2 is above `limit`; None if it never is."""
        beyond = np.flatnonzero(self.steps["relative_l2"] > limit)
        return int(beyond[0]) if len(beyond) else None

    def to_json(self, limit: float) -> dict[str, Any]:
        lists = {**self.steps, "wavenumber": self.wavenumbers, "spectrum": self.spectra}
        return {
            **{name: getattr(self, name) for name in ("candidate", "reference", "interval_d", "period_d")},
            "strouhal": [finite(value) for value in self.strouhal],
            "values": {name: finite(value) for name, value in self.values.items()},
            "steps_within": self.steps_within(limit),
            "by_step": {name: _listed(values) for name, values in lists.items()},
        }


def measure(pair: Pair, name: str, rollout: Frames) -> Measured:
    """Measure the frames of `rollout`, (count, x, y, 2), beside the solver's frames.

    Energies are taken over the last shedding period of the roll-out, the judged relative L2 over the first period.
    InputError: there are fewer frames than in a period, or the solver's flow does not shed vortices.
    """
    file, cell_d = pair.reference, pair.reference.grid.cell_d
    solid, fluid, period = file.solid, ~file.solid, _period(pair, name)
    sides = [np.where(solid[..., None], 0.0, frames.astype(np.float64)) for frames in (pair.solver(), rollout)]
    steps = _by_step(sides, fluid, cell_d)
    behind = wake(solid)
    by_side = [[energy_spectrum(frame[behind], cell_d) for frame in frames] for frames in sides]
    spectra = np.stack([np.mean([energy for _, energy in side], axis=0) for side in by_side], axis=1)
    numbers = [strouhal(transverse(frames, solid, cell_d), pair.interval_d) for frames in sides]

    last = [frames[-period:] for frames in sides]
    energy = [float(kinetic_energy(frames, fluid).mean()) for frames in last]
    fluctuation = [float(kinetic_energy(frames - frames.mean(axis=0), fluid).mean()) for frames in last]
    swirl = [np.where(solid, np.nan, vorticity(frames, cell_d)) for frames in sides]
    turning = float(np.sqrt(np.nanmean(swirl[0] ** 2)))
    diverging = np.sqrt(np.mean(steps["divergence"] ** 2, axis=0))
    filled = spectra[:, 0] > _FILLED * spectra[:, 0].sum()
    with np.errstate(divide="ignore"):
        decades = np.log10(spectra[filled, 1] / spectra[filled, 0])
    return Measured(
        candidate=name,
        reference=file.path.name,
        interval_d=pair.interval_d,
        period_d=period * pair.interval_d,
        strouhal=(numbers[0], numbers[1]),
        values={
            "strouhal": numbers[1] / numbers[0],
            "fluctuation": fluctuation[1] / fluctuation[0],
            "kinetic_energy": energy[1] / energy[0],
            "divergence": float(diverging[1] - diverging[0]) / turning,
            "spectrum": float(np.sqrt(np.mean(decades**2))),
            "relative_l2": float(steps["relative_l2"][:period].mean()),
        },
        steps=steps,
        wavenumbers=by_side[0][0][0],
        spectra=spectra,
        pictures=[
            (step, swirl[0][step], swirl[1][step])
            for step in np.linspace(0, pair.count - 1, _SHOWN + 1).round().astype(int)[1:].tolist()
        ],
    )


def _period(pair: Pair, name: str) -> int:
    """The number of frames in a shedding period, from the solver's whole simulation."""
    file = pair.reference
    whole = file.velocity(0, len(file.time))
    signal = transverse(whole, file.solid, file.grid.cell_d)
    frequency = strouhal(signal, file.grid.interval_d)
    if (reason := unsettled(signal)) or not np.isfinite(frequency):
        raise InputError(f"{file.path}: {reason or 'the wake has no frequency'}; give a simulation that sheds vortices")
    period = max(round(1 / frequency / pair.interval_d), 1)
    if pair.count < max(period, LEAST_FRAMES):
        raise InputError(
            f"{name}: only {pair.count} frames can be compared with {file.path}, and {max(period, LEAST_FRAMES)} are "
            f"needed (a shedding period has {period}); roll out more steps, or simulate longer"
        )
    return period


def _by_step(sides: list[Array], fluid: Mask, cell_d: float) -> dict[str, Array]:
    frames, peak = list(zip(*sides, strict=True)), float(np.ptp(sides[0]))
    return {
        "relative_l2": np.array([relative_l2(a, b, fluid) for a, b in frames]),
        "psnr": np.array([psnr(a, b, fluid, peak) for a, b in frames]),
        "ssim": np.array([ssim(a, b, peak) for a, b in frames]),
        "kinetic_energy": np.stack([kinetic_energy(side, fluid) for side in sides], axis=1),
        "divergence": np.array([[rms_divergence(frame, fluid, cell_d) for frame in both] for both in frames]),
    }


def _listed(values: Array) -> list[Any]:
    """`values` as lists for JSON, with six digits."""
    if values.ndim > 1:
        return [_listed(value) for value in values]
    return [finite(float(f"{value:.6g}")) for value in values]


def relative_l2(reference: Array, candidate: Array, fluid: Mask) -> float:
    """|candidate - reference| over |reference|, both over the cells of the fluid and both components."""
    return float(np.linalg.norm((candidate - reference)[fluid]) / np.linalg.norm(reference[fluid]))


def psnr(reference: Array, candidate: Array, fluid: Mask, peak: float) -> float:
    """10 log10(peak^2 / mean square error), in dB; infinite for equal frames."""
    error = float(np.mean((candidate - reference)[fluid] ** 2))
    return float(10 * np.log10(peak**2 / error)) if error > 0 else np.inf


def ssim(reference: Array, candidate: Array, peak: float) -> float:
    """The structural similarity of two frames (Wang et al., IEEE TIP 13, 600 (2004)), the mean of both components.

    It has the published window and constants, and is a mean over the windows that lie within the frame.
    """

    def mean(values: Array) -> Array:
        blurred = ndimage.gaussian_filter(values, _SIGMA, axes=(0, 1), radius=_REACH)
        return blurred[_REACH:-_REACH, _REACH:-_REACH]

    first, second = mean(reference), mean(candidate)
    variances = mean(reference**2) - first**2 + mean(candidate**2) - second**2
    covariance = mean(reference * candidate) - first * second
    c1, c2 = (_K1 * peak) ** 2, (_K2 * peak) ** 2
    similar = (2 * first * second + c1) * (2 * covariance + c2)
    return float(np.mean(similar / ((first**2 + second**2 + c1) * (variances + c2))))


def rms_divergence(velocity: Array, fluid: Mask, cell_d: float) -> float:
    """The root mean square divergence in U/D, over the cells whose neighbours are all fluid."""
    inner = ndimage.binary_erosion(fluid, structure=np.ones((3, 3)))
    return float(np.sqrt(np.mean(divergence(velocity, cell_d)[inner] ** 2)))


def energy_spectrum(velocity: Array, cell_d: float) -> tuple[Array, Array]:
    """Kinetic energy by wavenumber along x, mean over y: (k in cycles a D, E in U^2), k from 1/length upward.

    The mean of each row is subtracted, and a Hann window is applied, since the ends of a wake do not join. The sum of
    the spectrum is the energy of a row's fluctuations. A sine appears at its own and the two neighbouring wavenumbers.
    """
    n = len(velocity)
    window = np.hanning(n + 1)[:-1, None, None]
    waves = np.fft.rfft((velocity - velocity.mean(axis=0)) * window, axis=0)
    weight = np.full(len(waves), 2.0)  # counts the negative wavenumbers of a real signal too
    weight[0] = 1.0
    if n % 2 == 0:
        weight[-1] = 1.0
    energy = weight * (np.abs(waves) ** 2).sum(axis=2).mean(axis=1) / (2 * n * np.sum(window**2))
    return np.arange(1, n // 2 + 1) / (n * cell_d), energy[1:]
