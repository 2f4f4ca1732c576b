"""Command line of training: `python -m training --help`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

from calopipe import storage
from calopipe.errors import InputError, run_command
from calopipe.mirror import mirrored, mirrored_file
from calopipe.options import CommandParser, add_settings, given_values, settings_of
from training.calochallenge import commands as challenge
from training.configs import RunOptions, add_config, config_of
from training.estimate import commands as estimates
from training.generation import commands as showers
from training.model_folder import model_on_disk
from training.models.source import ModelFile, offered
from training.nodes.workers import Cluster
from training.quiet_tensorflow import quiet_tensorflow
from training.registry import commands as promotions
from training.rollout import commands as flows

_EXAMPLES = """
examples:
  python -m training fit --dataset runs/dataset --output runs/model
  python -m training fit --dataset runs/dataset --output runs/two --strategy mirrored --average 0.999
  python -m training fit --dataset runs/flow/dataset --output runs/images --model-file examples/progressive_gan.py
  python -m training generate --model runs/model --like 'data/geant4/*.h5' --split test --output runs/generated.h5
  python -m training generate --model runs/model --energy 120 --theta 90 --showers 1000 --output runs/generated.h5
  python -m training keep --dataset runs/dataset --output runs/model
  python -m training export --model runs/model --output runs/saved_model
  python -m training export --model runs/model --output runs/model.onnx
  python -m training export --model runs/model --output runs/model.safetensors
  python -m training estimate --config 3dgan --showers 178600 --devices v100:2 v100:128 tpu-v3:128
  python -m training discriminate --reference geant4.h5 --candidate generated.h5 --output classifier.json
  python -m training rollout --model runs/flow --start data/vortex/vortex_80_03.h5:0 --steps 40 --output runs/flow.h5
  python -m training promotions --registry runs/demo/registry
  python -m training rollback --registry runs/demo/registry
  python -m training regrade --registry runs/demo/registry --grade gan
"""


def parser() -> argparse.ArgumentParser:
    command = CommandParser(
        prog="python -m training",
        description="Train a generative model of showers on a dataset, generate showers from it, and export it.",
        epilog=_EXAMPLES,
    )
    tasks = command.add_subparsers(dest="task", required=True)

    fit = tasks.add_parser("fit", help="train a model", description="Train a model on the train split of a dataset.")
    fit.add_argument("--dataset", required=True, metavar="DIR", help="folder or gs:// address that preprocessing wrote")
    fit.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="model folder, or a gs:// address; a training that stopped is resumed",
    )
    trained = add_config(fit)
    trained.add_argument("--warm-start", metavar="DIR", help="begin with the weights of the model there")
    run = fit.add_argument_group("how it is run (the weights are the same)")
    add_settings(run, settings_of(RunOptions))
    run.add_argument("--overwrite", action="store_true", help="replace a model of another dataset or config")
    _add_workers(fit)
    fit.set_defaults(perform=_fit)

    keep = tasks.add_parser(
        "keep",
        help="make a model of a training that ended early",
        description="Make a model of the best epoch of a training that was stopped, or failed, before its end.",
    )
    keep.add_argument("--dataset", required=True, metavar="DIR", help="that of the training")
    keep.add_argument("--output", required=True, metavar="DIR", help="its model folder")
    _add_model_file(keep)
    keep.set_defaults(perform=_keep)

    showers.add_to(tasks)
    challenge.add_to(tasks)
    estimates.add_to(tasks)
    promotions.add_to(tasks)
    flows.add_to(tasks)

    export = tasks.add_parser(
        "export",
        help="write a SavedModel, an ONNX file or a file for Geant4",
        description="Write a TensorFlow SavedModel or an ONNX file that generates showers in GeV, or all numbers of a "
        "likelihood model for the library in geant4/.",
    )
    export.add_argument("--model", required=True, metavar="DIR", help="folder that fit wrote")
    export.add_argument(
        "--output", required=True, metavar="DIR", help="folder of the SavedModel, FILE.onnx, or FILE.safetensors"
    )
    export.set_defaults(perform=_export)
    for name in ("generate", "export", "rollout"):
        _add_model_file(tasks.choices[name])
    return command


def _add_model_file(task: argparse.ArgumentParser) -> None:
    task.add_argument(
        "--model-file",
        metavar="FILE.py",
        help="the file that states a model of your own; needed only for a model on gs://: a folder on disk holds it",
    )


def _add_workers(fit: argparse.ArgumentParser) -> None:
    group = fit.add_argument_group("where it is run (TF_CONFIG may name the workers instead)")
    group.add_argument("--hosts", default="", metavar="HOST:PORT,...", help="all workers, the same list on each")
    group.add_argument(
        "--worker",
        type=int,
        metavar="I",
        help="which of the hosts this is, from 0 (default: JOB_COMPLETION_INDEX, set in indexed pods)",
    )


def _fit(options: argparse.Namespace) -> None:
    cluster = Cluster.of_process([host for host in options.hosts.split(",") if host], options.worker)
    if options.strategy is None and cluster:
        options.strategy = "multi-worker"
    config = config_of(options)
    running = RunOptions(**given_values(RunOptions, options))
    if cluster and config.strategy != "multi-worker":
        raise InputError(
            f"--strategy {config.strategy} is for one process, and several workers are named; leave it out"
        )
    if cluster is not None:
        os.environ |= cluster.to_environment()
    earlier = (
        mirrored(storage.location(options.warm_start), "*", writes=False)
        if options.warm_start is not None
        else nullcontext()
    )
    with mirrored(storage.location(options.output), "**") as output, earlier as warm_start:
        from training.fit import fit  # noqa: PLC0415

        card = fit(
            storage.location(options.dataset), output, config, running,
            overwrite=options.overwrite, warm_start=warm_start, cluster=cluster,
        )  # fmt: skip
    print(card.summary())
    print(f"model: {options.output}")


def main(arguments: Sequence[str] | None = None) -> None:
    given_arguments = sys.argv[1:] if arguments is None else arguments
    with offered(_model_file(given_arguments)):  # the file's configs and settings become options
        options = _parsed(given_arguments)
        quiet_tensorflow()  # only `perform` loads TensorFlow, so --help and bad options answer at once
        options.perform(options)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    try:
        return parser().parse_args(arguments)
    except argparse.ArgumentError as error:  # a setting of the file has the name of an option
        raise InputError(f"--model-file: {error}; give the setting another name") from None


def _model_file(arguments: Sequence[str]) -> ModelFile | None:
    first_pass = CommandParser(prog="python -m training", add_help=False)
    first_pass.add_argument("--model-file")
    place = first_pass.parse_known_args(arguments)[0].model_file
    if place is None:
        return None
    quiet_tensorflow()  # the file may import TensorFlow
    return ModelFile.read(storage.location(place))


def _keep(options: argparse.Namespace) -> None:
    from training.best_model import keep  # noqa: PLC0415

    with mirrored(storage.location(options.output), "**") as folder:
        card = keep(storage.location(options.dataset), folder)
    print(f"model: {options.output}, of step {card.trained['chosen_step']}")


def _export(options: argparse.Namespace) -> None:
    from training.export import export  # noqa: PLC0415

    with model_on_disk(options.model) as model, mirrored_file(storage.location(options.output)) as output:
        export(model, output)


command = partial(run_command, main)  # the console script


if __name__ == "__main__":
    command()
