"""Files of showers that are put together of others, without compressing them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import pytest
from showers import SMALL_GEOMETRY, make_showers, make_toy_showers

from calopipe.showers.cells import Geometry, Layer
from calopipe.showers.writer import shower_writer


def _rings() -> Geometry:
    """Three layers of 4 x 3, 1 x 5 and 4 x 3 cells in rings: 29 voxels."""
    layers = [Layer(2.0, 0.5, cells, r_edges_mm=tuple(range(cells[1] + 1))) for cells in ((4, 3), (1, 5), (4, 3))]
    return Geometry.of_layers(layers, file_unit_gev=1e-3)


def _contents(path: Path) -> dict[str, Any]:
    """All that a file holds: attributes, and each dataset with its type, storage, and chunks as they are compressed."""
    with h5py.File(path) as file:
        found: dict[str, Any] = {"attributes": dict(file.attrs), "names": sorted(file)}
        for name, data in file.items():
            form = (data.dtype, data.shape, data.maxshape, data.chunks, data.compression, data.shuffle)
            offsets = [data.id.get_chunk_info(n).chunk_offset for n in range(data.id.get_num_chunks())]
            chunks = {each: data.id.read_direct_chunk(each) for each in offsets} if data.compression else {}
            found[name] = (form, chunks, data[()].tobytes(), dict(data.attrs))
    return found


@pytest.mark.parametrize("rings", [False, True])
def test_files_that_are_joined_hold_what_one_does_that_is_written_whole(tmp_path: Path, rings: bool) -> None:
    """The last chunk of the last one is not full."""
    geometry = _rings() if rings else SMALL_GEOMETRY
    showers = make_toy_showers(events=243, geometry=geometry) if rings else make_showers(events=243)
    assert (showers.cells.sum(axis=(1, 2, 3)) > 0).mean() > 0.5

    def write(name: str, chosen: slice, batch: int = 243) -> Path:
        with shower_writer(tmp_path / name, geometry, {"generator": "test"}) as writer:
            for first in range(0, len(showers[chosen]), batch):
                writer.write(showers[chosen][first : first + batch])
        return tmp_path / name

    whole = write("whole.h5", slice(0, 243))
    parts = [write(f"{start}.h5", slice(start, min(start + 100, 243)), batch=64) for start in (0, 100, 200)]
    with shower_writer(tmp_path / "joined.h5", geometry, {"generator": "test"}) as writer:
        for part in parts:
            writer.append(part)
    assert _contents(tmp_path / "joined.h5") == _contents(whole)
