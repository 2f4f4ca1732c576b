"""Where the time of a training step goes, read from a trace of TensorFlow's own profiler.

The engine names the parts of its step by `tf.name_scope`: forward, backward, all_reduce, optimizer. The trace records
when each op ran and on which thread, under a name that still holds its scopes after the graph is optimised. Only what
delays a step is charged to a part: a reduction between replicas and a wait for input count where no op computes
meanwhile. The parts so add up to the wall time.

Run on CPUs only so far: what is read of a GPU's trace follows the description of the format.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from training.engine.step import Engine

PARTS = {
    "forward": "forward",
    "backward": "backward",
    "all_reduce": "all-reduce",
    "optimizer": "optimizer",
    "other": "other ops",
    "input": "waiting for input",
    "idle": "idle",
}
_RANKS = (("forward", "backward", "optimizer"), ("other",), ("all_reduce",), ("input",))

_WINDOW = "calopipe_profile"
_OPTIONS = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=1)

_OP = re.compile(r"(?P<name>[^\s:]+):(?P<type>[A-Z_]\w*)")
_SCOPE = re.compile(r"(?:^|/)(forward|backward|gradient_tape|optimizer|all_reduce)(?:_\d+)?(?=/|$)")
_REDUCTIONS = ("Collective", "Nccl")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall", "XlaLaunch", "_XlaRun")  # not inlined: compiled, as a rule
_GET_NEXT = "IteratorGetNext"
_EAGER_INPUT = f"EagerLocalExecute: {_GET_NEXT}"
_START, _DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"
_GPU, _STREAM = "/device:GPU:", "Stream"
_TF_DATA = "tf_data_"


@dataclass(frozen=True)
class Profile:
    """`seconds` of wall time that a step spends in each of `PARTS`, and its collectives; means over `steps` steps.

    A collective is an exchange between replicas, counted on each replica of this process.
    """

    steps: int
    seconds: Mapping[str, float]
    collectives: float = 0.0

    @property
    def step_seconds(self) -> float:
        """Wall time of a step."""
        return sum(self.seconds.values())

    def table(self) -> str:
        """The parts in milliseconds and percent of a step, as a Markdown table that is also legible as text."""
        head = f"| {f'mean of {self.steps} steps':17} | ms a step |  share |"
        rows = [(label, self.seconds[part]) for part, label in PARTS.items()] + [("step", self.step_seconds)]
        lines = [head, f"|{'-' * 19}|----------:|-------:|"]
        lines += [f"| {label:17} | {1e3 * each:9.2f} | {each / self.step_seconds:6.1%} |" for label, each in rows]
        return "\n".join([*lines, f"\n{self.collectives:g} collectives a step, over the replicas of this process"])


@dataclass(frozen=True)
class Op:
    """An op in flight from `start` to `end` (ps) on `thread`; `part` is one of PARTS but idle."""

    part: str
    thread: str
    start: int
    end: int


def profile(engine: Engine, trace: Path | None) -> Profile:
    """Where the time of a step goes. The steps that show it are undone, so that training is as without them.

    `trace` keeps TensorFlow's own trace. Of several workers all do the same number of steps, however slow.
    """
    before = engine.state()
    batches = iter(engine.batches())
    several = engine.config.strategy == "multi-worker"
    found = profiled(lambda steps: engine.run(batches, steps), trace=trace, longest_s=math.inf if several else 60.0)
    engine.restore(before, "the state before")
    return found


def profiled(
    run_steps: Callable[[int], Any], steps: int = 10, *, trace: Path | None = None, longest_s: float = 60.0
) -> Profile:
    """The profile of `steps` training steps, or of as many as `longest_s` holds, but at least one.

    `run_steps(n)` carries out n whole steps, getting their input too, and returns when they are done. It is called
    for two steps beforehand, so that nothing is traced or compiled in the steps that count; another n must not make
    it trace anew. Recording itself slows a step, by up to a fifth where ops are small. `trace` is a log folder of
    TensorBoard, of this process alone, that keeps the raw trace for its profile plugin.
    """
    run_steps(1)
    began_at = time.monotonic()
    run_steps(1)
    steps = max(1, int(min(steps, longest_s / (time.monotonic() - began_at))))
    with ExitStack() as stack:
        folder = trace or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        before = set(folder.rglob("*.xplane.pb"))
        with (
            tf.profiler.experimental.Profile(str(folder), _OPTIONS),
            tf.profiler.experimental.Trace(_WINDOW),
        ):
            run_steps(steps)
        (written,) = set(folder.rglob("*.xplane.pb")) - before
        space = xplane_pb2.XSpace.FromString(written.read_bytes())
    start, end = window(space)
    parts = attribute(operations(space), start, end)
    seconds = {part: picoseconds / 1e12 / steps for part, picoseconds in parts.items()}
    return Profile(steps, seconds, sum(start <= at < end for at in reductions(space)) / steps)


def attribute(ops: Iterable[Op], start: int, end: int) -> dict[str, float]:
    """The time from `start` to `end` (ps) divided among PARTS; the parts add up to end - start.

    On a thread the innermost op counts. A moment belongs in equal shares to the ops that then run forward, backward
    or in the optimizer; without any of them to other ops; else to a reduction in flight, else to a wait for input, and
    else it is idle: Python, scheduling, or a device that waits.
    """
    edges: list[tuple[int, bool, int, Op]] = []
    for op in ops:
        first, last = max(op.start, start), min(op.end, end)
        if first < last:  # what ends makes way for what begins; the outer begins first and ends last
            edges += [(first, True, -last, op), (last, False, -first, op)]
    moments: Counter[tuple[str, ...]] = Counter()
    running: dict[str, list[Op]] = defaultdict(list)
    now = start
    for at, begins, _, op in sorted(edges, key=lambda edge: edge[:3]):
        moments[_charged(running)] += at - now
        now = at
        if begins:
            running[op.thread].append(op)
        else:
            running[op.thread].remove(op)
    moments[("idle",)] += end - now
    parts = dict.fromkeys(PARTS, 0.0)
    for charged, picoseconds in moments.items():
        for part in charged:
            parts[part] += picoseconds / len(charged)
    return parts


def _charged(running: Mapping[str, list[Op]]) -> tuple[str, ...]:
    """The parts that share a moment, one entry for each op, while the ops on top of `running` run."""
    parts = [ops[-1].part for ops in running.values() if ops]
    for rank in _RANKS:
        if charged := tuple(sorted(part for part in parts if part in rank)):
            return charged
    return ("idle",)


def window(space: Any) -> tuple[int, int]:
    """When the profiled steps of an XSpace began and ended, in ps of its clock."""
    ((start, end),) = (
        _span(line, event)
        for plane in space.planes
        for line in plane.lines
        for event in line.events
        if plane.event_metadata[event.metadata_id].name == _WINDOW
    )
    return start, end


def operations(space: Any) -> Iterator[Op]:
    """The ops of an XSpace: those of the host's threads or, with GPUs, their kernels and the host's waits for input."""
    on_gpu = any(plane.name.startswith(_GPU) for plane in space.planes)
    for plane in space.planes:
        if plane.name.startswith(_GPU):
            yield from _kernels(plane)
        else:
            host = (op for ops in (_on_threads(plane), _asynchronous(plane)) for op in ops)
            yield from (op for op in host if op.part == "input" or not on_gpu)


def _on_threads(plane: Any) -> Iterator[Op]:
    """Ops that occupy a thread of the host from begin to end."""
    parts = {number: _part_of_event(event.name) for number, event in plane.event_metadata.items()}
    for line in _compute_lines(plane):
        for event in line.events:
            if part := parts[event.metadata_id]:
                yield Op(part, f"{plane.name} {line.id}", *_span(line, event))


def _asynchronous(plane: Any) -> Iterator[Op]:
    """Ops that one thread of the host begins and another ends, each as a thread of its own.

    Only those that are known to work or to wait for the step: receiving a tensor, say, is neither.
    """
    ended = {
        _stats(plane, event)["_c"]: _span(line, event)[0]
        for line in plane.lines
        for event in line.events
        if plane.event_metadata[event.metadata_id].name == _DONE
    }
    for line in _compute_lines(plane):
        for event in line.events:
            if plane.event_metadata[event.metadata_id].name == _START:
                stats = _stats(plane, event)
                name, kind, number = stats["name"], stats["kernel_type"], stats["_p"]
                part = _part(name, kind)
                awaited = part == "input" or kind.startswith(_REDUCTIONS)
                if number in ended and (awaited or (kind in _CALLS and part != "other")):
                    yield Op(part, f"{plane.name} asynchronous {number}", _span(line, event)[0], ended[number])


def reductions(space: Any) -> Iterator[int]:
    """When the host began each reduction between replicas, in ps."""
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                begins = plane.event_metadata[event.metadata_id].name == _START
                if begins and _stats(plane, event)["kernel_type"].startswith(_REDUCTIONS):
                    yield _span(line, event)[0]


def _kernels(plane: Any) -> Iterator[Op]:
    """What the streams of a GPU carry out; copies, which no op is named for, are other."""
    for line in plane.lines:
        if line.name.startswith(_STREAM):
            for event in line.events:
                kernel = plane.event_metadata[event.metadata_id].name
                op = _OP.fullmatch(str(_stats(plane, event).get("tf_op", "")))
                part = "all_reduce" if "nccl" in kernel.lower() else _part(op["name"], op["type"]) if op else "other"
                yield Op(part, f"{plane.name} {line.id}", *_span(line, event))


def _part_of_event(name: str) -> str:
    """The part of an event of a host's thread; "" where it is no op but a detail of one, or of the runtime."""
    if name.startswith(_EAGER_INPUT):
        return "input"
    op = _OP.fullmatch(name)
    return _part(op["name"], op["type"]) if op else ""


