"""The 3DGAN with stock Keras layers, for comparison: slower, but the same functions of the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from keras import layers

from training.models.gan import networks


@contextmanager
def stock_layers() -> Iterator[None]:
    """Networks of the 3DGAN that are made in the block have stock layers."""
    stock = {"Conv3D": convolution, "BatchNormalization": layers.BatchNormalization}
    with patch.multiple(networks, arrange=lambda flow: flow, restore=lambda flow: flow, **stock):
        yield


def convolution(
    filters: int,
    kernel: Any,
    *,
    pad: Any = (0, 0, 0),
    upsample: int = 1,
    slope: float = 1.0,
    kernel_initializer: str = "glorot_uniform",
) -> Callable[[Any], Any]:
    def convolve(flow: Any) -> Any:
        if upsample > 1:
            flow = layers.UpSampling3D(upsample)(flow)
        if pad not in ("same", (0, 0, 0)):
            flow = layers.ZeroPadding3D(pad)(flow)
        padding = "same" if pad == "same" else "valid"
        flow = layers.Conv3D(filters, kernel, padding=padding, kernel_initializer=kernel_initializer)(flow)
        return flow if slope == 1 else layers.LeakyReLU(negative_slope=slope)(flow)

    return convolve
