"""The sizes of the networks of pix2pix, as tables; no TensorFlow in here.

Source: Isola et al., arXiv 1611.07004, the U-Net-256 and the PatchGAN of 70 x 70 cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calopipe.errors import InputError

_LEAST_LEVELS = 2


@dataclass(frozen=True)
class Networks2D:
    """U-Net and PatchGAN, as filters of their convolutions of 4 x 4.

    `down` are the U-Net's, of stride 2, from the image to the middle. The way up has the same in reverse; its first
    `dropout` levels drop half. `patch` are the discriminator's of stride 2, and `patch_last` that of stride 1.

    As published, batch normalisation follows the convolutions; in inference its statistics are those of the training.
    With `full`, there are so many filters of 3 x 3 before the first and after the last level, at the resolution of the
    image. Then there is no normalisation, and the output is not bounded by tanh: it is the curl of a stream function.
    """

    down: tuple[int, ...]
    dropout: int
    patch: tuple[int, ...]
    patch_last: int
    full: int = 0


PUBLISHED = Networks2D((64, 128, 256, 512, 512, 512, 512, 512), 3, patch=(64, 128, 256), patch_last=512)
SMALL = Networks2D((32, 64, 96), 0, patch=(32, 64), patch_last=64, full=16)

_TABLES = {"pix2pix": PUBLISHED, "pix2pix-small": SMALL}


def table_of(model: str, shape: Sequence[int]) -> Networks2D:
    """The networks of the `model` for frames of `shape` (x, y), with as many levels as halve both sides evenly.

    InputError where the sides cannot be halved twice.
    """
    table = _TABLES[model]
    halvings = ((side & -side).bit_length() - 1 for side in shape)  # how often a side is divisible by 2
    levels = min(len(table.down), *halvings)
    if levels < _LEAST_LEVELS:
        raise InputError(
            f"the frames have {tuple(shape)} cells, {model} halves both sides at least {_LEAST_LEVELS} times; "
            f"give frames whose sides are multiples of {2**_LEAST_LEVELS}"
        )
    return replace(table, down=table.down[:levels], dropout=max(min(table.dropout, levels - 2), 0))
