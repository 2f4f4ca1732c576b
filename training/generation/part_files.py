"""Showers in parts. A killed run keeps its parts, and several processes or hosts can divide the parts among them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.errors import InputError
from calopipe.labels import AllLabels
from calopipe.progress import progress_bar
from calopipe.showers.cells import REFERENCE_UNIT_GEV, Geometry
from calopipe.showers.writer import shower_writer, showers_a_chunk
from training.generation.generator import Generator

_PART_SHOWERS = 1000  # of a part, up to whole batches and chunks: a killed run has to make at most one part again


@dataclass(frozen=True)
class Share:
    """The share of process `number`, from 0, of `count` processes that generate showers together."""

    number: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Share:
        """The share that "I/N" names. Raises InputError."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
            raise InputError(f"--share is {text!r}, expected I/N: a process, from 0, of N")
        return cls(int(number), int(count))


class Parts:
    """The `events` showers of a `request` as files in `folder`; each file, a part, is made on its own.

    A part has about a thousand showers: whole batches, without the showers that do not fill a chunk of the file. So
    parts can be joined chunk by chunk. The `layout` is that of `Conditions`.
    """

    def __init__(
        self, folder: Path, request: str, generator: Generator, events: int, *, layout: tuple[Geometry, str]
    ) -> None:
        self.folder, self._generator, (self._geometry, self._deposits) = folder, generator, layout
        batch, chunk = generator.showers_at_a_time, showers_a_chunk(self._geometry)
        size = max(-(-_PART_SHOWERS // batch) * batch // chunk, 1) * chunk
        self._request = request[:16]
        self._parts = {
            folder / f"{self._request}.{size}.{start}.h5": range(start, min(start + size, events))
            for start in range(0, events, size)
        }

    def make(self, share: Share, labels: AllLabels, seed: int) -> float:
        """Make the missing parts of the `share`, with the `labels` of all showers; remove parts of other requests.

        Returns how many showers were made a second, the tracing of the model included; 0 where nothing was missing.
        """
        began = time.monotonic()
        self.folder.mkdir(exist_ok=True)
        for file in self.folder.iterdir():
            if self._request not in file.name:  # all parts of this request stay, also those of another size
                storage.remove(file)
        paths = list(self._parts)[share.number :: share.count]
        missing = {path: self._parts[path] for path in paths if not path.exists()}
        total, to_do = sum(len(self._parts[path]) for path in paths), sum(map(len, missing.values()))
        scale = np.float32(REFERENCE_UNIT_GEV / self._geometry.file_unit_gev)
        # batches of the next part are made while the last ones of a part are written
        made = self._generator.showers(labels, seed, ranges=missing.values())
        with progress_bar("generate", total, "showers", total - to_do) as bar:
            for path, indices in missing.items():
                with shower_writer(path, self._geometry, {}, self._deposits) as writer:
                    for showers in islice(made, -(-len(indices) // self._generator.showers_at_a_time)):
                        np.multiply(showers.cells, scale, out=showers.cells)
                        writer.write(showers)
                        bar.update(len(showers))
        return to_do / (time.monotonic() - began)

    def join(self, output: Path, attributes: Mapping[str, Any]) -> None:
        """Write all parts to the file `output`, without compressing them again, and remove the parts."""
        with shower_writer(output, self._geometry, attributes, self._deposits) as writer:
            for part in self._parts:
                writer.append(part)
        storage.discard(self.folder)
