"""A trained model as one ONNX file, for programs without Python: onnxruntime, Geant4's fast simulation."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
import tf2onnx

from calopipe import storage
from calopipe.errors import InputError
from calopipe.showers.cells import REFERENCE_UNIT_GEV
from training.generation import Generator, allowed

OPSET = 18  # the first whose operations on the bits of integers suffice, and the last that tf2onnx writes
IDENTITY, CARD = "calopipe_export", "calopipe_card"  # names of its metadata, JSON both


def write_onnx(model: Path, output: Path, identity: dict[str, Any]) -> None:
    """Write the model in folder `model` to the file `output`, whole or not at all.

    Inputs are `energy_gev` (N,), `theta_rad` (N,) and `noise` (N, numbers), uniform in [0, 1): a shower is a function
    of its row of them alone. The output is `cells_gev` (N, x, y, layer), in GeV. All are float32. A shower with a label
    outside of the model's valid range is NaN: ONNX has no errors.

    Its metadata hold `identity` and the model's card. An export of the same model is left as it is; anything else that
    stands at `output` raises InputError.
    """
    if output.exists():
        _require_same(output, identity)
        print(f"export stands: {output}; nothing to do")
        return
    storage.require_writable(output.parent)
    generator = Generator(model)
    labels = tf.TensorSpec([None], tf.float32)
    noise = tf.TensorSpec([None, generator.noise_numbers], tf.float32)

    @tf.function(input_signature=[labels, labels, noise], autograph=False)
    def generate(energy_gev: tf.Tensor, theta_rad: tf.Tensor, noise: tf.Tensor) -> dict[str, tf.Tensor]:
        card = generator.card
        inside = _inside(energy_gev, card.energy_gev) & _inside(theta_rad, card.theta_rad)
        # valid labels, so that what is refused costs no more than another; `where` alone would let NaN through, for
        # tf2onnx makes products and a sum of it, but not where it is told of NaN
        energy, theta = (
            tf.clip_by_value(tf.where(tf.math.is_nan(values), np.float32(bounds[0]), values), *allowed(bounds))
            for values, bounds in ((energy_gev, card.energy_gev), (theta_rad, card.theta_rad))
        )
        cells = generator.cells_of_noise(energy, theta, noise) * REFERENCE_UNIT_GEV
        return {"cells_gev": tf.where(inside[:, None, None, None], cells, np.float32(np.nan))}

    logging.getLogger("tf2onnx").setLevel(logging.WARNING)
    # else it copies the graph before each of its optimisations, which takes minutes
    os.environ.setdefault("TF2ONNX_CATCH_ERRORS", "FALSE")
    graph, _ = tf2onnx.convert.from_function(generate, generate.input_signature, opset=OPSET)
    onnx.helper.set_model_props(graph, {IDENTITY: json.dumps(identity), CARD: json.dumps(generator.card.to_json())})
    onnx.checker.check_model(graph)
    with storage.replacing(output) as temporary:
        temporary.write_bytes(graph.SerializeToString())
    print(f"export: {output}")


def _inside(values: tf.Tensor, bounds: tuple[float, float]) -> tf.Tensor:
    low, high = allowed(bounds)
    return (values >= low) & (values <= high)


def _require_same(output: Path, identity: dict[str, Any]) -> None:
    """Raise InputError unless `output` is an export that `identity` names."""
    hint = "give another --output, or remove it"
    try:
        found = {each.key: each.value for each in onnx.load(output, load_external_data=False).metadata_props}
        same = json.loads(found[IDENTITY]) == identity
    except Exception:  # whatever protobuf says of a file of another kind
        raise InputError(f"{output}: not an export of a model, and one would take its place; {hint}") from None
    if not same:
        raise InputError(f"{output}: the export of another model, or by another version of calopipe; {hint}")
