"""ONNX graphs of small functions give what NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from training.onnx_graph import converted


def test_doubles_are_sorted_as_doubles() -> None:
    """They differ by less than float32 knows: they are the order of the cells of many showers."""
    onnxruntime = pytest.importorskip("onnxruntime")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float64, "numbers")], autograph=False)
    def order(numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"order": tf.argsort(numbers)}

    model = converted(order, 18).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    numbers = 255 + np.random.default_rng(1).permutation(200) * 2.0**-30
    np.testing.assert_array_equal(session.run(["order"], {"numbers": numbers})[0], np.argsort(numbers))
