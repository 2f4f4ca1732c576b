"""The command that trains CaloChallenge's classifiers."""

from __future__ import annotations

import argparse
from typing import Any

from calopipe import storage
from calopipe.mirror import mirrored_file
from calopipe.options import add_settings, given_values, settings_of
from calopipe.showers.selection import Reading, add_selection
from training.models.classifier import LEVELS, ClassifierConfig


def add_to(tasks: Any) -> None:
    """Add the command to `tasks`, of argparse."""
    task = tasks.add_parser(
        "discriminate",
        help="train CaloChallenge's classifiers to tell generated showers from Monte Carlo",
        description="Train CaloChallenge's low-level and high-level classifier to tell generated showers from Monte "
        "Carlo's; write AUC and JSD for `python -m validation --challenge --classifier FILE`.",
    )
    task.add_argument("--reference", nargs="+", required=True, metavar="FILE", help="Monte Carlo: HDF5 files or globs")
    task.add_argument("--candidate", nargs="+", required=True, metavar="FILE", help="the showers to tell from it")
    task.add_argument("--output", required=True, metavar="FILE.json", help="where the result goes")
    task.add_argument(
        "--level",
        nargs="+",
        choices=LEVELS,
        default=[],
        help="of cells, of high-level features (default: both in rings)",
    )
    add_settings(task.add_argument_group("the classifier (default: as published)"), settings_of(ClassifierConfig))
    add_selection(task, "of the reference")
    task.set_defaults(perform=perform)


def perform(options: argparse.Namespace) -> None:
    """Train the classifiers that `options` ask for, and print what they find. InputError."""
    from training.calochallenge.discriminate import discriminate  # noqa: PLC0415

    with mirrored_file(storage.location(options.output)) as output:
        document = discriminate(
            storage.expand(options.reference),
            storage.expand(options.candidate),
            output,
            selection=Reading(**given_values(Reading, options)).selection(options.split),
            levels=options.level,
            **given_values(ClassifierConfig, options),
        )
    for level, row in document["classifiers"].items():
        print(f"{level}-level classifier: AUC {row['auc']:.4f}, JSD {row['jsd']:.4f}, of {row['tested']} showers")
    print(f"result: {options.output}")
