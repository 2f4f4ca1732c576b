"""The signals that ask a training to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopSignals:
    """Notes SIGTERM and SIGINT, so that a training stops after its step; a second SIGINT stops it at once."""

    def __init__(self) -> None:
        self.received: int | None = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Handle the signals in the block; other threads than the main one may not, and are not asked to stop."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and self.received is not None:
            raise KeyboardInterrupt
        self.received = number
