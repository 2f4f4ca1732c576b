"""What a step of a config computes, exchanges and holds: counted in its graph, which is built but not run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from training.engine.exchange import averaged, statistics
from training.engine.step import gradients_of
from training.estimate.estimate import Work
from training.models.base import Model, build
from training.models.config import FitConfig
from training.models.precision import plain_forms
from training.models.randomness import Draws

_BACKWARD = "gradient_tape/"  # how TensorFlow names the operations of a gradient
_STORED = frozenset({"ReadVariableOp", "Const", "Placeholder"})  # operations whose results the step does not compute


def work_of(config: FitConfig, geometry: Any) -> Work:
    """The work of `config` for a dataset of `geometry`."""
    with plain_forms():
        model = build(config, geometry)
    # decoding in a graph that is not run needs no more of a manifest
    manifest: Any = SimpleNamespace(geometry=geometry, valid_range={})
    collectives: list[float] = []

    def step(records: tf.Tensor) -> list[Any]:
        draws = Draws.of(config.seed, 0, 0)
        progress = {"step": tf.constant(0, tf.int64), "epoch": tf.constant(0.0)}
        view = dict(model.view(model.decode(records, manifest), draws.fold("view"))) | progress
        gradients = []
        for phase in model.phases:
            with tf.name_scope(phase.name):
                _, made = gradients_of(model, phase, view, draws, showers=config.batch)
            exchanged = [gradient for gradient in made if gradient is not None]
            collectives.append(_bytes(exchanged))
            gradients += exchanged
        return gradients

    operations = _operations(step, config.batch)
    trained = dict.fromkeys(phase.network for phase in model.phases)
    reported = sum(len(phase.weights) for phase in model.phases) + 1  # the losses, and whether to stop
    changing = sum(math.prod(statistic.shape) for name in trained for statistic in statistics(model.networks[name]))
    gradients = max(collectives)
    collectives[-1] += 4.0 * (reported + changing)  # the collective of the last phase carries these too
    return Work(
        model=config.model,
        precision=config.precision,
        batch=config.batch,
        flop=_flop(operations) / config.batch,
        evaluation_cost=model.evaluation_cost,
        collectives=tuple(collectives),
        state=_state(model, config, trained) + 8 + 4 * (reported - 1),  # the number of steps; the sums of the losses
        gradients=gradients,
        activations=max(_kept(operations, phase.name) for phase in model.phases),
    )


def _operations(function: Callable[[tf.Tensor], Any], showers: int) -> list[tf.Operation]:
    """The operations that `function` of so many records needs; gradients that nothing uses are left out."""
    graph = tf.function(function).get_concrete_function(tf.TensorSpec([showers], tf.string)).graph
    needed: set[tf.Operation] = set()
    wanted = [*(value.op for value in graph.outputs), *graph.control_outputs]
    while wanted:
        op = wanted.pop()
        if op not in needed:
            needed.add(op)
            wanted += [*(value.op for value in op.inputs), *op.control_inputs]
    return [op for op in graph.get_operations() if op in needed]


def _state(model: Model, config: FitConfig, trained: Iterable[str]) -> float:
    """Bytes of all weights, of the optimizers and of the averages."""
    total = _bytes(weight for network in model.networks.values() for weight in network.weights)
    for name in trained:
        optimizer = model.optimizer(name, lambda: config.learning_rate, 1)
        optimizer.build(model.networks[name].trainable_variables)
        total += _bytes(optimizer.variables)
    if config.average:
        total += _bytes(averaged(model))
    return total


def _bytes(values: Iterable[Any]) -> float:
    return float(sum(math.prod(value.shape) * tf.as_dtype(value.dtype).size for value in values))


def _kept(operations: list[tf.Operation], phase: str) -> float:
    """Bytes that the forward pass computes and the backward pass of `phase` reads."""
    back = [op for op in operations if _BACKWARD in op.name and f"{phase}/" in op.name]
    read = {value.ref() for op in back for value in op.inputs}
    made = [value.deref() for value in read if _BACKWARD not in value.deref().op.name]
    return _bytes(value for value in made if value.op.type not in _STORED and value.shape.is_fully_defined())


def _flop(operations: list[tf.Operation]) -> float:
    return float(sum(_OPERATIONS[op.type](op) for op in operations if op.type in _OPERATIONS))


def _product(op: tf.Operation) -> float:
    left = op.inputs[0].shape
    transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
    return 2.0 * math.prod(op.outputs[0].shape) * left[-2 if transposed else -1]


def _einsum(op: tf.Operation) -> float:
    """Two operations for each combination of all indices; 0 if an ellipsis stands for indices."""
    terms = op.get_attr("equation").decode().partition("->")[0].split(",")
    if any("." in term for term in terms):
        return 0.0
    sizes: dict[str, int] = {}
    for term, value in zip(terms, op.inputs, strict=True):
        sizes |= dict(zip(term, value.shape, strict=True))
    return 2.0 * math.prod(sizes.values())


def _convolution(op: tf.Operation) -> float:
    """A convolution, or a gradient of it. The kernel is (..., in, out); a gradient is given that of the answer."""
    kernel = op.outputs[0] if "BackpropFilter" in op.type else op.inputs[1]
    answer = op.inputs[2] if "Backprop" in op.type else op.outputs[0]
    return 2.0 * math.prod(answer.shape) * math.prod(kernel.shape[:-1])


_OPERATIONS: dict[str, Callable[[tf.Operation], float]] = {
    "Einsum": _einsum,
    **dict.fromkeys(("MatMul", "BatchMatMulV2", "BatchMatMulV3"), _product),
    **dict.fromkeys(("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"), _convolution),
    **dict.fromkeys(("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"), _convolution),
}
