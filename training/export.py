"""A trained model as a SavedModel, an ONNX file or plain arrays, for programs that do not use this package."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import safetensors.numpy
import tensorflow as tf

from calopipe import storage
from calopipe.documents import Form, stands
from calopipe.errors import InputError
from calopipe.progress import say
from training.load_model import load_model
from training.model_folder import Card
from training.models.base import Model
from training.onnx.graph import converted

CARD = "assets.extra/card.json"  # in this folder TensorFlow allows other files in a SavedModel
IDENTITY, CARD_OF_FILE = "calopipe_export", "calopipe_card"  # names of a file's metadata; both are JSON
CHECKSUM = "calopipe_crc32"  # name of the metadata that has the checksum of the arrays
_FORM = Form("calopipe.export", 11)


def export(model: Path, output: Path) -> None:
    """Write the model in folder `model` to `output`: FILE.onnx, FILE.safetensors, or else a SavedModel.

    FILE.safetensors is for the library in `geant4/`. Each export is written whole or not at all. The model's methods
    `serving` (SavedModel) and `onnx` say what an export takes and returns, `arrays` what FILE.safetensors holds. For
    models that generate showers, see `training.models.showers`.

    The program that loads a SavedModel decides whether GPUs round products: TensorFlow lets them, unless
    `tf.config.experimental.enable_tensor_float_32_execution(False)` is called.

    `assets.extra/card.json`, or the metadata of a file, hold the fingerprint of the model (`model`) and the card of the
    model folder, with the valid range and the geometry. The geometry's `file_unit_gev` is that of the training's files;
    the unit of exported showers is `cells_unit_gev`, 1.

    An export of the same model is left as it is. Anything else at `output` raises InputError.
    """
    card, loaded = load_model(model)
    if output.exists():
        _require_same(output, _identity_in(output), _identity(loaded, card))
        stands("export stands", output)
        return
    storage.require_writable(output.parent)
    kinds = {".onnx": ("an ONNX graph", _write_onnx), ".safetensors": ("a file of arrays", _write_arrays)}
    kind, write = kinds.get(output.suffix, ("a SavedModel", _write_saved_model))
    write(loaded, card, output)
    say(f"export: {output}, {kind}")


def arrays_file(model: Model, card: Card) -> bytes:
    """The content of FILE.safetensors that `export` writes for a `model` with this `card`. InputError: it has none."""
    arrays, entries = dict(model.arrays()), _metadata(model, card)
    checksum = _checksum(safetensors.numpy.save(arrays))
    return safetensors.numpy.save(arrays, entries | {CHECKSUM: str(checksum)})


def _checksum(content: bytes) -> int:
    """CRC-32 of the arrays in a safetensors file, which come after its header."""
    return zlib.crc32(memoryview(content)[8 + int.from_bytes(content[:8], "little") :])


def _identity(model: Model, card: Card) -> dict[str, Any]:
    return _FORM.of({"calopipe": metadata.version("calopipe"), "model": card.fingerprint(), **model.exported})


def _write_saved_model(model: Model, card: Card, output: Path) -> None:
    whole = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}."))
    try:
        served = tf.Module()
        served.function = model.serving(card.valid_range)
        served.weights = served.function.get_concrete_function().variables  # without those that only training needs
        tf.saved_model.save(served, str(whole), signatures={"serving_default": served.function})
        described = whole / CARD  # not written by `storage`, which would tell a mirror of this temporary place
        described.parent.mkdir()
        described.write_text(
            json.dumps({**_identity(model, card), "card": card.to_json()}, indent=1, allow_nan=False) + "\n"
        )
        whole.chmod(0o755)
        whole.rename(output)
    except tf.errors.ResourceExhaustedError as error:  # TensorFlow's error for a full disk
        raise OSError(errno.ENOSPC, str(error.message), str(output)) from None
    finally:
        shutil.rmtree(whole, ignore_errors=True)


def _write_onnx(model: Model, card: Card, output: Path) -> None:
    import onnx  # noqa: PLC0415  nothing else needs it

    say("converting to ONNX, which takes half a minute")
    logging.getLogger("tf2onnx").setLevel(logging.WARNING)
    graph = converted(model.onnx(card.valid_range))
    name_batch(graph)
    onnx.helper.set_model_props(graph, _metadata(model, card))
    try:
        onnx.checker.check_model(graph)
    except onnx.checker.ValidationError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{output}: ONNX cannot say what the model computes ({reason}); export a SavedModel") from None
    with storage.replacing(output) as temporary:
        temporary.write_bytes(graph.SerializeToString())


def _write_arrays(model: Model, card: Card, output: Path) -> None:
    content = arrays_file(model, card)
    with storage.replacing(output) as temporary:
        temporary.write_bytes(content)


def _metadata(model: Model, card: Card) -> dict[str, str]:
    return {IDENTITY: json.dumps(_identity(model, card)), CARD_OF_FILE: json.dumps(card.to_json())}


def name_batch(model: Any) -> None:
    """Name the first dimension of inputs and outputs of the ONNX `model`, the number of showers, `batch`."""
    for entry in (*model.graph.input, *model.graph.output):
        first = entry.type.tensor_type.shape.dim[0]
        if not first.HasField("dim_value"):
            first.dim_param = "batch"


def _identity_in(output: Path) -> Any:
    """The identity that was written into the export `output`; None if `output` is not an export."""
    try:
        if output.suffix == ".onnx":
            import onnx  # noqa: PLC0415

            properties = onnx.load(output, load_external_data=False).metadata_props
            return json.loads({entry.key: entry.value for entry in properties}[IDENTITY])
        if output.suffix == ".safetensors":
            with safetensors.safe_open(output, framework="numpy") as arrays:
                entries = arrays.metadata()
            return json.loads(entries[IDENTITY]) | {"whole": entries[CHECKSUM] == str(_checksum(output.read_bytes()))}
        return _FORM.read(output / CARD)
    except PermissionError:
        raise
    except Exception:  # any error of a library about a file of another kind
        return None


def _require_same(output: Path, standing: Any, identity: Mapping[str, Any]) -> None:
    """Raise InputError unless an export with the identity `standing` is the one that `identity` names."""
    hint = "give another --output, or remove it"
    if standing is None:
        raise InputError(f"{output}: exists, and is not an export of a model; {hint}")
    if not standing.get("whole", True):
        raise InputError(f"{output}: its arrays are not those that were written; {hint}")
    if not identity.items() <= standing.items():  # the card of a SavedModel has more fields
        raise InputError(f"{output}: the export of another model, or by another version of calopipe; {hint}")
