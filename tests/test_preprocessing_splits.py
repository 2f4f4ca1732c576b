"""Which split an event is in: shares, stability, and assignment by file name."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from preprocessing.errors import InputError
from preprocessing.splits import FRACTIONS, SPLITS, SplitRule

SHA = hashlib.sha256(b"a file").hexdigest()


def _split_mix_64(state: int) -> int:
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def test_against_python_integers() -> None:
    seed = int(SHA[:16], 16)
    expected = []
    for event in range(200):
        u = (_split_mix_64((seed + (event + 1) * 0x9E3779B97F4A7C15) % 2**64) >> 11) / 2**53
        expected.append(0 if u < 0.70 else 1 if u < 0.75 else 2)
    assert SplitRule().assign("x.h5", SHA, range(200)).tolist() == expected


def test_shares_are_those_stated() -> None:
    events = 100_000
    counts = np.bincount(SplitRule().assign("x.h5", SHA, range(events)), minlength=3)
    for count, fraction in zip(counts, FRACTIONS.values(), strict=True):
        assert abs(count - events * fraction) < 4 * np.sqrt(events * fraction * (1 - fraction))


def test_an_event_keeps_its_split() -> None:
    whole = SplitRule().assign("x.h5", SHA, range(100))
    np.testing.assert_array_equal(SplitRule().assign("renamed.h5", SHA, range(40, 60)), whole[40:60])
    assert (SplitRule().assign("x.h5", hashlib.sha256(b"another").hexdigest(), range(100)) != whole).any()


def test_whole_files_by_name() -> None:
    rule = SplitRule.parse(["test=*_02[5-7].h5"])
    assert set(rule.assign("run_026.h5", SHA, range(50))) == {SPLITS.index("test")}
    rest = rule.assign("run_003.h5", SHA, range(20_000))
    counts = np.bincount(rest, minlength=3)
    assert counts[2] == 0
    assert counts[1] / counts.sum() == pytest.approx(0.05 / 0.75, abs=0.01)


def test_mask() -> None:
    rule = SplitRule()
    masks = [rule.mask(split, "x.h5", SHA, range(99)) for split in SPLITS]
    np.testing.assert_array_equal(np.sum(masks, axis=0), 1)
    assert rule.mask("all", "x.h5", SHA, range(99)).all()


@pytest.mark.parametrize("text", ["tests=*.h5", "test", "test="])
def test_bad_assignment(text: str) -> None:
    with pytest.raises(InputError, match="--split-file"):
        SplitRule.parse([text])


def test_a_file_that_no_split_takes() -> None:
    rule = SplitRule.parse(["train=a*", "validation=b*", "test=c*"])
    with pytest.raises(InputError, match=r"d\.h5"):
        rule.assign("d.h5", SHA, range(3))
