"""`python -m training` with a clock on its parts: `CLOCK=FILE python benchmarks/timed_fit.py fit ...`.

FILE gets one JSON object with seconds of the first worker. `start`: from the start of the process to the first call of
steps, without the evaluation before it; `first`: that call, which traces the graph; `steps`: the later calls;
`checkpoint`: as far as training waits for it; `evaluation`; `between`: all other time between steps; `end`: writes the
model. For a bucket also `waited`: the time that the training waited for the store, which is in no other entry; `end`
is then the time after the last transfer. `calls` is the number of calls of steps.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calopipe import mirror
from training.__main__ import main
from training.engine.step import Engine
from training.nodes.workers import Cluster
from training.run.evaluator import Evaluator
from training.run.loop import Loop

_STARTED_TICKS = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # proc(5): since the boot
_began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + _STARTED_TICKS / os.sysconf("SC_CLK_TCK")
_seconds: defaultdict[str, float] = defaultdict(float)
_times: Counter[str] = Counter()
_ended = [0.0]
_start: list[float] = []


def _clocked(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose seconds count as `kind`, and not as the kind of a function that called it.

    Work of other threads, such as the upload of a checkpoint, is done beside the training and is not counted.
    """

    def clocked(*arguments: Any, **named: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return function(*arguments, **named)
        began, others = time.time(), sum(_seconds.values())
        name = kind
        if kind == "steps" and not _times["steps"]:
            _start.append(began - _began - others)
            name = "first"
        try:
            return function(*arguments, **named)
        finally:
            _ended[0] = time.time()
            _seconds[name] += _ended[0] - began - (sum(_seconds.values()) - others)
            _times[kind] += 1

    return clocked


if __name__ == "__main__":
    for owner, method, kind in (
        (Engine, "run", "steps"),
        (Loop, "_save", "checkpoint"),
        (Evaluator, "take_over", "evaluation"),
        (Evaluator, "evaluate", "evaluation"),
        *((mirror._Mirror, name, "waited") for name in ("refresh", "put", "remove", "end")),
    ):
        setattr(owner, method, _clocked(kind, getattr(owner, method)))
    Loop.run = _clocked("between", Loop.run)  # type: ignore[method-assign]
    main()
    _seconds["end"] = time.time() - _ended[0]
    cluster = Cluster.of_process((), None)
    if cluster is None or cluster.chief:
        found = dict(_seconds) | {"start": _start[0], "calls": _times["steps"]}
        Path(os.environ["CLOCK"]).write_text(json.dumps(found))
