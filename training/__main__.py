"""Command line of training: `python -m training --help`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from preprocessing import storage
from preprocessing.errors import CommandParser, InputError, run_command
from preprocessing.options import add_bad_event, add_cut, add_geometry, add_split, add_split_file
from preprocessing.splits import SplitRule
from training.configs import CONFIGS, STRATEGIES, named_config

_EXAMPLES = """
examples:
  python -m training fit --dataset runs/dataset --output runs/model
  python -m training fit --dataset runs/dataset --output runs/reference --config 3dgan --strategy mirrored
  python -m training generate --model runs/model --like 'data/geant4/*.h5' --split test --output runs/generated.h5
  python -m training export --model runs/model --output runs/saved_model
"""

_BATCH = 32  # as `training.generation.DEFAULT_BATCH`, which to import takes TensorFlow


def parser() -> argparse.ArgumentParser:
    command = CommandParser(
        prog="python -m training",
        description="Train a generative model of showers on a dataset, generate showers from it, and export it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tasks = command.add_subparsers(dest="task", required=True)

    fit = tasks.add_parser("fit", help="train a model", description="Train a model on the train split of a dataset.")
    fit.add_argument("--dataset", required=True, metavar="DIR", help="folder or gs:// address that preprocessing wrote")
    fit.add_argument("--output", required=True, metavar="DIR", help="model folder; goes on where it stopped")
    fit.add_argument(
        "--config", default="quick", metavar="NAME",
        help="; ".join(f"{name}: {c.model}, batch {c.batch}, {c.epochs} epochs" for name, c in CONFIGS.items())
        + " (default %(default)s)",
    )  # fmt: skip
    fit.add_argument("--epochs", type=int, metavar="N", help="passes over the train split")
    fit.add_argument("--steps", type=int, metavar="N", help="end after N steps, if the epochs have not ended before")
    fit.add_argument("--batch", type=int, metavar="N", help="showers a replica and step")
    fit.add_argument("--learning-rate", type=float, metavar="X", help="of RMSprop")
    fit.add_argument("--strategy", metavar="NAME", help=f"{', '.join(STRATEGIES)} (default one-device)")
    fit.add_argument("--seed", type=int, metavar="N", help="of weights, order and noise (default 1)")
    fit.add_argument("--cache", action="store_true", help="hold the train split's records in memory, read once")
    fit.add_argument("--overwrite", action="store_true", help="replace a model of another dataset or config")

    generate = tasks.add_parser(
        "generate", help="make showers", description="Generate showers with the energies and angles of given files."
    )
    generate.add_argument("--model", required=True, metavar="DIR", help="folder that fit wrote")
    generate.add_argument("--like", nargs="+", required=True, metavar="FILE", help="HDF5 files, or patterns of them")
    add_split(generate, "whose labels")
    generate.add_argument("--per-event", type=int, default=1, metavar="N", help="showers for each event (default 1)")
    generate.add_argument("--output", required=True, metavar="FILE.h5", help="file of the showers")
    generate.add_argument("--seed", type=int, default=1, metavar="N", help="of the noise (default 1)")
    generate.add_argument(
        "--batch", type=int, default=_BATCH, metavar="N",
        help="showers made at a time; changes none of them (default %(default)s)",
    )  # fmt: skip
    add_split_file(generate)
    add_geometry(generate)
    add_bad_event(generate)
    add_cut(generate)

    export = tasks.add_parser(
        "export", help="write a SavedModel", description="Write a TensorFlow SavedModel that generates showers in GeV."
    )
    export.add_argument("--model", required=True, metavar="DIR", help="folder that fit wrote")
    export.add_argument("--output", required=True, metavar="DIR", help="folder of the SavedModel")
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    output = storage.on_disk(options.output, "--output")
    # TensorFlow is loaded only now, so that --help and bad options answer at once; it tells of every CPU feature it
    # was built with unless it is asked not to.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.task == "fit":
        config = named_config(
            options.config,
            epochs=options.epochs,
            steps=options.steps,
            batch=options.batch,
            learning_rate=options.learning_rate,
            strategy=options.strategy,
            seed=options.seed,
        )
        from training.fit import fit  # noqa: PLC0415

        dataset = storage.location(options.dataset)
        card = fit(dataset, output, config, overwrite=options.overwrite, cache=options.cache)
        losses = ", ".join(f"{name} {value:.4g}" for name, value in card.losses.items())
        print(f"{card.trained['steps']} steps; on the validation split: {losses or 'no showers'}")
        print(f"model: {output}")
    elif options.task == "generate":
        if output.suffix not in {".h5", ".hdf5"}:
            raise InputError(f"--output {output}: expected a name that ends in .h5")
        like = storage.expand(options.like)
        from training.generation import generate  # noqa: PLC0415

        showers = generate(
            storage.on_disk(options.model, "--model"),
            like,
            output,
            split=options.split,
            rule=SplitRule.parse(options.split_file),
            per_event=options.per_event,
            seed=options.seed,
            batch=options.batch,
            cut_gev=options.cut_gev,
            geometry=options.geometry,
            bad_event=options.on_bad_event,
        )
        print(f"{showers} showers: {output}")
    else:
        from training.export import export  # noqa: PLC0415

        export(storage.on_disk(options.model, "--model"), output)


if __name__ == "__main__":
    run_command(main)
