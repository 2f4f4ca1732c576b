"""Which split an event is in: train, validation or test. One pure function, so that it never changes."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from preprocessing.errors import InputError

# Shares of the events: the model learns from train, is chosen by validation, and is judged by test alone.
FRACTIONS = {"train": 0.70, "validation": 0.05, "test": 0.25}
SPLITS = tuple(FRACTIONS)
ALL = "all"


@dataclass(frozen=True)
class SplitRule:
    """Events are divided by the content of their file and their index in it; whole files can be assigned by name.

    `by_file` holds (split, pattern of file names) pairs. Once a split is assigned by name it holds the files that
    match and no others; the files that match nothing are divided among the splits that no pattern names.
    """

    by_file: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for split, pattern in self.by_file:
            if split not in SPLITS or not pattern:
                raise InputError(f"--split-file {split}={pattern}: expected SPLIT=PATTERN, SPLIT one of {SPLITS}")

    @classmethod
    def parse(cls, assignments: list[str]) -> SplitRule:
        """The rule of the command line's `--split-file SPLIT=PATTERN` options."""
        pairs = [assignment.partition("=") for assignment in assignments]
        return cls(tuple((split, pattern) for split, _, pattern in pairs))

    def assign(self, file_name: str, file_sha256: str, events: range) -> npt.NDArray[np.int8]:
        """The split of each of `events` (indices in the file), as indices into `SPLITS`."""
        for split, pattern in self.by_file:
            if fnmatch.fnmatch(file_name, pattern):
                return np.full(len(events), SPLITS.index(split), dtype=np.int8)
        named = {split for split, _ in self.by_file}
        free = [split for split in SPLITS if split not in named]
        if not free:
            raise InputError(f"{file_name}: every split is assigned by --split-file and no pattern matches this file")
        edges = np.cumsum([FRACTIONS[split] for split in free])
        place = np.searchsorted(edges[:-1] / edges[-1], _uniform(file_sha256, events), side="right")
        return np.array([SPLITS.index(split) for split in free], dtype=np.int8)[place]

    def mask(self, split: str, file_name: str, file_sha256: str, events: range) -> npt.NDArray[np.bool_]:
        """Which of `events` are in `split`; "all" selects every event."""
        if split == ALL:
            return np.ones(len(events), dtype=np.bool_)
        return self.assign(file_name, file_sha256, events) == SPLITS.index(split)


def _uniform(file_sha256: str, events: range) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1), one an event: SplitMix64 (Steele et al., OOPSLA 2014) of the file's hash and the index."""
    seed = np.uint64(int(file_sha256[:16], 16))
    with np.errstate(over="ignore"):
        z = seed + (np.asarray(events, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
