"""A TensorFlow function as an ONNX graph: made by tf2onnx, with some operations replaced by ones that are faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from training.onnx.passes import shorten

_OPSET = 18  # of ONNX: the first with the necessary operations on bits of integers, and the last that tf2onnx writes


def converted(function: Any) -> Any:
    """The ONNX model of the tf.function `function`, which has an input signature and returns a dictionary."""
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
                graph, continue_on_error=True, opset=_OPSET, input_names=inputs, output_names=outputs,
                tensors_to_rename=convert.tensor_names_from_structed(concrete, inputs, outputs),
                custom_op_handlers={name: (handler, []) for name, handler in _HANDLERS.items()},
            )  # fmt: skip
    # tf2onnx's other optimizers take four times as long as all else; ONNX Runtime does the same when it loads a file
    folded = optimizer.optimize_graph(made, catch_errors=False, optimizers={"fold_constants": ConstFoldOptimizer})
    model = folded.make_model("calopipe")
    shorten(model)
    return model


def _segment_sum(graph: Any, node: Any, name: str, args: Any) -> None:  # noqa: ARG001  tf2onnx gives them
    """Sums of segments by scattering; tf2onnx would sort the rows and gather them into a table."""
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
    """One operation. tf2onnx makes several: casts for older ONNX; or products and their sum, which let NaN through."""
    node.type = _ALIKE[node.type]


def _largest(graph: Any, node: Any, name: str, args: Any) -> None:  # noqa: ARG001  tf2onnx gives them
    """The largest values. tf2onnx would first make them float32, which changes the order of close doubles."""
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
