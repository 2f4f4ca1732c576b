"""Operations of an ONNX model in the form that ONNX Runtime is fast in, which hangs on the shapes of what they take.

As measured with ONNX Runtime 1.23 on one thread (`docs/log/models.md`): a number for each of many rows of one column is
taken row by row, 40 times as slow as a number whose shape has two ones; and `Gather` copies single numbers ten times as
slowly as `GatherElements`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

# Operations on numbers at the same place of several tensors.
_ELEMENTWISE = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "Max",
    "Min", "Mul", "Or", "Sub", "Where",
)  # fmt: skip
_Shape = tuple[int, ...]  # -1 where a dimension is not known


def fit_shapes(model: Any) -> None:
    """Change the operations of the ONNX `model`."""
    from onnx import shape_inference  # noqa: PLC0415  only exports need it

    _Fitting(model.graph, shape_inference.infer_shapes(model).graph, {}, {}).fit()


def bodies(nodes: Sequence[Any]) -> Iterator[Any]:
    """The graphs within operations: the bodies of loops."""
    for node in nodes:
        yield from (attribute.g for attribute in node.attribute if attribute.HasField("g"))


def replace(list_: Any, others: Sequence[Any]) -> None:
    """Let a `list_` of a graph hold the `others`, of which some may be in it."""
    others = deepcopy(others)  # those that are removed lose what they hold
    del list_[:]
    list_.extend(others)


class _Fitting:
    """A `graph`, whose shapes `inferred` has; `shapes` and `constants` are of the graphs around it."""

    def __init__(self, graph: Any, inferred: Any, shapes: Mapping[str, _Shape], constants: Mapping[str, Any]) -> None:
        self._graph, self._inferred = graph, inferred
        self._shapes = {**shapes, **dict(_shapes(inferred))}
        self._constants = {**constants, **{tensor.name: tensor for tensor in graph.initializer}}
        self._new: dict[str, Any] = {}

    def fit(self) -> None:
        nodes = [each for node in self._graph.node for each in self._fitted(node)]
        for body, inferred in zip(bodies(self._graph.node), bodies(self._inferred.node), strict=True):
            _Fitting(body, inferred, self._shapes, self._constants).fit()
        replace(self._graph.node, nodes)
        self._graph.initializer.extend(self._new.values())

    def _fitted(self, node: Any) -> list[Any]:
        """The operations in place of one, which may be itself, changed."""
        shapes = [self._shapes[name] for name in node.input if name in self._shapes]
        if len(shapes) == len(node.input):
            if node.op_type in _ELEMENTWISE:
                self._give_ranks(node, shapes)
            if node.op_type == "Gather":
                return self._gathered(node, *shapes)
        return [node]

    def _give_ranks(self, node: Any, shapes: Sequence[_Shape]) -> None:
        """Let single numbers that are taken with columns (..., 1) have as many dimensions as these."""
        rank = max(map(len, shapes))
        if rank < 2 or any(shape and (len(shape) < rank or shape[-1] != 1) for shape in shapes):
            return
        for place, shape in enumerate(shapes):
            if not shape and node.input[place] in self._constants:
                node.input[place] = self._reshaped(node.input[place], [1] * rank)

    def _gathered(self, node: Any, row: _Shape, wanted: _Shape) -> list[Any]:
        """The operations in place of one that takes the only column of a table, or numbers (...) from a row."""
        from onnx import helper  # noqa: PLC0415

        (data, places), (output,) = node.input, node.output
        axis = node.attribute[0].i if node.attribute else 0
        if not wanted and row[axis] == 1:
            return [helper.make_node("Squeeze", [data, self._whole([axis])], [output])]
        if len(row) != 1 or not wanted or -1 in wanted[1:]:
            return [node]
        if len(wanted) == 1:
            return [helper.make_node("GatherElements", [data, places], [output], axis=0)]
        return [
            helper.make_node("Reshape", [places, self._whole([-1])], [f"{output}/places"]),
            helper.make_node("GatherElements", [data, f"{output}/places"], [f"{output}/flat"], axis=0),
            helper.make_node("Reshape", [f"{output}/flat", self._whole([-1, *wanted[1:]])], [output]),
        ]

    def _reshaped(self, constant: str, shape: Sequence[int]) -> str:
        """The name of this `constant` in another `shape`."""
        name = f"{self._graph.name}/{constant}/{len(shape)}"
        tensor = self._new[name] = deepcopy(self._constants[constant])
        tensor.name, tensor.dims[:] = name, shape
        return name

    def _whole(self, numbers: Sequence[int]) -> str:
        """The name of a constant of whole `numbers`."""
        from onnx import numpy_helper  # noqa: PLC0415

        name = f"{self._graph.name}/{'x'.join(map(str, numbers))}"
        self._new[name] = numpy_helper.from_array(np.array(numbers, np.int64), name)
        return name


def _shapes(inferred: Any) -> Iterator[tuple[str, _Shape]]:
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        if value.type.tensor_type.HasField("shape"):
            dimensions = value.type.tensor_type.shape.dim
            yield value.name, tuple(each.dim_value if each.HasField("dim_value") else -1 for each in dimensions)
    for tensor in inferred.initializer:
        yield tensor.name, tuple(tensor.dims)
