"""The commands for a registry, the models that the pipeline promoted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calopipe import storage
from calopipe.errors import InputError
from calopipe.mirror import mirrored

if TYPE_CHECKING:
    from training.registry.registry import Promotion, Registry


def add_to(tasks: Any) -> None:
    """Add the commands to `tasks`, of argparse."""
    promotions = tasks.add_parser(
        "promotions", help="list the models of a registry", description="List a registry's promotions, the newest last."
    )
    fetch = tasks.add_parser("fetch", help="copy a registry's model", description="Copy the current model to a folder.")
    fetch.add_argument("--output", required=True, metavar="DIR", help="folder of the model")
    fetch.add_argument("--overwrite", action="store_true", help="replace another model")
    rollback = tasks.add_parser(
        "rollback",
        help="bring an earlier model back",
        description="Make an earlier model of a registry current again. No run promotes the replaced one again.",
    )
    rollback.add_argument("--to", metavar="MODEL", help="by its name (default: the one before the current)")
    regrade = tasks.add_parser(
        "regrade",
        help="ask for another grade",
        description="Let a registry ask for another grade of the models to come. The history keeps the change.",
    )
    regrade.add_argument("--grade", required=True, metavar="NAME|FILE", help="precision, gan, or a file of tolerances")
    for task, perform in ((promotions, _list), (fetch, _fetch), (rollback, _roll_back), (regrade, _regrade)):
        task.set_defaults(perform=perform)
        task.add_argument("--registry", required=True, metavar="DIR", help="folder or gs:// address")


def _registry(options: argparse.Namespace) -> Registry:
    from training.registry.registry import Registry  # noqa: PLC0415  h5py, which other commands load with more

    return Registry(storage.location(options.registry))


def _roll_back(options: argparse.Namespace) -> None:
    back = _registry(options).rollback(options.to)
    print(f"model in use: {back.model}, in place of {back.replaced}")


def _regrade(options: argparse.Namespace) -> None:
    from calopipe.grade import load_grade  # noqa: PLC0415  which other commands need not wait for

    registry = _registry(options)
    print(f"grade: {registry.regrade(load_grade(options.grade).to_json()).grade}")
    print(f"model in use: {registry.in_use()}")


def _history(options: argparse.Namespace) -> list[Promotion]:
    """All promotions. InputError: the registry's folder does not exist."""
    registry = _registry(options)
    history = registry.history()
    if not history and isinstance(registry.place, Path) and not registry.place.is_dir():
        raise InputError(f"--registry {registry.place}: no such folder; check the path")
    return history


def _fetch(options: argparse.Namespace) -> None:
    history = _history(options)
    if not history:
        raise InputError(f"--registry {options.registry}: no model was promoted there")
    with mirrored(storage.location(options.output), "**") as output:
        _registry(options).fetch(history[-1], output, overwrite=options.overwrite)
    print(f"model: {options.output}, which is {history[-1].model}")


def _list(options: argparse.Namespace) -> None:
    history = _history(options)
    if not history:
        print(f"no model was promoted there yet: {options.registry}")
    for entry in history:
        replaced = f", in place of {entry.replaced}" if entry.replaced not in {None, entry.model} else ""
        print(f"{entry.number:6d}  {entry.at}  {entry.model}  {entry.why}{replaced} (grade {entry.grade})")
