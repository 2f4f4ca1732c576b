"""The signals that ask a training, or the launcher of a training, to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals(*, interrupts: Callable[[], bool] | None = None) -> Iterator[list[int]]:
    """A list that collects each SIGTERM and SIGINT during the block; outside of the main thread it stays empty.

    With `interrupts`, a SIGINT raises KeyboardInterrupt if it is not the first signal, or if `interrupts()` is true.
    """
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and interrupts is not None and (came or interrupts()):
            raise KeyboardInterrupt
        came.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
