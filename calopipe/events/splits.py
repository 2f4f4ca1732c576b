"""The split of an event: train, validation or test. It is a pure function of the event's own content.

An event keeps its split when its file is copied, repacked or renamed, or when it moves within a file.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError

Digests = npt.NDArray[np.uint64]  # one number for each event: 64 bits of a hash of its content

# Shares of the events: the model is trained on train, chosen by validation, and judged only by test.
FRACTIONS = {"train": 0.70, "validation": 0.05, "test": 0.25}
SPLITS = tuple(FRACTIONS)
ALL = "all"


def matches(file_name: str, pattern: str) -> bool:
    """Whether `pattern` matches `file_name`: as a pattern, or as the very name, which may hold brackets."""
    return file_name == pattern or fnmatch.fnmatch(file_name, pattern)


@dataclass(frozen=True)
class SplitRule:
    """How events are divided among the splits: by their digests, or whole files by name.

    `by_file` holds (split, pattern of file names) pairs. A split that is named there holds the files that match, and no
    others. Events of files that match nothing are divided among the splits that are not named.
    """

    by_file: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for split, pattern in self.by_file:
            if split not in SPLITS or not pattern:
                raise InputError(f"--split-file {split}={pattern}: expected SPLIT=PATTERN, SPLIT one of {SPLITS}")

    @classmethod
    def parse(cls, assignments: Iterable[str]) -> SplitRule:
        """The rule of the command line's `--split-file SPLIT=PATTERN` options."""
        pairs = [assignment.partition("=") for assignment in assignments]
        return cls(tuple((split, pattern) for split, _, pattern in pairs))

    def candidates(self, file_name: str) -> tuple[str, ...]:
        """The splits that an event of this file may be in. InputError: there is no such split."""
        for split, pattern in self.by_file:
            if matches(file_name, pattern):
                return (split,)
        named = {split for split, _ in self.by_file}
        free = tuple(split for split in SPLITS if split not in named)
        if not free:
            raise InputError(f"{file_name}: every split is assigned by --split-file and no pattern matches this file")
        return free

    def may_hold(self, split: str, file_name: str) -> bool:
        """Whether an event of this file may be in `split`; every event is in "all"."""
        return split == ALL or split in self.candidates(file_name)

    def assign(self, file_name: str, digests: Digests) -> npt.NDArray[np.int8]:
        """The split of each event of this file, as indices into `SPLITS`, by the events' `digests` (N,)."""
        candidates = self.candidates(file_name)
        edges = np.cumsum([FRACTIONS[split] for split in candidates])
        uniform = (digests >> np.uint64(11)).astype(np.float64) * 2.0**-53
        place = np.searchsorted(edges[:-1] / edges[-1], uniform, side="right")
        return np.array([SPLITS.index(split) for split in candidates], dtype=np.int8)[place]

    def mask(self, split: str, file_name: str, digests: Digests) -> npt.NDArray[np.bool_]:
        """Which of this file's events, by their `digests` (N,), are in `split`; "all" selects every event."""
        if split == ALL:
            return np.ones(len(digests), dtype=np.bool_)
        return self.assign(file_name, digests) == SPLITS.index(split)
