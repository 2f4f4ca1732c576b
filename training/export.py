"""A trained model as a TensorFlow SavedModel, for programs that hold nothing of this one."""

from __future__ import annotations

import errno
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

import tensorflow as tf

from calopipe import storage
from calopipe.errors import InputError
from calopipe.showers.cells import REFERENCE_UNIT_GEV
from training import folder
from training.generation import Generator, allowed

CARD = "assets.extra/card.json"  # where TensorFlow lets others put files beside a SavedModel
_KIND = "calopipe.export"
_SCHEMA_VERSION = 1


def export(model: Path, output: Path) -> None:
    """Write the model in folder `model` to `output`: an ONNX file if its name ends in .onnx, else a SavedModel.

    What an ONNX file takes and gives is said in `training.onnx_export`. A SavedModel is written whole or not at all.

    Its one signature, `serving_default`, takes `energy_gev` (N,) float32, `theta_rad` (N,) float32 and `seed` () int32
    and gives `cells_gev` (N, x, y, layer) float32, in GeV: the showers that `training.generation` makes of the same
    seed and labels. All N are made at once, so memory bounds N. It refuses labels outside the model's valid range with
    InvalidArgumentError.

    The program that loads it decides whether GPUs round products: TensorFlow lets them, unless
    `tf.config.experimental.enable_tensor_float_32_execution(False)` is called.

    `assets.extra/card.json` holds the fingerprint of the model (`model`) and its card as the model folder has it
    (`card`), with the valid range and the geometry. The geometry's `file_unit_gev` is the training's; the signature's
    unit is `cells_unit_gev`, 1.

    An export of the same model is left as it is. Anything else that stands at `output` raises InputError.
    """
    card = folder.read_card(model)
    identity = {
        "kind": _KIND,
        "schema_version": _SCHEMA_VERSION,
        "calopipe": metadata.version("calopipe"),
        "model": card.fingerprint(),
        "cells_unit_gev": 1.0,
    }
    if output.suffix == ".onnx":
        from training.onnx_export import write_onnx  # noqa: PLC0415  loads a converter that nothing else needs

        write_onnx(model, output, identity)
        return
    if output.exists():
        _require_same(output, identity)
        print(f"export stands: {output}; nothing to do")
        return
    storage.require_writable(output.parent)
    whole = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}."))
    try:
        serving = _Serving(Generator(model))
        tf.saved_model.save(serving, str(whole), signatures={"serving_default": serving.generate})
        storage.write_json(whole / CARD, identity | {"card": card.to_json()})
        whole.chmod(0o755)
        whole.rename(output)
    except tf.errors.ResourceExhaustedError as error:  # TensorFlow's word for a full disk
        raise OSError(errno.ENOSPC, str(error.message), str(output)) from None
    finally:
        shutil.rmtree(whole, ignore_errors=True)
    print(f"export: {output}")


class _Serving(tf.Module):
    """What is saved: the signature's function, and the weights it reads."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        labels = tf.TensorSpec([None], tf.float32)

        @tf.function(input_signature=[labels, labels, tf.TensorSpec([], tf.int32)])
        def generate(energy_gev: tf.Tensor, theta_rad: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
            _require_inside("energy_gev", energy_gev, generator.card.energy_gev, "GeV")
            _require_inside("theta_rad", theta_rad, generator.card.theta_rad, "rad")
            cells = generator.cells(energy_gev, theta_rad, seed, tf.constant(0, tf.int64))
            return {"cells_gev": cells * REFERENCE_UNIT_GEV}

        self.generate = generate
        self.weights = generate.get_concrete_function().variables  # not the discriminator's


def _require_inside(name: str, values: tf.Tensor, bounds: tuple[float, float], unit: str) -> None:
    """Make the graph fail unless all of `values` (N,) are inside `bounds`; of those that are not, it tells three."""
    low, high = allowed(bounds)
    inside = (values >= low) & (values <= high)
    reason = f"the model is valid for {name} from {bounds[0]:g} to {bounds[1]:g} {unit}; leave others out, found:"
    tf.debugging.Assert(tf.reduce_all(inside), [reason, tf.boolean_mask(values, ~inside)], summarize=3)


def _require_same(output: Path, identity: dict[str, object]) -> None:
    """Raise InputError unless `output` is an export that `identity` names."""
    hint = "give another --output, or remove it"
    try:
        found = storage.read_json(output / CARD, kind=_KIND, schema_version=_SCHEMA_VERSION)
    except (storage.DocumentError, NotADirectoryError):
        raise InputError(f"{output}: not an export of a model, and one would take its place; {hint}") from None
    if not identity.items() <= found.items():  # the card also tells how long the training took
        raise InputError(f"{output}: the export of another model, or by another version of calopipe; {hint}")
