"""Puts operations of an ONNX model into the form that ONNX Runtime is fast in. It depends on the shapes of the inputs.

Measured with ONNX Runtime 1.23 on one thread (`docs/log/models.md`): an operation of one number with many rows of one
column goes row by row, 40 times as slow as with a number of shape (1, 1); and `Gather` copies single numbers ten times
as slowly as `GatherElements`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

# Operations that combine the numbers at the same place of several tensors.
_ELEMENTWISE = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "Max",
    "Min", "Mul", "Or", "Sub", "Where",
)  # fmt: skip
_Shape = tuple[int, ...]  # -1 where a dimension is not known


def fit_shapes(model: Any) -> None:
    """Change the operations of the ONNX `model` to their fast forms."""
    from onnx import shape_inference  # noqa: PLC0415  only exports need it

    _Fitting(model.graph, shape_inference.infer_shapes(model).graph, {}, {}).fit()


def bodies(nodes: Sequence[Any]) -> Iterator[Any]:
    """The graphs within operations: the bodies of loops."""
    for node in nodes:
        yield from (attribute.g for attribute in node.attribute if attribute.HasField("g"))


def replace(list_: Any, elements: Sequence[Any]) -> None:
    """Replace the content of a `list_` of a graph by the `elements`; some of these may be in it already."""
    elements = deepcopy(elements)  # an element that is removed from a list loses its content
    del list_[:]
    list_.extend(elements)


class _Fitting:
    """A `graph`; `inferred` is the same with shapes. `shapes` and `constants` are those of the graphs around it."""

    def __init__(self, graph: Any, inferred: Any, shapes: Mapping[str, _Shape], constants: Mapping[str, Any]) -> None:
        self._graph, self._inferred = graph, inferred
        self._shapes = {**shapes, **dict(_shapes(inferred))}
        self._constants = {**constants, **{tensor.name: tensor for tensor in graph.initializer}}
        self._new: dict[str, Any] = {}

    def fit(self) -> None:
        nodes = [fitted for node in self._graph.node for fitted in self._fitted(node)]
        for body, inferred in zip(bodies(self._graph.node), bodies(self._inferred.node), strict=True):
            _Fitting(body, inferred, self._shapes, self._constants).fit()
        replace(self._graph.node, nodes)
        self._graph.initializer.extend(self._new.values())

    def _fitted(self, node: Any) -> list[Any]:
        """The operations that replace `node`; this may be the node itself, changed."""
        shapes = [self._shapes[name] for name in node.input if name in self._shapes]
        if len(shapes) == len(node.input):
            if node.op_type in _ELEMENTWISE:
                self._give_ranks(node, shapes)
            if node.op_type == "Gather":
                return self._gathered(node, *shapes)
        return [node]

    def _give_ranks(self, node: Any, shapes: Sequence[_Shape]) -> None:
        """Give constants of one number that are combined with columns (..., 1) as many dimensions as the columns."""
        rank = max(map(len, shapes))
        if rank < 2 or any(shape and (len(shape) < rank or shape[-1] != 1) for shape in shapes):
            return
        for place, shape in enumerate(shapes):
            if not shape and node.input[place] in self._constants:
                node.input[place] = self._reshaped(node.input[place], [1] * rank)

    def _gathered(self, node: Any, row: _Shape, wanted: _Shape) -> list[Any]:
        """The operations that replace a `Gather` of the only column of a table, or of numbers (...) from a row."""
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
        """The name of a copy of this `constant` with another `shape`."""
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
            yield value.name, tuple(size.dim_value if size.HasField("dim_value") else -1 for size in dimensions)
    for tensor in inferred.initializer:
        yield tensor.name, tuple(tensor.dims)
