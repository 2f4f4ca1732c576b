"""A TensorFlow function as an ONNX graph: by tf2onnx, with operations that ONNX Runtime runs in fewer steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

_LAST = 10**9  # from where on a slice ends nowhere


def converted(function: Any, opset: int) -> Any:
    """The ONNX model of the tf.function `function`, which has an input signature and gives a dictionary."""
    from tf2onnx import convert, optimizer, tf_loader, tfonnx  # noqa: PLC0415  only exports need the converter
    from tf2onnx.optimizer.const_fold_optimizer import ConstFoldOptimizer  # noqa: PLC0415

    concrete = function.get_concrete_function(*function.input_signature)
    inputs = [tensor.name for tensor in concrete.inputs if tensor.dtype != tf.resource]
    outputs = [output.name for output in concrete.outputs]
    with tf.device("/cpu:0"):
        frozen = tf_loader.from_function(concrete, inputs, outputs)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(frozen, name="")
            made = tfonnx.process_tf_graph(
                graph, continue_on_error=True, opset=opset, input_names=inputs, output_names=outputs,
                tensors_to_rename=convert.tensor_names_from_structed(concrete, inputs, outputs),
                custom_op_handlers={name: (handler, []) for name, handler in _HANDLERS.items()},
            )  # fmt: skip
    # the others take four times as long as all else together, and ONNX Runtime does what they do when it loads a file
    folded = optimizer.optimize_graph(made, catch_errors=False, optimizers={"fold_constants": ConstFoldOptimizer})
    model = folded.make_model("calopipe")
    _take_from_around(model.graph)
    _shorten(model.graph, {})
    _join_constants(model.graph)
    _drop_unused(model.graph, _used(model.graph))
    return model


def _segment_sum(graph: Any, node: Any, name: str, args: Any) -> None:  # noqa: ARG001  tf2onnx gives them
    """Sums by scattering; tf2onnx sorts the rows and gathers them into a table."""
    data, segment, number = node.input
    rank, shape, dtype = graph.get_rank(data), graph.get_shape(data), graph.get_dtype(data)
    index, size = segment, _as_int64(graph, number)
    size = graph.make_node("Unsqueeze", [size, _constant(graph, [0])]).output[0]
    if rank > 1:
        index = graph.make_node("Unsqueeze", [index, _constant(graph, list(range(1, rank)))]).output[0]
        index = graph.make_node("Expand", [index, graph.make_node("Shape", [data]).output[0]]).output[0]
        size = graph.make_node("Concat", [size, _constant(graph, shape[1:])], attr={"axis": 0}).output[0]
    zeros = graph.make_node("Expand", [_constant(graph, 0, dtype), size]).output[0]
    output, shapes = node.output, node.output_shapes
    graph.remove_node(node.name)
    graph.make_node(
        "ScatterElements", [zeros, index, data], attr={"axis": 0, "reduction": "add"},
        name=name, outputs=output, shapes=shapes, dtypes=[dtype],
    )  # fmt: skip


def _alike(graph: Any, node: Any, name: str, args: Any) -> None:  # noqa: ARG001  tf2onnx gives them
    """One operation, for several of tf2onnx: casts for older ONNX; products and their sum, which let NaN through."""
    node.type = _ALIKE[node.type]


def _largest(graph: Any, node: Any, name: str, args: Any) -> None:  # noqa: ARG001  tf2onnx gives them
    """The largest values, which tf2onnx makes float32 first: close doubles would come in another order."""
    from onnx import TensorProto  # noqa: PLC0415

    number = graph.make_node("Unsqueeze", [_as_int64(graph, node.input[1]), _constant(graph, [0])]).output[0]
    data, (values, places), dtypes, shapes = node.input[0], node.output, node.output_dtypes, node.output_shapes
    graph.remove_node(node.name)
    top = graph.make_node("TopK", [data, number], output_count=2, dtypes=[dtypes[0], TensorProto.INT64]).output
    graph.make_node("Identity", [top[0]], outputs=[values], dtypes=dtypes[:1], shapes=shapes[:1])
    graph.make_node("Cast", [top[1]], outputs=[places], attr={"to": dtypes[1]}, dtypes=dtypes[1:], shapes=shapes[1:])


_ALIKE = {"SelectV2": "Where", "Log": "Log", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual"}
_HANDLERS = {"UnsortedSegmentSum": _segment_sum, "TopKV2": _largest, **dict.fromkeys(_ALIKE, _alike)}


def _as_int64(graph: Any, tensor: str) -> str:
    from onnx import TensorProto  # noqa: PLC0415

    if graph.get_dtype(tensor) == TensorProto.INT64:
        return tensor
    output: str = graph.make_node("Cast", [tensor], attr={"to": TensorProto.INT64}).output[0]
    return output


def _constant(graph: Any, value: Any, dtype: Any = None) -> str:
    from tf2onnx import utils  # noqa: PLC0415

    kind = np.int64 if dtype is None else utils.map_onnx_to_numpy_type(dtype)
    tensor: str = graph.make_const(utils.make_name("constant"), np.array(value, kind)).output[0]
    return tensor


def _shorten(graph: Any, outside: Mapping[str, Any]) -> None:
    """Take columns, limit numbers by one operation each; leave out slices of everything. In the bodies of loops too.

    `outside` are the small constants of the graphs around this one.
    """
    from onnx import helper, numpy_helper  # noqa: PLC0415

    small = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer if np.prod(tensor.dims) <= 4}
    constants = {**outside, **small}
    made = {output: node for node in graph.node for output in node.output}
    indices: dict[int, str] = {}
    for body in _bodies(graph):
        _shorten(body, constants)
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


def _bodies(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield from (attribute.g for attribute in node.attribute if attribute.HasField("g"))


def _take_from_around(graph: Any) -> None:
    """Let the bodies of loops take what no iteration changes from the graph around them, or have it as a constant.

    In TensorFlow weights are handed from one iteration to the next; ONNX Runtime would take them for variables.
    """
    renamed: dict[str, str] = {}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        for body in (attribute.g for attribute in node.attribute if attribute.HasField("g") and node.op_type == "Loop"):
            same = {each.output[0]: each.input[0] for each in body.node if each.op_type == "Identity"}
            for state in range(len(node.input) - 1, 1, -1):  # the first two inputs of both count and go on
                inside, given = body.input[state].name, body.output[state - 1].name
                if same.get(given, given) == inside:
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
    """Let operations take other `names`, here and in the bodies of loops."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    for body in _bodies(graph):
        _rename(body, names)


