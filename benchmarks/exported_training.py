"""Whole trainings of the likelihood model on an accelerator of a machine without TensorFlow.

    python benchmarks/exported_training.py write --dataset DATASET --config standard --seeds 1 2 3 --output DIR
    python accelerator_training.py DIR --output RESULTS        (there)
    python benchmarks/exported_training.py models RESULTS/DIR/*.npz --dataset DATASET --output MODELS

`write` writes to DIR what the accelerator needs. These are, as StableHLO, the engine's own step, and the losses of an
evaluation without its generation; the weights that each seed begins with; and the showers of the train and validation
splits as lists of hits. Energies of hits are rounded, by at most 1e-5 of their value, so that there is less to copy.
`models` makes MODELS/SEED of the weights that come back: a model that can generate. Its card has no losses and times.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from exported_step import forms, stablehlo_of

from calopipe.errors import run_command
from preprocessing.dataset import read_manifest
from preprocessing.reading import ordered_batches
from training import model_folder
from training.best_model import write_model
from training.configs import FitConfig, named_config
from training.engine.exchange import averaged
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.models.base import build
from training.models.randomness import Draws
from training.run.checkpoints import Checkpoints
from training.run.evaluations import CHOSEN_BY
from training.run.evaluator import Evaluator
from training.seen_events import seen_after, write_seen

_EVALUATED = 32  # showers in a call of the losses
_SHOWERS_A_FILE = 4000
_DROPPED = np.uint32(0x7F)  # bits of an energy that are rounded away


def step_of(engine: Engine, names: Sequence[str]) -> Callable[..., tf.Tensor]:
    """The training step as a function of a seed and of a batch's tensors in the order of `names`."""

    def step(seed: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
        batch = dict(zip(names, tensors, strict=True))
        key = Draws.of(0, seed, engine._step).key
        engine.view_of = lambda batch: (engine.view(batch, key), key)  # type: ignore[method-assign]
        return engine.step_on(batch, tf.constant(0.0))

    return step


def losses_of(engine: Engine, names: Sequence[str]) -> Callable[..., tf.Tensor]:
    """The losses of a batch with this number, summed over its showers, as in an evaluation."""
    model: Any = engine.model
    model.generate = lambda *_: tf.zeros([1])  # losses need no showers

    def losses(number: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
        found, _ = model.evaluate(dict(zip(names, tensors, strict=True)), Draws.of(1, -1, number))
        return tf.stack([tf.reduce_sum(found[name]) for name in model.weights])

    return losses


def write(dataset: Path, config: FitConfig, seeds: Sequence[int], output: Path) -> None:
    """Write to `output` what `accelerator_training.py` needs."""
    manifest = read_manifest(dataset)
    output.mkdir(parents=True)
    with forms("gpu"):
        engine = Engine(config, dataset, manifest, make_strategy("one-device"), compiled=False)
    first = next(iter(ordered_batches(dataset, manifest, "train", batch=1, decode=engine.model.decode)))
    longest = max(manifest.most_hits[name] for name in ("train", CHOSEN_BY))
    names = sorted(first)
    state = engine.state()
    of_handle = {id(variable.handle): name for name, variable in engine._variables().items()}
    about = {
        "names": names,
        "hits": longest,
        "batch": config.batch,
        "evaluated": _EVALUATED,
        "steps": config.steps,
        "averages": _averages(engine.model),
        "shapes": {name: [list(array.shape), array.dtype.name] for name, array in state.items()},
    }
    functions = {"step": (step_of, config.batch), "losses": (losses_of, _EVALUATED)}
    for name, (make, showers) in functions.items():
        shapes = {key: [showers, longest] if key in {"cell", "value"} else [showers] for key in names}
        specs = [tf.TensorSpec(shapes[key], first[key].dtype) for key in names]
        compiled = tf.function(make(engine, names), jit_compile=True, autograph=False)
        program, variables, changed, result = stablehlo_of(compiled, [tf.TensorSpec([], tf.int32), *specs])
        (output / f"{name}.mlir.gz").write_bytes(program)
        about[f"{name}_program"] = {
            "variables": [of_handle[id(each.handle)] for each in variables],
            "changed": changed,
            "result": result,
        }
    (output / "about.json").write_text(json.dumps(about))
    constants = {name: array for name, array in state.items() if name.startswith("network/constants")}
    for seed in seeds:
        with forms("gpu"):
            model = build(replace(config, seed=seed), manifest.geometry, manifest.valid_range)
        weights = {name: weight.numpy() for name, weight in _weights(model).items()}
        np.savez_compressed(output / f"weights_{seed}.npz", **(weights | constants))
    for name in ("train", CHOSEN_BY):
        batches = ordered_batches(dataset, manifest, name, batch=_SHOWERS_A_FILE, decode=engine.model.decode)
        for number, batch in enumerate(batches):
            np.savez_compressed(output / f"{name}_{number:02}.npz", **_ragged(batch))


def _weights(model: Any) -> dict[str, Any]:
    """The weights of all networks by their names in a state."""
    return {
        f"network/{name}/{number}": weight
        for name, network in model.networks.items()
        for number, weight in enumerate(network.weights)
    }


def _averages(model: Any) -> dict[str, str]:
    """The names in a state of the weights that are averaged, each with the name of its average."""
    names = {id(weight): name for name, weight in _weights(model).items()}
    return {names[id(variable)]: f"average/{number}" for number, variable in enumerate(averaged(model))}


def _ragged(batch: Mapping[str, tf.Tensor]) -> dict[str, Any]:
    """The hits of all showers in one list, the `length` of each shower's part, and the labels."""
    cell, value = batch["cell"].numpy(), batch["value"].numpy()
    hit = cell >= 0
    bits = value[hit].view(np.uint32)
    labels = {name: tensor.numpy() for name, tensor in batch.items() if name not in {"cell", "value"}}
    rounded = ((bits + (_DROPPED + 1) // 2) & ~_DROPPED).view(np.float32)
    small = np.uint16 if cell.max() < 2**16 else np.int32
    return {"cell": cell[hit].astype(small), "value": rounded, "length": hit.sum(1).astype(np.int32), **labels}


def models(dataset: Path, config: FitConfig, results: Sequence[Path], output: Path) -> None:
    """Make a model of each of `results`, SEED.npz, which hold the averages of the weights at the best step."""
    manifest = read_manifest(dataset)
    engine = Engine(config, dataset, manifest, make_strategy("one-device"))
    state, places = engine.state(), _averages(engine.model)
    evaluator = Evaluator(config, dataset, manifest, CHOSEN_BY)
    for file in results:
        place = output / file.stem
        own = replace(config, seed=int(file.stem))
        evaluator.config = own
        found = dict(np.load(file))
        step = int(found.pop("step"))
        state |= found | {weight: found[average] for weight, average in places.items()} | {"step": np.int64(step)}
        request = model_folder.request_fingerprint(manifest, own, None)
        model_folder.begin(place, request, model_folder.noted(manifest.fingerprint, own, None), overwrite=True)
        write_seen(place, seen_after(dataset, manifest, None, None))
        checkpoints = Checkpoints(place / model_folder.CHECKPOINTS, request=request, kept=1)
        checkpoints.save(state, step=step, facts={"replicas": 1, "seconds": 0.0})
        evaluator.take_over(state)
        evaluation = evaluator.evaluate()
        checkpoints.mark(step, evaluator.score(evaluation))
        write_model(place, checkpoints, evaluator, request, steps=own.steps, warm_start=None)
        losses = " ".join(f"{name} {value:.2f}" for name, value in evaluation.losses.items())
        print(f"{place}: step {step}: {losses}", flush=True)


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = command.add_subparsers(dest="action", required=True)
    writes, makes = actions.add_parser("write"), actions.add_parser("models")
    for action in (writes, makes):
        action.add_argument("--dataset", type=Path, metavar="DIR", required=True)
        action.add_argument("--config", metavar="NAME", default="standard", help="default %(default)s")
        action.add_argument("--output", type=Path, metavar="DIR", required=True)
    writes.add_argument("--seeds", type=int, nargs="+", metavar="N", default=[1])
    makes.add_argument("results", type=Path, nargs="+", metavar="SEED.npz")
    options = command.parse_args()
    config = named_config(options.config)
    if options.action == "write":
        write(options.dataset, config, options.seeds, options.output)
    else:
        models(options.dataset, config, options.results, options.output)


if __name__ == "__main__":
    run_command(main)
