"""What can be wrong with an event or a file, and what is done about it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from calopipe.errors import InputError
from calopipe.options import check_settings, option, setting

# Why an event is corrupt. A flaw is an index into this.
FLAWS = ("none", "nan", "negative", "out_of_range")

STOP, SKIP, KEEP, WARN = "stop", "skip", "keep", "warn"
CORRECT_OR_SKIP = "correct it, or leave such events out with --on-bad-event skip"

_ROUNDING = 1e-9  # 0.29 times 100 is 29, but not in floating point


class BadFileError(InputError):
    """A file that cannot be read as a file of events: it is incomplete, or in no known layout."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What a run does about corrupt input: `stop` at it, or `skip` and record it.

    A run that skips still stops if more than the share `max_bad_events` of the events or `max_bad_files` of the files
    is corrupt. One corrupt event or file is always allowed, unless the share is 0.
    """

    on_bad_event: str = setting(
        STOP,
        known=(STOP, SKIP),
        help="What to do about an event with NaN, negative or impossible values: stop, or skip it.",
    )
    on_bad_file: str = setting(
        STOP, known=(STOP, SKIP), help="What to do about a file that cannot be read as showers: stop, or skip it."
    )
    max_bad_events: float = setting(
        0.01, help="Stop if more than this share of the events is corrupt, also where corrupt events are skipped."
    )
    max_bad_files: float = setting(
        0.1, help="Stop if more than this share of the files is corrupt, also where corrupt files are skipped."
    )
    on_doubt: str = setting(
        WARN,
        known=(STOP, WARN),
        help="What to do about a file whose unit, scale or labels are not plausible: stop, or warn.",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        for name in ("max_bad_events", "max_bad_files"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{option(name)} is {getattr(self, name)}, expected a share, 0 to 1")

    def require_none(self, what: str, first: str) -> None:
        """Raise InputError, which names the `first` case, if a corrupt event or file (`what`) is to stop the run."""
        if (self.on_bad_event if what == "event" else self.on_bad_file) == STOP:
            or_skip = f"; {CORRECT_OR_SKIP}" if what == "event" else ", or leave such files out with --on-bad-file skip"
            raise InputError(first + or_skip)

    def require(self, what: str, bad: int, total: int, first: str) -> None:
        """Raise InputError, which names the `first` case, if `bad` of `total` events or files (`what`) are too many."""
        if bad == 0:
            return
        self.require_none(what, first)
        share = self.max_bad_events if what == "event" else self.max_bad_files
        if bad > (max(1, math.floor(share * total + _ROUNDING)) if share else 0):
            raise InputError(
                f"{first}; {bad} of {total} {what}s are corrupt, more than the share of {share:g} that "
                f"--max-bad-{what}s lets pass"
            )