def _join_constants(graph: Any) -> None:
    """Let equal constants of a graph be one: then ONNX Runtime sees which operations are the same, and runs one."""
    from onnx import numpy_helper  # noqa: PLC0415

    known: dict[Any, str] = {}
    names = {}
    for tensor in graph.initializer:
        held = tensor.data_type, tuple(tensor.dims), numpy_helper.to_array(tensor).tobytes()
        names[tensor.name] = known.setdefault(held, tensor.name)
    _rename(graph, names)
    for body in _bodies(graph):
        _join_constants(body)


def _used(graph: Any) -> set[str]:
    """The names that operations take, here and in the bodies of loops, and that graphs give."""
    own = {name for node in graph.node for name in node.input} | {tensor.name for tensor in graph.output}
    return own.union(*map(_used, _bodies(graph)))


def _drop_unused(graph: Any, used: set[str]) -> None:
    """Leave out slices, minima and constants whose names are not among the `used` ones."""
    for body in _bodies(graph):
        _drop_unused(body, used)
    nodes = [node for node in graph.node if node.op_type not in ("Slice", "Min") or node.output[0] in used]
    left = set().union(
        *(node.input for node in nodes), *map(_used, _bodies(graph)), (tensor.name for tensor in graph.output)
    )
    constants = [tensor for tensor in graph.initializer if tensor.name in left]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)


def _cuts(node: Any, constants: Mapping[str, Any]) -> dict[int, list[int]] | None:
    """Start, end and step of a slice, by axis; None where one is no constant. Steps are 1 unless they are given."""
    if any(name not in constants for name in node.input[1:]):
        return None
    starts, ends, axes, *steps = (constants[name].tolist() for name in node.input[1:])
    every = steps[0] if steps else [1] * len(axes)
    return {axis: cut for axis, *cut in zip(axes, starts, ends, every, strict=True)}


def _of_everything(cuts: Mapping[int, list[int]] | None) -> bool:
    """Whether a slice takes everything."""
    return cuts is not None and all(start == 0 and end >= _LAST and step == 1 for start, end, step in cuts.values())


def _column(slicing: Any, squeeze: Any, constants: Mapping[str, Any]) -> tuple[int, int] | None:
    """The axis and the index, where the two operations take what has one index of an axis."""
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
    """The names of the lowest and the highest number, where the two operations limit numbers to what is between."""
    if highest.op_type != "Min" or len(lowest.input) != 2 or len(highest.input) != 2:
        return None
    low, high = lowest.input[1], highest.input[1]
    return [low, high] if all(name in constants and constants[name].ndim == 0 for name in (low, high)) else None
