"""Where the time of a training step goes: its parts timed one by one, and TensorFlow's own trace for TensorBoard."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from training.engine.exchange import summed
from training.engine.step import Engine

_STEPS = 10
_LONGEST_S = 60.0  # that a pass over the steps may take
_COLLECTIVES = ("CollectiveReduce", "CollectiveGather", "CollectiveBcast", "Nccl")
PARTS = ("forward", "backward", "all-reduce", "optimizer", "waiting for input")


@dataclass(frozen=True)
class Profile:
    """`seconds` of wall time that a step spends in each of `PARTS`: medians of `steps` steps.

    The optimizer's are what is left of a step. `collectives` are the exchanges between replicas in its graph, counted
    on each replica of this process.
    """

    steps: int
    seconds: Mapping[str, float]
    collectives: int = 0

    @property
    def step_seconds(self) -> float:
        """Wall time of a step."""
        return sum(self.seconds.values())

    def table(self) -> str:
        """The parts in milliseconds and percent of a step, as a Markdown table that is also legible as text."""
        lines = [f"| {f'medians of {self.steps}':17} | ms a step |  share |", f"|{'-' * 19}|----------:|-------:|"]
        for name, each in [*self.seconds.items(), ("step", self.step_seconds)]:
            lines.append(f"| {name:17} | {1e3 * each:9.2f} | {each / self.step_seconds:6.1%} |")
        return "\n".join([*lines, f"\n{self.collectives} collectives a step, over the replicas of this process"])


def profile(engine: Engine, trace: Path | None) -> Profile:
    """Where the time of a step goes. The steps that show it are undone, so that training is as without them.

    `trace` is the log folder of TensorBoard that keeps TensorFlow's own trace of the steps. Of several workers all do
    the same number of steps, however slow.
    """
    before = engine.state()
    batches = iter(engine.batches())
    whole = tf.function(lambda batch: engine.step_on(batch, tf.constant(0.0)))
    _timed(whole, batches, 1)  # traces and compiles
    _, second = _timed(whole, batches, 1)
    several = engine.config.strategy == "multi-worker"
    steps = _STEPS if several else max(1, min(_STEPS, int(_LONGEST_S / second)))
    with tf.profiler.experimental.Profile(str(trace)) if trace else nullcontext():
        waiting, step = _timed(whole, batches, steps)
    parts = {"forward": _forward, "gradients": _gradients} | ({"all-reduce": _exchange} if engine.replicas > 1 else {})
    found = {"all-reduce": 0.0}
    for name, part in parts.items():
        alone = _on_replicas(engine, part)
        _timed(alone, batches, 1)
        _, found[name] = _timed(alone, batches, steps)
    engine.restore(before, "the state before")
    backward = max(found["gradients"] - found["forward"], 0.0)
    rest = max(step - found["forward"] - backward - found["all-reduce"], 0.0)
    seconds = (found["forward"], backward, found["all-reduce"], rest, waiting)
    graph = whole.get_concrete_function(next(batches)).graph.as_graph_def()
    nodes = [node for function in graph.library.function for node in function.node_def] + list(graph.node)
    collectives = sum(node.op.startswith(_COLLECTIVES) for node in nodes)
    return Profile(steps, dict(zip(PARTS, seconds, strict=True)), collectives)


def _timed(function: Callable[[Any], tf.Tensor], batches: Any, steps: int) -> tuple[float, float]:
    """Medians of the seconds that `steps` batches keep waiting, and that `function` takes on each."""
    waiting, working = [], []
    for _ in range(steps):
        began = time.perf_counter()
        batch = next(batches)
        received = time.perf_counter()
        function(batch).numpy()
        waiting.append(received - began)
        working.append(time.perf_counter() - received)
    return statistics.median(waiting), statistics.median(working)


def _on_replicas(engine: Engine, part: Callable[[Engine, Any], list[tf.Tensor]]) -> Callable[[Any], tf.Tensor]:
    """A `part` of the step on the batches of all replicas, in the graph; a sum of all that it computes."""

    def on_replica(batch: Any) -> tf.Tensor:
        return tf.add_n([tf.reduce_sum(tf.cast(each, tf.float32)) for each in part(engine, batch)])

    def on_all(batch: Any) -> tf.Tensor:
        return tf.add_n(engine.strategy.experimental_local_results(engine.strategy.run(on_replica, args=(batch,))))

    return tf.function(on_all)


def _forward(engine: Engine, batch: Any) -> list[tf.Tensor]:
    view, key = engine.view_of(batch)
    return [loss for forward in engine.forward.values() for loss in forward(view, key)]


def _gradients(engine: Engine, batch: Any) -> list[tf.Tensor]:
    view, key = engine.view_of(batch)
    found = [gradients(view, key)[1] for gradients in engine.gradients.values()]
    return [gradient for of_phase in found for gradient in of_phase if gradient is not None]


def _exchange(engine: Engine, batch: Any) -> list[tf.Tensor]:  # noqa: ARG001  as the others
    weights = (engine.model.networks[phase.network].trainable_variables for phase in engine.model.phases)
    return [each for of_phase in weights for each in summed([tf.zeros_like(each.value) for each in of_phase])]
