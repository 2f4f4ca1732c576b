"""Which split an event is in: by its content alone, whatever becomes of its file, or by the file's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from showers import make_file, make_showers, write_file

from calopipe.errors import InputError
from calopipe.events.splits import FRACTIONS, SPLITS, Digests, SplitRule
from calopipe.showers.cells import FloatArray, Showers
from calopipe.showers.files import open_showers
from calopipe.showers.hits import Hits, event_digests
from calopipe.showers.selection import Selection

_RANDOM = np.random.default_rng(1).integers(0, 2**64, 100_000, dtype=np.uint64)


def _split_mix_64(state: int) -> int:
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def _bits(value: float) -> int:
    return int.from_bytes(np.float32(value).tobytes(), "little")


def _digests(showers: Showers) -> Digests:
    return event_digests(Hits.of(showers.cells), showers.energy_gev, showers.theta_rad)


def test_against_python_integers() -> None:
    showers = make_showers(events=20)
    showers.cells[7] = 0
    expected = []
    for cells, energy, theta in zip(showers.cells, showers.energy_gev, showers.theta_rad, strict=True):
        hits = sum(_split_mix_64(k << 32 | _bits(value)) for k, value in enumerate(cells.ravel()) if value)
        labels = _split_mix_64(_bits(energy) << 32 | _bits(theta))
        expected.append(_split_mix_64(_split_mix_64(hits % 2**64) ^ labels))
    digests = _digests(showers)
    assert digests.tolist() == expected
    shares = [digest / 2**64 for digest in expected]
    splits = [0 if share < 0.70 else 1 if share < 0.75 else 2 for share in shares]
    assert SplitRule().assign("x.h5", digests).tolist() == splits


def test_shares_are_those_stated() -> None:
    """Of showers, whose digests must look random, not of random numbers."""
    rng = np.random.default_rng(0)
    cells = np.zeros((20_000, 3, 3, 2), np.float32)
    cells.reshape(len(cells), -1)[np.arange(len(cells)), rng.integers(0, 18, len(cells))] = rng.integers(1, 999, 20_000)
    energy = rng.integers(1, 200, len(cells)).astype(np.float32)
    digests = event_digests(Hits.of(cells), energy, np.ones_like(energy))
    counts = np.bincount(SplitRule().assign("x.h5", np.unique(digests)), minlength=3)
    for count, fraction in zip(counts, FRACTIONS.values(), strict=True):
        assert abs(count - counts.sum() * fraction) < 4 * np.sqrt(counts.sum() * fraction * (1 - fraction))


def _renamed(path: Path, showers: Showers) -> Path:
    return write_file(path.with_name("another name.h5"), showers)


def _with_attributes(path: Path, showers: Showers) -> Path:
    write_file(path, showers)
    with h5py.File(path, "r+") as file:
        file.attrs["run"] = "2026-11"
        file["ECAL"].attrs["unit"] = "GeV x 50"
    return path


def _in_other_chunks(path: Path, showers: Showers) -> Path:
    write_file(path, showers, ECAL=None)
    with h5py.File(path, "r+") as file:
        file.create_dataset("ECAL", data=showers.cells, chunks=(7, 5, 17, 5), compression="gzip", shuffle=True)
    return path


def _in_double_precision(path: Path, showers: Showers) -> Path:
    names = {"ECAL": showers.cells, "energy": showers.energy_gev[:, None], "theta": showers.theta_rad}
    wide = {name: values.astype(np.float64) for name, values in names.items()}
    return write_file(path, showers, chunks=False, **wide)


def _with_more_columns(path: Path, showers: Showers) -> Path:
    return write_file(path, showers, mtheta=showers.mtheta_rad, eta=showers.theta_rad)


def _with_negative_zeros(path: Path, showers: Showers) -> Path:
    cells: FloatArray = np.where(showers.cells == 0, np.float32(-0.0), showers.cells)
    return write_file(path, showers, ECAL=cells)


@pytest.mark.parametrize(
    "copied",
    [_renamed, _with_attributes, _in_other_chunks, _in_double_precision, _with_more_columns, _with_negative_zeros],
)
def test_a_copy_of_a_file_is_divided_as_the_file_is(tmp_path: Path, copied: Callable[[Path, Showers], Path]) -> None:
    showers = make_showers(events=200)
    file = open_showers(write_file(tmp_path / "a.h5", showers))
    order = np.random.default_rng(0).permutation(200)
    copy = open_showers(copied(tmp_path / "b.h5", showers[order]))
    assert copy.sha256 != file.sha256
    for split in SPLITS:
        mask, digests = file.chosen(Selection(split, cut_gev=0))
        there, digests_there = copy.chosen(Selection(split, cut_gev=0))
        assert 0 < mask.sum() < 200
        np.testing.assert_array_equal(there, mask[order])
        np.testing.assert_array_equal(digests_there, digests[order])


def test_whole_files_by_name() -> None:
    rule = SplitRule.parse(["test=*_02[5-7].h5"])
    assert set(rule.assign("run_026.h5", _RANDOM)) == {SPLITS.index("test")}
    rest = rule.assign("run_003.h5", _RANDOM)
    counts = np.bincount(rest, minlength=3)
    assert counts[2] == 0
    assert counts[1] / counts.sum() == pytest.approx(0.05 / 0.75, abs=0.01)
    assert rule.may_hold("train", "run_003.h5")
    assert not rule.may_hold("train", "run_026.h5")
    assert not rule.may_hold("test", "run_003.h5")


@pytest.mark.parametrize("text", ["tests=*.h5", "test", "test="])
def test_bad_assignment(text: str) -> None:
    with pytest.raises(InputError, match="--split-file"):
        SplitRule.parse([text])


def test_a_file_that_no_split_takes() -> None:
    rule = SplitRule.parse(["train=a*", "validation=b*", "test=c*"])
    with pytest.raises(InputError, match=r"d\.h5"):
        rule.assign("d.h5", _RANDOM)


def test_a_file_that_is_wholly_in_another_split_is_not_read(tmp_path: Path) -> None:
    file = open_showers(make_file(tmp_path / "a.h5", events=20))
    file.path.unlink()
    mask, _ = file.chosen(Selection("train", SplitRule.parse(["test=a.h5"])))
    assert not mask.any()
