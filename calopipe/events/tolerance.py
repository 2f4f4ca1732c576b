"""What can be wrong with an event or a file, and what is done about it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from calopipe.errors import InputError

# Why an event is corrupt. A flaw is an index into this.
FLAWS = ("none", "nan", "negative", "out_of_range")

STOP, SKIP, KEEP, WARN = "stop", "skip", "keep", "warn"
CORRECT_OR_SKIP = "correct it, or leave such events out with --on-bad-event skip"

_ROUNDING = 1e-9  # 0.29 of 100 is 29, though not in floating point


class BadFileError(InputError):
    """A file that cannot be read as what it should hold: incomplete, or in no known layout."""


@dataclass(frozen=True)
class Tolerance:
    """What a run does about corrupt input: `stop` at it, or `skip` and record it.

    A run that skips still stops if more than the share `max_bad_events` of the events or `max_bad_files` of the files
    is corrupt. One corrupt event or file is always allowed, unless the share is 0. `copies` says what happens to
    showers that another one before is equal to: stop, skip or keep. `doubt` says whether a file that is not plausible
    is to stop a run, or warn.
    """

    bad_event: str = STOP
    bad_file: str = STOP
    max_bad_events: float = 0.01
    max_bad_files: float = 0.1
    copies: str = SKIP
    doubt: str = WARN

    def __post_init__(self) -> None:
        for name in ("bad_event", "bad_file"):
            if getattr(self, name) not in (STOP, SKIP):
                raise InputError(f"--on-{name.replace('_', '-')} is {getattr(self, name)!r}, expected stop or skip")
        if self.doubt not in (STOP, WARN):
            raise InputError(f"--on-doubt is {self.doubt!r}, expected stop or warn")
        for name in ("max_bad_events", "max_bad_files"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"--{name.replace('_', '-')} is {getattr(self, name)}, expected a share, 0 to 1")

    def require_none(self, what: str, first: str) -> None:
        """Raise InputError, with the `first` case, if a corrupt event or file (`what`) is to stop the run."""
        if (self.bad_event if what == "event" else self.bad_file) == STOP:
            or_skip = f"; {CORRECT_OR_SKIP}" if what == "event" else ", or leave such files out with --on-bad-file skip"
            raise InputError(first + or_skip)

    def require(self, what: str, bad: int, total: int, first: str) -> None:
        """Raise InputError, with the `first` case, if `bad` of `total` events or files (`what`) are not tolerated."""
        if bad == 0:
            return
        self.require_none(what, first)
        share = self.max_bad_events if what == "event" else self.max_bad_files
        if bad > (max(1, math.floor(share * total + _ROUNDING)) if share else 0):
            raise InputError(
                f"{first}; {bad} of {total} {what}s are corrupt, more than the share of {share:g} that "
                f"--max-bad-{what}s lets pass"
            )
