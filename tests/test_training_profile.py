"""Where a step's time goes: the division of moments against answers by hand, and traces of steps made to measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from training.engine.profile import PARTS, Op, Profile, attribute, operations, profiled, window


def _attributed(*ops: tuple[str, str, int, int], end: int = 100) -> dict[str, float]:
    """The parts that are not zero of 0 to `end`; `ops` are (part, thread, start, end)."""
    parts = attribute([Op(*op) for op in ops], 0, end)
    assert sum(parts.values()) == pytest.approx(end, rel=1e-12)
    assert list(parts) == list(PARTS)
    return {part: time for part, time in parts.items() if time}


def test_nothing_runs() -> None:
    assert _attributed() == {"idle": 100}


def test_one_after_another_with_gaps() -> None:
    parts = _attributed(("forward", "a", 10, 30), ("backward", "b", 30, 70), ("optimizer", "a", 80, 90))
    assert parts == {"forward": 20, "backward": 40, "optimizer": 10, "idle": 30}


def test_ops_of_the_same_moment_share_it() -> None:
    # 0-40 forward alone, 40-60 one forward and two backward, 60-90 two backward
    parts = _attributed(("forward", "a", 0, 60), ("backward", "b", 40, 90), ("backward", "c", 40, 90), end=90)
    assert parts == {"forward": pytest.approx(40 + 20 / 3), "backward": pytest.approx(40 / 3 + 30)}


def test_the_innermost_op_of_a_thread_counts() -> None:
    nested = [("forward", "a", 0, 100), ("backward", "a", 0, 40), ("optimizer", "a", 20, 40), ("other", "a", 40, 50)]
    for ops in (nested, nested[::-1]):
        assert _attributed(*ops) == {"backward": 20, "optimizer": 20, "other": 10, "forward": 50}


def test_what_computation_hides_delays_nothing() -> None:
    parts = _attributed(
        ("input", "a", 0, 100), ("all_reduce", "b", 20, 90), ("other", "c", 40, 80), ("backward", "d", 50, 70)
    )
    assert parts == {"input": 30, "all_reduce": 30, "other": 20, "backward": 20}


def test_ops_are_cut_to_the_window() -> None:
    parts = _attributed(("forward", "a", -50, 10), ("backward", "a", 95, 300), ("optimizer", "a", 200, 300))
    assert parts == {"forward": 10, "backward": 5, "idle": 85}


def test_many_random_ops_against_brute_force() -> None:
    import numpy as np

    rng = np.random.default_rng(3)
    names = [part for part in PARTS if part != "idle"]
    ops = []
    for thread in "abc":  # ops of one thread do not overlap: the even stretches between sorted moments
        cuts = np.sort(rng.choice(400, 40, replace=False))
        ops += [Op(str(rng.choice(names)), thread, int(a), int(b)) for a, b in cuts.reshape(-1, 2)]
    expected = dict.fromkeys(PARTS, 0.0)
    for moment in range(400):
        parts = [op.part for op in ops if op.start <= moment < op.end]
        computing = [part for part in parts if part in ("forward", "backward", "optimizer")]
        waiting = [part for part in ("other", "all_reduce", "input") if part in parts]
        charged = computing or waiting[:1] or ["idle"]
        for part in charged:
            expected[part] += 1 / len(charged)
    assert attribute(ops, 0, 400) == pytest.approx(expected)


def test_table() -> None:
    seconds = dict.fromkeys(PARTS, 0.0) | {"forward": 0.0125, "idle": 0.0375}
    table, collectives = Profile(4, seconds, 5.0).table().split("\n\n")
    assert collectives == "5 collectives a step, over the replicas of this process"
    lines = table.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["mean of 4 steps", "ms a step", "share"]
    assert rows[2] == ["forward", "12.50", "25.0%"]
    assert rows[-2:] == [["idle", "37.50", "75.0%"], ["step", "50.00", "100.0%"]]
    assert len({len(line) for line in lines}) == 1


class _Trace:
    """An XSpace made by hand; times in nanoseconds."""

    def __init__(self) -> None:
        self.space = xplane_pb2.XSpace()

    def add(self, plane: str, line: str, event: str, start: int, end: int, **stats: str | int) -> None:
        def named(entries, name):  # the one of that name, or a new one
            return next((each for each in entries if each.name == name), None) or entries.add(name=name)

        def number_of(table, name: str) -> int:
            number = next((key for key, entry in table.items() if entry.name == name), len(table) + 1)
            table[number].name = name
            return number

        into = named(self.space.planes, plane)
        row = named(into.lines, line)
        row.id, row.timestamp_ns = list(into.lines).index(row), 1000
        added = row.events.add(offset_ps=1000 * (start - 1000), duration_ps=1000 * (end - start))
        added.metadata_id = number_of(into.event_metadata, event)
        for key, value in stats.items():
            stat = added.stats.add(metadata_id=number_of(into.stat_metadata, key))
            if isinstance(value, int):
                stat.uint64_value = value
            else:
                stat.ref_value = number_of(into.stat_metadata, value)

    def parts(self) -> dict[str, float]:
        parts = attribute(operations(self.space), *window(self.space))
        return {part: time / 1000 for part, time in parts.items() if time}


def test_ops_of_a_host_by_their_names() -> None:
    trace = _Trace()
    trace.add("/host:CPU", "python", "calopipe_profile", 2000, 3000)
    trace.add("/host:CPU", "python", "EagerLocalExecute: IteratorGetNext", 2000, 2100)
    trace.add("/host:CPU", "tf_data_private_threadpool/1", "forward/ParseExample:ParseExampleV2", 2000, 3000)
    for number, (name, length) in enumerate(
        {
            "replica_1/forward_12/dense/MatMul:MatMul": 10,
            "while/body/_1/gradient_tape/while/forward/dense/MatMul/MatMul_1:MatMul": 20,
            "backward_1/AddN:AddN": 30,
            "backward/forward_1/again:Conv3D": 1,
            "optimizer/rms/Square:Square": 40,
            "optimizer/rms/CollectiveReduceV2:CollectiveReduceV2": 50,
            "all_reduce/AddN:AddN": 60,
            "forwards/Cast:Cast": 70,  # a scope of another name
            "ParallelFor": 80,  # a detail of an op
        }.items()
    ):
        trace.add("/host:CPU", "tf_Compute/1", name, 2100 + 100 * number, 2100 + 100 * number + length)
    expected = {"forward": 10, "backward": 51, "optimizer": 40, "all_reduce": 110, "other": 70, "input": 100}
    assert trace.parts() == expected | {"idle": 1000 - sum(expected.values())}


def test_asynchronous_ops_last_from_begin_to_done() -> None:
    trace = _Trace()
    trace.add("/host:CPU", "python", "calopipe_profile", 2000, 3000)
    for number, (name, kind) in enumerate(
        [
            ("forward/StatefulPartitionedCall", "StatefulPartitionedCall"),
            ("while/IteratorGetNext", "IteratorGetNext"),
            ("optimizer/CollectiveReduceV2", "CollectiveReduceV2"),
            ("forward/Identity/_3", "_Recv"),  # waits for another device
            ("PartitionedCall", "PartitionedCall"),  # what it calls is told by its own names
        ]
    ):
        start, details = 2000 + 100 * number, {"name": name, "kernel_type": kind}
        trace.add("/host:CPU", "a", "ExecutorState::ProcessAsync::Start", start, start + 2, _p=number, **details)
        trace.add("/host:CPU", "b", "ExecutorState::ProcessAsync::Done", start + 60, start + 90, _c=number, **details)
    assert trace.parts() == {"forward": 60, "input": 60, "all_reduce": 60, "idle": 820}


def test_a_gpu_counts_by_its_kernels() -> None:
    trace = _Trace()
    gpu = "/device:GPU:0"
    trace.add("/host:CPU", "python", "calopipe_profile", 2000, 3000)
    trace.add("/host:CPU", "python", "EagerLocalExecute: IteratorGetNext", 2000, 2150)
    trace.add("/host:CPU", "tf_Compute/1", "optimizer/Square:Square", 2150, 3000)  # puts the kernel on its stream
    trace.add(gpu, "Stream #1(Compute)", "implicit_gemm", 2100, 2300, tf_op="forward/conv/Conv3D:Conv3D")
    trace.add(gpu, "Stream #1(Compute)", "wgrad", 2300, 2700, tf_op="gradient_tape/forward/conv/Conv3D:Conv3D")
    trace.add(gpu, "Stream #2(NCCL)", "ncclDevKernel_AllReduce_Sum_f32", 2600, 2800, tf_op="optimizer/x:Foo")
    trace.add(gpu, "Stream #3(MemcpyH2D)", "MemcpyH2D", 2900, 2910)
    trace.add(gpu, "TensorFlow Ops", "forward/conv/Conv3D:Conv3D", 2100, 3000)  # a summary, not a stream
    assert trace.parts() == {
        "input": 100, "forward": 200, "backward": 400, "all_reduce": 100, "other": 10, "idle": 190,
    }  # fmt: skip


def _scoped(number: tf.Tensor, products: dict[str, int], matmul: Callable[..., tf.Tensor] = tf.matmul) -> tf.Tensor:
    """`number` by way of so many matrix products within each scope, one after the other."""
    square = tf.fill((256, 256), number / 256)  # times itself it is itself if `number` is one
    for scope, count in products.items():
        with tf.name_scope(scope):
            for _ in range(count):
                square = matmul(square, square)
    return 256 * square[0, 0]


def _slow_input(*, sleep: float) -> tf.data.Dataset:
    """A number every `sleep` seconds, asked for one at a time."""

    def numbers() -> object:
        while True:
            time.sleep(sleep)
            yield 1.0

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # TensorFlow would hide the wait behind the step
    return tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.float32)).with_options(options)


def test_a_real_step(tmp_path: Path) -> None:
    step = tf.function(lambda number: _scoped(number, {"forward": 4, "backward": 20, "optimizer": 1}))
    numbers = iter(_slow_input(sleep=0.02))
    done: list[float] = []

    def run_steps(count: int) -> None:
        done.extend(float(step(next(numbers))) for _ in range(count))

    began_at = time.perf_counter()
    profile = profiled(run_steps, 6, trace=tmp_path)
    elapsed = time.perf_counter() - began_at
    assert done == pytest.approx(8 * [1.0])  # two steps beforehand
    assert profile.steps == 6
    assert 0 < profile.step_seconds < elapsed / 6
    assert 0.02 <= profile.seconds["input"] < 0.5 * elapsed
    # 20 products against 4 and 1: far enough apart for a machine that has other work
    assert profile.seconds["backward"] > profile.seconds["forward"]
    assert profile.seconds["backward"] > profile.seconds["optimizer"]
    assert profile.seconds["all_reduce"] == 0
    assert [path.suffixes for path in tmp_path.glob("plugins/profile/*/*")] == [[".xplane", ".pb"]]


def test_a_loop_of_steps_in_the_graph_with_compiled_parts() -> None:
    """As an engine may run: its input is an op within the step, and its functions are not inlined."""
    compiled = tf.function(tf.matmul, jit_compile=True)

    @tf.function
    def loop(numbers: tf.data.Iterator, count: tf.Tensor) -> tf.Tensor:
        total = 0.0
        for _ in tf.range(count):
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)  # no input ahead of its step
            total += _scoped(next(numbers), {"forward": 4, "backward": 20}, compiled)
        return total

    numbers = iter(_slow_input(sleep=0.02))
    profile = profiled(lambda count: loop(numbers, tf.constant(count)).numpy(), 4)
    assert profile.seconds["input"] >= 0.02
    assert profile.seconds["backward"] > profile.seconds["forward"]
    assert profile.seconds["other"] < 0.5 * profile.step_seconds
