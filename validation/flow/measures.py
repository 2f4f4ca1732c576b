"""Measures of a flow's frames, of one or of two beside each other. Arrays in, arrays out.

A frame of velocity is (x, y, 2) in units of the inflow speed U, `fluid` is (x, y) bool; lengths are in obstacle heights
D. What the solid covers counts in no mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from calopipe.flow.mechanics import divergence

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_SIGMA, _REACH = 1.5, 5  # of SSIM's Gaussian window, 11 x 11 cells (Wang et al. 2004)
_K1, _K2 = 0.01, 0.03  # SSIM's constants, as published


def relative_l2(reference: Array, candidate: Array, fluid: Mask) -> float:
    """|candidate - reference| over |reference|, both over the cells of the fluid and both components."""
    return float(np.linalg.norm((candidate - reference)[fluid]) / np.linalg.norm(reference[fluid]))


def psnr(reference: Array, candidate: Array, fluid: Mask, peak: float) -> float:
    """10 log10(peak^2 / mean square error), in dB; infinite for equal frames."""
    error = float(np.mean((candidate - reference)[fluid] ** 2))
    return float(10 * np.log10(peak**2 / error)) if error > 0 else np.inf


def ssim(reference: Array, candidate: Array, peak: float) -> float:
    """The structural similarity of two frames (Wang et al., IEEE TIP 13, 600 (2004)), the mean of both components.

    With the published window and constants, over the windows that lie within the frame.
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
    """In U/D, over the cells whose neighbours are all fluid."""
    inner = ndimage.binary_erosion(fluid, structure=np.ones((3, 3)))
    return float(np.sqrt(np.mean(divergence(velocity, cell_d)[inner] ** 2)))


def energy_spectrum(velocity: Array, cell_d: float) -> tuple[Array, Array]:
    """Kinetic energy by wavenumber along x, mean over y: (k in cycles a D, E in U^2), k from 1/length upward.

    Each row's mean is taken out, and a Hann window, since the ends of a wake do not join. The spectrum is so scaled
    that its sum is the energy of a row's fluctuations; a sine appears in its own and the two neighbouring wavenumbers.
    """
    n = len(velocity)
    window = np.hanning(n + 1)[:-1, None, None]
    waves = np.fft.rfft((velocity - velocity.mean(axis=0)) * window, axis=0)
    weight = np.full(len(waves), 2.0)  # of the wavenumbers below zero, which a real signal has too
    weight[0] = 1.0
    if n % 2 == 0:
        weight[-1] = 1.0
    energy = weight * (np.abs(waves) ** 2).sum(axis=2).mean(axis=1) / (2 * n * np.sum(window**2))
    return np.arange(1, n // 2 + 1) / (n * cell_d), energy[1:]
