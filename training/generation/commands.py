"""The command that makes showers: `generate`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.splits import ALL
from calopipe.events.tolerance import SKIP, STOP
from calopipe.labels import PARTICLE, PHI
from calopipe.mirror import mirrored_file
from calopipe.options import CommandParser, given_values
from calopipe.showers.selection import Reading, Selection, add_selection
from training.configs import STRATEGIES
from training.model_folder import Card, model_on_disk, read_card

if TYPE_CHECKING:
    from training.generation.conditions import Conditions, LabelsAlone

_OF_FILES = ("dataset", "split_files", "geometry", "cut_gev", "on_bad_event")  # options for reading the files


def add_to(tasks: Any) -> None:
    """Add the command to `tasks`, of argparse."""
    generate = tasks.add_parser(
        "generate", help="make showers", description="Generate showers with the energies and angles of given files."
    )
    generate.set_defaults(perform=partial(_perform, generate))
    generate.add_argument("--model", required=True, metavar="DIR", help="folder that fit wrote")
    generate.add_argument(
        "--like", nargs="+", metavar="FILE", help="HDF5 files, or patterns of them; also of labels without cells"
    )
    generate.add_argument("--output", required=True, metavar="FILE.h5", help="file of the showers")
    add_selection(generate, "whose labels", cut_gev="that of the model")
    _add_options(generate)


def _add_options(generate: argparse.ArgumentParser) -> None:
    """Add options: how many showers are made, and how; and the labels of showers that are made without files."""
    generate.add_argument("--per-event", type=int, default=1, metavar="N", help="showers for each event (default 1)")
    generate.add_argument("--seed", type=int, default=1, metavar="N", help="of the noise (default 1)")
    generate.add_argument(
        "--batch",
        type=int,
        default=0,
        metavar="N",
        help="showers made at a time; changes none of them (default: as many as are made fastest, 128 MiB at most)",
    )
    generate.add_argument(
        "--strategy",
        default="one-device",
        choices=STRATEGIES,
        metavar="NAME",
        help="devices of this machine: one-device, mirrored for all GPUs, or tpu (default %(default)s)",
    )
    generate.add_argument(
        "--library",
        metavar="FILE.so",
        help="the C++ library libcalopipe_batches, built from geant4/: faster on processors, for likelihood models",
    )
    generate.add_argument(
        "--share",
        metavar="I/N",
        help="make only share I of N (I from 0), and no file; run once more without --share to write the file",
    )
    generate.add_argument(
        "--timing", metavar="FILE.json", help="also time batches of 1, 100 and 10,000 showers, which takes minutes"
    )
    generate.add_argument(
        "--outside",
        choices=(STOP, SKIP),
        default=STOP,
        help="what to do about labels outside the range of the training: stop, or leave them out (default %(default)s)",
    )
    labels = generate.add_argument_group(
        "in place of --like, showers that all have the same labels (default: the label that all training showers had)"
    )
    labels.add_argument("--energy", type=float, metavar="GEV", help="of the particle")
    labels.add_argument("--theta", type=float, metavar="DEGREES", help="90 is normal incidence")
    labels.add_argument("--phi", type=float, metavar="DEGREES", help="azimuth, where the model has it")
    labels.add_argument("--pdg", type=int, metavar="N", help="code of the particle, where the model has several")
    labels.add_argument("--showers", type=int, metavar="N", help="how many")


def _perform(command: CommandParser, options: argparse.Namespace) -> None:
    """Write the showers that `options` ask for to the output. InputError."""
    if options.like is None:
        command.refuse(options, _OF_FILES, "goes with --like")
    if not options.output.endswith((".h5", ".hdf5")):
        raise InputError(f"--output {options.output}: expected a name that ends in .h5")
    with model_on_disk(options.model) as model, mirrored_file(storage.location(options.output)) as output:
        from training.calochallenge.timing import time_generation  # noqa: PLC0415  TensorFlow
        from training.generation.generate import generate  # noqa: PLC0415
        from training.generation.part_files import Share  # noqa: PLC0415

        card = read_card(model)
        reading = Reading(**{"cut_gev": card.dataset["cut_gev"]} | given_values(Reading, options))
        conditions = _conditions(options, card, reading.selection(options.split))
        share = None if options.share is None else Share.parse(options.share)
        generate(
            model, conditions, output, per_event=options.per_event, seed=options.seed, batch=options.batch,
            strategy=options.strategy, library=options.library and storage.location(options.library), share=share,
            outside=options.outside,
        )  # fmt: skip
        if options.timing is not None:
            with mirrored_file(storage.location(options.timing)) as timing:
                time_generation(model, conditions, timing)


def _conditions(options: argparse.Namespace, card: Card, selection: Selection) -> Conditions | LabelsAlone:
    """The showers that are asked for: those of files, or some that all have the same labels."""
    from training.generation.conditions import LabelsAlone, conditions_of  # noqa: PLC0415  loads HDF5

    labels = {"energy_gev": options.energy, "theta_rad": options.theta, PHI: options.phi, PARTICLE: options.pdg}
    labelled = any(value is not None for value in (*labels.values(), options.showers))
    if labelled == bool(options.like):
        raise InputError("expected either --like, or --energy with --showers; see python -m training generate --help")
    if options.like:
        return conditions_of(storage.expand(options.like), selection, card)
    if options.showers is None or options.split != ALL:
        raise InputError("--energy, --theta, --phi and --pdg go with --showers N, and without --split")
    return LabelsAlone.alike(card, options.showers, labels)
