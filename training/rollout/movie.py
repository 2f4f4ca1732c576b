"""A moving picture of vorticity: each of several flows above the next, on one scale of colours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt

from calopipe import storage

_LEVELS = 24  # of colour, so that a picture compresses
_MARGIN = 14  # pixels above each flow, for its name
_MILLISECONDS = 80  # a picture
_SHARE = 0.995  # of cells whose vorticity the colours span
_WIDTH = 384  # pixels at least


def write_movie(path: Path, flows: dict[str, npt.NDArray[np.float32]], solid: npt.NDArray[np.bool_]) -> None:
    """Write a GIF of `flows`: by name the vorticity (T, x, y) of as many frames, the first of which sets the scale."""
    from PIL import Image, ImageDraw  # noqa: PLC0415  Pillow comes with matplotlib

    first = next(iter(flows.values()))
    highest = float(np.quantile(np.abs(first), _SHARE)) or 1.0
    shades = np.asarray(mpl.colormaps["RdBu_r"](np.linspace(0, 1, _LEVELS)))[:, :3]
    others = np.array([[0.3, 0.3, 0.3], [1, 1, 1], [0, 0, 0]])
    palette = (np.concatenate([shades, others]) * 255).astype(np.uint8)
    grey, white, black = range(_LEVELS, _LEVELS + 3)
    zoom = -(-_WIDTH // solid.shape[0])
    frames: list[Any] = []
    for number in range(len(first)):
        rows = []
        for flow in flows.values():
            level = np.clip((flow[number] / highest + 1) / 2 * _LEVELS, 0, _LEVELS - 1).astype(np.uint8)
            picture = np.where(solid, grey, level).astype(np.uint8).T[::-1]  # y upwards
            rows += [np.full((_MARGIN, zoom * len(solid)), white, np.uint8), np.kron(picture, np.ones((zoom, zoom)))]
        frame = Image.fromarray(np.vstack(rows).astype(np.uint8), "P")
        frame.putpalette(palette.tobytes())
        pen = ImageDraw.Draw(frame)
        for row, name in enumerate(flows):
            pen.text((2, row * (_MARGIN + zoom * solid.shape[1]) + 1), f"{name}, frame {number}", fill=black)
        frames.append(frame)
    with storage.replacing(path) as temporary:
        frames[0].save(
            temporary, "GIF", save_all=True, append_images=frames[1:], duration=_MILLISECONDS, loop=0, optimize=False
        )
