"""ONNX graphs of small functions give the results of NumPy, by operations that are fast in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from training.onnx.graph import converted
from training.onnx.shapes import bodies


def _converted(function: Callable[..., tf.Tensor], *specs: tf.TensorSpec) -> Any:
    """The ONNX model of a `function`, with this name of the output."""
    traced = tf.function(lambda *given: {"output": function(*given)}, input_signature=specs, autograph=False)
    return converted(traced)


def _found(model: Any, **given: Any) -> Any:
    """The results of a `model`."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["output"], given)[0]


def _operations(graph: Any) -> list[str]:
    """The operations of a model and of its loops, without those that only copy or reshape their input."""
    inner = [name for body in bodies(graph.node) for name in _operations(body)]
    return [node.op_type for node in graph.node if node.op_type not in ("Identity", "Reshape")] + inner


def test_doubles_are_sorted_as_doubles() -> None:
    """They differ by less than float32 resolves: they give the order of the cells of many showers."""
    model = _converted(tf.argsort, tf.TensorSpec([None], tf.float64, "numbers"))
    numbers = 255 + np.random.default_rng(1).permutation(200) * 2.0**-30
    np.testing.assert_array_equal(_found(model, numbers=numbers), np.argsort(numbers))


_COLUMN = np.random.default_rng(2).normal(size=(7, 1)).astype(np.float32)
_FALLS = np.array([-1.5, 0.25, 3], np.float32)


@pytest.mark.parametrize(
    ("function", "expected", "operations"),
    [
        (lambda column: 2.5 - column, 2.5 - _COLUMN, ["Sub"]),
        (lambda column: tf.where(column > 0.5, column, 0.0), np.where(_COLUMN > 0.5, _COLUMN, 0), ["Greater", "Where"]),
        (lambda column: column * _FALLS, _COLUMN * _FALLS, ["Mul"]),
        (lambda column: tf.exp(column[:, 0]), np.exp(_COLUMN[:, 0]), ["Squeeze", "Exp"]),
        (lambda column: 1.0 + (column * _FALLS)[:, 1], 1 + _COLUMN[:, 0] * _FALLS[1], ["Mul", "Gather", "Add"]),
    ],
    ids=["a number", "a number in place of others", "several numbers", "the only column", "one of several columns"],
)
def test_columns(function: Callable[[tf.Tensor], tf.Tensor], expected: Any, operations: list[str]) -> None:
    """A number that is combined with a column gets as many dimensions: otherwise ONNX Runtime computes row by row."""
    model = _converted(function, tf.TensorSpec([None, 1], tf.float32, "column"))
    assert _operations(model.graph) == operations
    taken = {name for node in model.graph.node if node.op_type in ("Sub", "Greater", "Where") for name in node.input}
    ranks = [len(tensor.dims) for tensor in model.graph.initializer if tensor.name in taken]
    assert ranks == [2] * len(set(operations) & {"Sub", "Greater", "Where"})
    np.testing.assert_allclose(_found(model, column=_COLUMN), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 2, 3)])
def test_numbers_are_gathered_one_by_one_and_rows_as_rows(shape: tuple[int, ...]) -> None:
    """This also holds in the body of a loop."""
    rng = np.random.default_rng(3)
    row, table = rng.normal(size=11).astype(np.float32), rng.normal(size=(11, 2)).astype(np.float32)
    places = rng.integers(0, 11, shape).astype(np.int32)
    of_places = tf.TensorSpec([None, *shape[1:]], tf.int32, "places")

    def thrice(row: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        start = (0, tf.zeros_like(places, tf.float32))
        return tf.while_loop(
            lambda step, _: step < 3, lambda step, sum_: (step + 1, sum_ + tf.gather(row, places)), start
        )[1]

    model = _converted(thrice, tf.TensorSpec([None], tf.float32, "row"), of_places)
    operations = _operations(model.graph)
    assert ("GatherElements" in operations, "Gather" in operations) == (True, False)
    np.testing.assert_allclose(_found(model, places=places, row=row), 3 * row[places], rtol=1e-6)
    rows = _converted(tf.gather, tf.TensorSpec([None, 2], tf.float32, "table"), of_places)
    assert _operations(rows.graph) == ["Gather"]
    np.testing.assert_array_equal(_found(rows, table=table, places=places), table[places])


def test_a_loop_that_hands_on_to_another_state_what_it_does_not_change() -> None:
    def function(row: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda step, *_: step < 3, lambda step, one, _: (step + 1, one, one), (0, row, -row))[2]

    row = np.random.default_rng(4).normal(size=5).astype(np.float32)
    np.testing.assert_array_equal(_found(_converted(function, tf.TensorSpec([5], tf.float32, "row")), row=row), row)


def test_a_branch_after_a_loop_that_takes_what_the_loop_does_not_change() -> None:
    def function(row: tf.Tensor) -> tf.Tensor:
        start = (0, row, tf.reduce_sum(row))
        _, same, sum_ = tf.while_loop(
            lambda step, *_: step < 3, lambda step, same, sum_: (step + 1, same, sum_ + same[0]), start
        )
        return tf.cond(sum_ > 0, lambda: same * 2.0, lambda: same * 3.0)

    row = np.random.default_rng(4).normal(size=5).astype(np.float32)
    model = _converted(function, tf.TensorSpec([5], tf.float32, "row"))
    for numbers in (row, -row):
        factor = 2 if numbers.sum() + 3 * numbers[0] > 0 else 3
        np.testing.assert_allclose(_found(model, row=numbers), factor * numbers, rtol=1e-6)
