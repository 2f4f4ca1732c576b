"""One worker that times collectives and steps: `python benchmarks/collectives.py DATASET CONFIG N BYTES...`.

`benchmarks/scaling.py` starts it with a TF_CONFIG. All workers time the same work, N times. Before each time the first
worker says that it is ready and waits for a line, so that the network between workers can be changed. Collectives are
the training's own (`training.engine.exchange`), in a chain: each waits for the one before. Each measurement is a line
of JSON with the wall time, and the processor time of this process. With "-" for CONFIG there are no steps.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from preprocessing.dataset import read_manifest
from training.configs import named_config
from training.engine.exchange import statistics as changing
from training.engine.exchange import total_over_replicas
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.nodes.workers import Cluster

_TURNS = 15


def main(dataset: Path, name: str, times: int, sizes: list[int]) -> None:
    cluster = Cluster.of_process((), None)
    strategy = make_strategy("multi-worker", cluster)
    works: dict[int | None, tuple[Callable[[], Any], int]] = {}

    @tf.function(reduce_retracing=True)
    def chain(value: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(length):
            per_replica = strategy.run(total_over_replicas, args=(value,))
            value = strategy.experimental_local_results(per_replica)[0]
            value.set_shape([None])
        return value

    for size in sizes:
        length = max(1, min(10, 2**20 // size))
        works[size] = partial(chain, tf.zeros([size // 4]), tf.constant(length)), length
    bytes_of_step = []
    if name != "-":
        config = named_config(name, strategy="multi-worker", batch=1)
        engine = Engine(config, dataset, read_manifest(dataset), strategy)
        works[None] = partial(engine.run, iter(engine.batches()), 1), 1
        bytes_of_step = exchanged(engine)
    for work, _ in works.values():
        work()  # traces the graph, and brings the workers to one point
    say({"collectives_bytes": bytes_of_step})
    for turn in range(times):
        if cluster is not None and cluster.chief:
            say({"ready": turn})
            sys.stdin.readline()
        for moved, (work, each) in works.items():
            timed({"turn": turn, "bytes": moved}, work, each)
    chain(tf.zeros([1]), tf.constant(1))  # all workers continue at the same time


def timed(what: dict[str, Any], work: Callable[[], Any], each: int) -> None:
    """Report the seconds of `work`, which does the measured thing `each` times."""
    work()
    walls, began_cpu = [], time.process_time()
    for _ in range(_TURNS):
        began = time.perf_counter()
        work()
        walls.append((time.perf_counter() - began) / each)
    cpu = (time.process_time() - began_cpu) / _TURNS / each
    say(what | {"seconds": min(walls), "median": statistics.median(walls), "cpu_s": cpu})


def exchanged(engine: Engine) -> list[int]:
    """Bytes of each collective of a step: the gradients of each phase; the last also carries losses and statistics."""
    networks = [engine.model.networks[phase.network] for phase in engine.model.phases]
    gradients = [4 * sum(int(weight.shape.num_elements()) for weight in net.trainable_variables) for net in networks]
    trained = [engine.model.networks[name] for name in engine.optimizers]
    moved = sum(int(value.shape.num_elements()) for network in trained for value in changing(network))
    reported = sum(len(phase.weights) for phase in engine.model.phases) + 1
    gradients[-1] += 4 * (reported + moved)
    return gradients


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), [int(size) for size in sys.argv[4:]])
