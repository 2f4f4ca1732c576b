"""The command that prints what a training will need, a row for each kind of device."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.errors import require_least
from calopipe.events.splits import FRACTIONS
from calopipe.showers.cells import REFERENCE_GEOMETRY
from preprocessing.dataset import read_manifest
from training.configs import add_config, config_of
from training.estimate.catalogue import load_catalogue
from training.estimate.estimate import LIKELY, Estimate, Spread, estimate, steps_an_epoch

_COLUMNS = ("devices", "s an epoch", "time", "efficiency", "GB a device", "$ on demand", "$ spot", "rate from")


def add_to(tasks: Any) -> None:
    """Add the command to `tasks`, of argparse."""
    command = tasks.add_parser(
        "estimate",
        help="say what a training takes: time, memory, money",
        description="Print time, memory and cost of a training on kinds of devices, each with its range.",
    )
    of = command.add_mutually_exclusive_group(required=True)
    of.add_argument("--dataset", metavar="DIR", help="folder or gs:// address that preprocessing wrote")
    of.add_argument(
        "--showers",
        type=int,
        metavar="N",
        help=f"showers with the 3DGAN's 51 x 51 x 25 cells, before the split: {100 * FRACTIONS['train']:.0f} %% train",
    )
    kinds = ", ".join(load_catalogue().kind)
    command.add_argument(
        "--devices", nargs="+", required=True, metavar="KIND[:COUNT]", help=f"what it is to run on: {kinds}"
    )
    command.add_argument("--catalogue", type=Path, metavar="FILE", help="devices and prices, in place of the built-in")
    add_config(command)
    command.set_defaults(perform=perform)


def perform(options: argparse.Namespace) -> None:
    """Print the estimates that `options` ask for. InputError."""
    config = config_of(options)
    catalogue = load_catalogue(options.catalogue)
    devices = [catalogue.devices(text) for text in options.devices]
    geometry = REFERENCE_GEOMETRY
    if options.dataset:
        manifest = read_manifest(storage.location(options.dataset))
        geometry, train, validation = manifest.geometry, manifest.count("train"), manifest.count("validation")
    else:
        require_least("--showers", options.showers, 1)
        train, validation = (int(options.showers * FRACTIONS[split]) for split in ("train", "validation"))
    config.check(geometry)
    for _, count in devices:
        steps_an_epoch(config, count, train)  # before TensorFlow counts a step for half a minute
    from training.estimate.work import work_of  # noqa: PLC0415  TensorFlow

    work = work_of(config, geometry)
    estimates = [
        estimate(work, config, catalogue, kind, count, train=train, validation=validation) for kind, count in devices
    ]
    print(
        f"{config.model}, batch {config.batch} a device, {config.precision}, on {train} training {geometry.items}: "
        f"{work.flop / 1e9:.3g} GFLOP each; catalogue of {catalogue.date}\n"
    )
    print(_table(estimates))
    for result in estimates:
        limit = catalogue.kind[result.kind].memory_gb
        if result.memory_gb[LIKELY] > limit:
            print(f"\n{result.kind} has {limit:g} GB, which are likely too few; give a smaller --batch")


def _table(estimates: Sequence[Estimate]) -> str:
    """A Markdown table that is also legible as text."""
    rows = [_COLUMNS, *(_row(result) for result in estimates)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def _row(row: Estimate) -> tuple[str, ...]:
    return (
        f"{row.devices} x {row.kind}", _text(row.epoch_s), _time(row.total_s),
        _text(row.efficiency, 100, "%"), _text(row.memory_gb), _text(row.on_demand), _text(row.spot), row.basis,
    )  # fmt: skip


def _time(spread: Spread) -> str:
    size, unit = next((scale for scale in ((3600, " h"), (60, " min")) if spread[LIKELY] > 2 * scale[0]), (1, " s"))
    return _text(spread, 1 / size, unit)


def _text(spread: Spread | None, factor: float = 1.0, unit: str = "") -> str:
    """The likely value, and the least and the most in brackets; three figures, or all before the point."""
    if spread is None:
        return "unknown"
    least, likely, most = (f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in factor * spread)
    return f"{likely}{unit} ({least}-{most})"