def _part(name: str, kind: str) -> str:
    """The part of the op `name`, with its scopes, of the type `kind`.

    The gradient tape puts an op's gradient into a scope of its own with the scopes of the op, so "backward" wins over
    "forward"; and the optimizer's reductions are told by their type.
    """
    scopes = set(_SCOPE.findall(name))
    if kind.startswith(_REDUCTIONS) or "all_reduce" in scopes:
        return "all_reduce"
    if kind.startswith(_GET_NEXT):
        return "input"
    if scopes & {"backward", "gradient_tape"}:
        return "backward"
    return next((part for part in ("optimizer", "forward") if part in scopes), "other")


def _compute_lines(plane: Any) -> Iterator[Any]:
    """The threads of a host without those of the input pipeline, which works ahead of the step."""
    return (line for line in plane.lines if not line.name.startswith(_TF_DATA))


def _span(line: Any, event: Any) -> tuple[int, int]:
    start = 1000 * line.timestamp_ns + event.offset_ps
    return start, start + event.duration_ps


def _stats(plane: Any, event: Any) -> dict[str, Any]:
    """The details of an event by name; a text is kept as the number of an entry of the plane."""
    values = {}
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind)
        values[plane.stat_metadata[stat.metadata_id].name] = (
            plane.stat_metadata[value].name if kind == "ref_value" else value
        )
    return values
