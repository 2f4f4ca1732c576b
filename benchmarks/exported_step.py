"""Writes a training step, or a generation, as StableHLO, for an accelerator on a machine without TensorFlow.

    python benchmarks/exported_step.py --config 3dgan --batch 64 --precision tf32 --output DIR [--compare 3]
    python benchmarks/exported_step.py --model runs/demo/model --batch 1000 --output DIR [--compare 1]

The step is the engine's own, with all phases and optimizers. XLA compiles it as on a GPU: networks have the forms for
GPUs, and the input is lists of hits. `accelerator.py` runs the step with JAX, which has the same compiler. With
`--compare N` the folder also has what XLA computes here in N calls.

DIR holds program.mlir.gz (StableHLO of arguments, then variables), about.json, and NumPy arrays: the arguments of each
call, the variables before the first call, the result of each call, and the variables after the last call.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from calopipe.errors import run_command
from preprocessing.dataset import read_manifest
from preprocessing.pipeline import preprocess
from preprocessing.reading import TrainingSplit
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from training.configs import named_config
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.generation.generator import Generator
from training.models import precision
from training.models.gan import convolutions

_WRITES = {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"}
_KEPT_BYTES = 1e8  # larger sets of variables are left out: to time calls, any numbers serve
Call = Sequence[tf.Tensor]


@contextmanager
def forms(name: str) -> Iterator[None]:
    """Layers that are made in the block have the forms called `name`: those for GPUs, for TPUs, or the textbook's."""
    for module in (precision, convolutions):
        module.on_processors = lambda: False  # type: ignore[attr-defined]
        module.on_tpus = lambda: name == "tpu"  # type: ignore[attr-defined]
    with precision.plain_forms() if name == "plain" else nullcontext():
        yield


def stablehlo_of(
    compiled: Any, specs: Sequence[tf.TensorSpec]
) -> tuple[bytes, list[tf.Variable], list[int], list[Any]]:
    """The zipped StableHLO of a function of tensors like `specs`, and then of the variables that it reads.

    Also returns these variables, the numbers of the variables that it changes, and shape and type of its result.
    """
    graph = compiled.get_concrete_function(*specs).graph
    handles = {id(each.handle): each for each in graph.variables}
    variables = [handles[id(outer)] for outer, _ in graph.captures]
    written = {op.inputs[0].ref() for op in graph.get_operations() if op.type in _WRITES}
    changed = [number for number, (_, inner) in enumerate(graph.captures) if inner.ref() in written]
    with warnings.catch_warnings():  # about the name of a device, which variables need
        warnings.simplefilter("ignore")
        program = compiled.experimental_get_compiler_ir(*specs)(
            stage="stablehlo_serialized", device_name="/device:CPU:0"
        )
    (result,) = graph.outputs
    return gzip.compress(program), variables, changed, [list(result.shape), result.dtype.name]


def export(function: Callable[..., tf.Tensor], calls: Sequence[Call], output: Path, *, compared: int) -> None:
    """Write `function` and the tensors of each of `calls`, and the results of the first `compared` calls, in order."""
    specs = [tf.TensorSpec(value.shape, value.dtype) for value in calls[0]]
    compiled = tf.function(function, jit_compile=True, autograph=False)
    program, variables, changed, result = stablehlo_of(compiled, specs)
    about = {
        "arguments": len(specs),
        "showers": int(specs[0].shape[0]),
        "changed": changed,
        "result": result,
        "variables": [[each.name, list(each.shape), each.dtype.name] for each in variables],
    }
    output.mkdir(parents=True, exist_ok=True)
    (output / "about.json").write_text(json.dumps(about))
    (output / "program.mlir.gz").write_bytes(program)
    _write(output / "calls.npz", [value.numpy() for call in calls for value in call])
    if sum(each.dtype.size * math.prod(each.shape) for each in variables) < _KEPT_BYTES:
        _write(output / "before.npz", [each.numpy() for each in variables])
    _write(output / "results.npz", [compiled(*call).numpy() for call in calls[:compared]])
    _write(output / "after.npz", [variables[number].numpy() for number in changed] if compared else [])


def _write(file: Path, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    named: dict[str, Any] = {f"{number:04}": array for number, array in enumerate(arrays)}
    np.savez_compressed(file, **named)


def step_of(engine: Engine, split: TrainingSplit, number: int) -> tuple[Callable[..., tf.Tensor], list[Call]]:
    """The training step of `engine` as a function of tensors, and the batches of `number` steps."""
    batches = list(split.batches(batch=engine.config.batch, seed=engine.config.seed).take(number))
    names = sorted(batches[0])

    def step(*batch: tf.Tensor) -> tf.Tensor:
        return engine.step_on(dict(zip(names, batch, strict=True)), tf.constant(0.0))

    return step, [[batch[name] for name in names] for batch in batches]


def generation_of(model: Path, batch: int, number: int) -> tuple[Callable[..., tf.Tensor], list[Call]]:
    """The generation of the model in a folder as a function of tensors, and the labels of `number` batches."""
    generator = Generator(model, batch)
    limits = generator.card.valid_range
    energy, theta = (
        tf.linspace(*(np.float32(end) for end in limits[name]), batch) for name in ("energy_gev", "theta_rad")
    )
    first = [tf.constant(batch * turn, tf.int64) for turn in range(number)]

    def made(energy_gev: tf.Tensor, theta_rad: tf.Tensor, seed: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
        return generator.cells({"energy_gev": energy_gev, "theta_rad": theta_rad}, seed, first)

    return made, [[energy, theta, tf.constant(1), each] for each in first]


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", metavar="NAME", help="of a training")
    what.add_argument("--model", type=Path, metavar="DIR", help="which generates")
    command.add_argument("--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB", help="of a training")
    command.add_argument("--dataset", type=Path, metavar="DIR", help="in place of --input")
    command.add_argument("--batch", type=int, metavar="N", required=True, help="showers a call")
    command.add_argument("--precision", default="float32", metavar="NAME", help="of a training (default %(default)s)")
    command.add_argument(
        "--compare", type=int, default=0, metavar="N", help="calls that are computed here (default none)"
    )
    command.add_argument("--forms", choices=("gpu", "tpu", "plain"), default="gpu", help="of layers (default gpu)")
    command.add_argument("--output", type=Path, required=True, metavar="DIR")
    options = command.parse_args()
    calls = max(options.compare, 1)
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
        if options.model:
            with forms(options.forms):
                function, labels = generation_of(options.model, options.batch, calls)
            export(function, labels, options.output, compared=options.compare)
            return
        if (dataset := options.dataset) is None:
            dataset = Path(place) / "ds"
            preprocess(discover(options.input), dataset, Settings())
        manifest = read_manifest(dataset)
        config = named_config(options.config, batch=options.batch, precision=options.precision)
        # phases are not compiled one by one, so that the whole step is one program
        with forms(options.forms):
            engine = Engine(config, dataset, manifest, make_strategy("one-device"), compiled=False)
        split = TrainingSplit(dataset, manifest, decode=engine.model.decode, static=True)
        export(*step_of(engine, split, calls), options.output, compared=options.compare)


if __name__ == "__main__":
    run_command(main)
