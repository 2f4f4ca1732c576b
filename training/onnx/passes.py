"""Changes of an ONNX model with which ONNX Runtime computes the same numbers in less time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from training.onnx.shapes import bodies, fit_shapes, replace

_LAST = 10**9  # a slice that ends here or later goes to the end


def shorten(model: Any) -> None:
    """Change the ONNX `model` from tf2onnx, so that it has fewer and faster operations."""
    _take_from_around(model.graph)
    _merge(model.graph, {})
    _join_constants(model.graph)
    fit_shapes(model)
    _drop_unused(model.graph)


def _merge(graph: Any, outside: Mapping[str, Any]) -> None:
    """Make taking a column, and limiting numbers, one operation each; leave out slices that take everything.

    The bodies of loops are changed too. `outside` are the small constants of the graphs around `graph`.
    """
    from onnx import helper, numpy_helper  # noqa: PLC0415

    small = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer if np.prod(tensor.dims) <= 4}
    constants = {**outside, **small}
    made = {output: node for node in graph.node for output in node.output}
    indices: dict[int, str] = {}
    for body in bodies(graph.node):
        _merge(body, constants)
    for node in graph.node:
        if node.op_type == "Slice" and _of_everything(_cuts(node, constants)):
            node.op_type = "Identity"
            del node.input[1:]
        if node.op_type == "Max" and node.input[0] in made:
            limits = _limits(made[node.input[0]], node, constants)
            if limits is not None:
                node.op_type = "Clip"
                node.input[:] = [made[node.input[0]].input[0], *limits]
        if node.op_type != "Squeeze" or node.input[0] not in made:
            continue
        column = _column(made[node.input[0]], node, constants)
        if column is not None:
            axis, which = column
            if which not in indices:
                indices[which] = f"{graph.name}_column_{which}"
                graph.initializer.append(numpy_helper.from_array(np.array(which, np.int64), indices[which]))
            node.op_type = "Gather"
            node.input[:] = [made[node.input[0]].input[0], indices[which]]
            node.attribute.append(helper.make_attribute("axis", axis))


def _take_from_around(graph: Any) -> None:
    """Let the bodies of loops take what no iteration changes from the graph around them, or have it as a constant.

    In TensorFlow, weights are handed from one iteration to the next. ONNX Runtime would treat them as variables.
    """
    renamed: dict[str, str] = {}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        for body in bodies([node]):
            _rename(body, renamed)
        for body in bodies([node]) if node.op_type == "Loop" else ():
            same = {inner.output[0]: inner.input[0] for inner in body.node if inner.op_type == "Identity"}
            for state in range(len(node.input) - 1, 1, -1):  # the first two inputs are the count and the condition
                inside, result = body.input[state].name, body.output[state - 1].name
                handed_on = [output.name for output in body.output].count(inside) > (result == inside)  # as another one
                if same.get(result, result) == inside and not handed_on:
                    if node.input[state] in constants:
                        body.initializer.append(constants[node.input[state]])
                        body.initializer[-1].name = inside
                    else:
                        _rename(body, {inside: node.input[state]})
                        if node.input[state] not in renamed.values():
                            graph.value_info.append(body.input[state])  # its shape
                            graph.value_info[-1].name = node.input[state]
                    renamed[node.output[state - 2]] = node.input[state]
                    del body.input[state], body.output[state - 1], node.input[state], node.output[state - 2]
            _take_from_around(body)


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Rename the inputs of operations by `names`, here and in the bodies of loops."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    for body in bodies(graph.node):
        _rename(body, names)


def _join_constants(graph: Any) -> None:
    """Make equal constants of a graph one constant: ONNX Runtime then sees equal operations, and runs only one."""
    from onnx import numpy_helper  # noqa: PLC0415

    first_of: dict[Any, str] = {}
    names = {}
    for tensor in graph.initializer:
        content = tensor.data_type, tuple(tensor.dims), numpy_helper.to_array(tensor).tobytes()
        names[tensor.name] = first_of.setdefault(content, tensor.name)
    _rename(graph, names)
    for body in bodies(graph.node):
        _join_constants(body)


def _used(graph: Any) -> set[str]:
    """The names of the inputs of operations and of the outputs of graphs, here and in the bodies of loops."""
    used = {name for node in graph.node for name in node.input} | {tensor.name for tensor in graph.output}
    return used.union(*map(_used, bodies(graph.node)))


def _drop_unused(graph: Any) -> None:
    """Remove operations and constants that nothing uses."""
    for body in bodies(graph.node):
        _drop_unused(body)
    needed = {tensor.name for tensor in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(node.input, *map(_used, bodies([node])))
    replace(graph.node, nodes[::-1])
    replace(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in needed])


def _cuts(node: Any, constants: Mapping[str, Any]) -> dict[int, list[int]] | None:
    """Start, end and step of a slice, by axis; None if one is not a constant. Steps are 1 if they are not given."""
    if len(node.input) < 4 or any(name not in constants for name in node.input[1:]):
        return None
    starts, ends, axes, *steps = (constants[name].tolist() for name in node.input[1:])
    every = steps[0] if steps else [1] * len(axes)
    return {axis: cut for axis, *cut in zip(axes, starts, ends, every, strict=True)}


def _of_everything(cuts: Mapping[int, list[int]] | None) -> bool:
    """Whether a slice takes everything."""
    return cuts is not None and all(start == 0 and end >= _LAST and step == 1 for start, end, step in cuts.values())


def _column(slicing: Any, squeeze: Any, constants: Mapping[str, Any]) -> tuple[int, int] | None:
    """The axis and the index, if the two operations take the values at one index of an axis; else None."""
    axes = constants.get(squeeze.input[1]) if len(squeeze.input) > 1 else None
    if slicing.op_type != "Slice" or axes is None or axes.size != 1:
        return None
    axis = axes.item()
    cuts = _cuts(slicing, constants)
    if cuts is None or axis not in cuts:
        return None
    start, end, step = cuts.pop(axis)
    return (axis, start) if start >= 0 and end == start + 1 and step == 1 and _of_everything(cuts) else None


def _limits(highest: Any, lowest: Any, constants: Mapping[str, Any]) -> list[str] | None:
    """The names of the lowest and the highest number, if the two operations limit numbers to these; else None."""
    if highest.op_type != "Min" or len(lowest.input) != 2 or len(highest.input) != 2:
        return None
    low, high = lowest.input[1], highest.input[1]
    return [low, high] if all(name in constants and constants[name].ndim == 0 for name in (low, high)) else None
