"""The command line of the validation stage."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calopipe import storage
from calopipe.errors import run_command
from calopipe.events.splits import ALL, SPLITS
from calopipe.grade import built_in_grades
from calopipe.mirror import mirrored
from calopipe.options import CommandParser, given_values
from calopipe.showers.selection import Reading, add_selection
from calopipe.verdict import REPORT_FILE, VERDICT_FILE, number, span

if TYPE_CHECKING:
    from validation.calochallenge.numbers import Documents

_SHOWN = 5  # criteria
_NOT_AS_REQUIRED = 3  # exit code: the comparison was made, and the verdict is not the one required
# Sets of files, by their options.
_SETS = {
    "reference": "Monte Carlo, or simulations: HDF5 files or globs",
    "candidate": "the showers, or roll-outs, to judge",
    "incumbent": "other showers for the same Monte Carlo: is the candidate better than these?",
    "training": "Monte Carlo that the candidate's generator was trained on: does it repeat that?",
    "floor": "for flows: the same flows by another solver, or on a finer grid: how far apart are two solvers?",
}
_REQUIRED = ("reference", "candidate")
# The options that are for showers only, and those for flows only.
_OF_SHOWERS = (
    "incumbent", "training", "training_split", "split", "dataset", "split_files", "geometry", "cut_gev",
    "on_bad_event", "challenge", "classifier", "timing", "seed",
)  # fmt: skip
_OF_FLOWS = ("floor",)

_EXAMPLES = """examples:
  compare generated showers with the test split they were generated for:
    python -m validation --reference 'data/geant4/*.h5' --split test --candidate generated.h5 --output verdict

  compare two files of Monte Carlo, under the looser grade:
    python -m validation --reference data/geant4/Ele_VarAngleMeas_100_200_000.h5 \\
      --candidate data/geant4/Ele_VarAngleMeas_100_200_001.h5 --grade gan --output verdict

  is a challenger better than the model that is in use, and does it repeat what it was trained on?
    python -m validation --reference 'data/geant4/*.h5' --split test --candidate new.h5 --incumbent old.h5 \\
      --training 'data/geant4/*.h5' --output verdict

  the numbers of CaloChallenge beside published values, for showers in rings:
    python -m validation --reference geant4.h5 --candidate generated.h5 --challenge --output verdict

  compare roll-outs of a flow with the simulations that they were started from:
    python -m validation --reference 'data/vortex/*.h5' --candidate rollout.h5 --output verdict

exit codes: 0 the comparison was made; 2 the input cannot be used; 3 the verdict is not the one of --require
"""


def parser() -> CommandParser:
    command = CommandParser(
        prog="python -m validation",
        description="Compare generated showers with Monte Carlo, or roll-outs of a flow with the solver's simulations: "
        "accepted, rejected or inconclusive, and why.",
        epilog=_EXAMPLES,
    )
    for name, files in _SETS.items():
        required = name in _REQUIRED
        command.add_argument(f"--{name}", nargs="+", required=required, default=[], metavar="FILE", help=files)
    command.add_argument(
        "--training-split", default="train", choices=(ALL, *SPLITS), help="of --training (default: train)"
    )
    command.add_argument(
        "--output", required=True, metavar="DIR", help="folder for the report and verdict, or a gs:// address"
    )
    command.add_argument("--require", choices=("accepted",), help="exit with 3 unless this is the verdict")
    command.add_argument(
        "--grade", default="precision", metavar="NAME|FILE",
        help=f"tolerances: {', '.join(built_in_grades())} (flows: precision), or a TOML file (default: precision)",
    )  # fmt: skip
    add_selection(command, "of the reference")
    command.add_argument(
        "--challenge", action="store_true",
        help="add CaloChallenge's separation powers, FPD and KPD, beside published values (cells in rings); this takes "
        "minutes",
    )  # fmt: skip
    command.add_argument(
        "--classifier",
        metavar="FILE",
        help="file of `python -m training discriminate` for these sets; adds its numbers and the table of --challenge",
    )
    command.add_argument(
        "--timing",
        metavar="FILE",
        help="what `python -m training generate --timing FILE` wrote, for the same table",
    )
    command.add_argument("--seed", type=int, default=1, help="of the resampling (default: 1)")
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    command = parser()
    options = command.parse_args(arguments)
    output = storage.location(options.output)
    from calopipe.flow.files import are_flows  # noqa: PLC0415  loads HDF5, not needed for --help

    flow = are_flows(storage.expand(options.reference))
    command.refuse(options, _OF_SHOWERS if flow else _OF_FLOWS, f"is not for {'flows' if flow else 'showers'}")
    with mirrored(output, VERDICT_FILE, REPORT_FILE) as folder:
        document = (_of_flows if flow else _of_showers)(options, folder)
    _show(document, output)
    if options.require and document["verdict"] != options.require:
        sys.exit(_NOT_AS_REQUIRED)


def _files(options: argparse.Namespace, *names: str) -> dict[str, Sequence[storage.Location]]:
    return {name: storage.expand(patterns) if (patterns := getattr(options, name)) else () for name in names}


def _of_flows(options: argparse.Namespace, output: Path) -> dict[str, Any]:
    from validation.flow.compare import validate  # noqa: PLC0415  seconds of plotting

    return validate(**_files(options, *_REQUIRED, *_OF_FLOWS), output=output, grade=options.grade)


def _of_showers(options: argparse.Namespace, output: Path) -> dict[str, Any]:
    from validation.compare import validate  # noqa: PLC0415

    return validate(
        **_files(options, *_REQUIRED, "incumbent", "training"),
        output=output,
        training_split=options.training_split,
        selection=Reading(**given_values(Reading, options)).selection(options.split),
        grade=options.grade,
        challenge=_documents(options),
        seed=options.seed,
    )


def _show(document: Mapping[str, Any], output: storage.Location) -> None:
    """Print the worst criteria, and the path of the verdict."""
    for kind, findings in (("hard failure", document["hard_failures"]), ("caution", document["cautions"])):
        for finding in findings:
            print(f"  {kind}  {finding['name']}: {finding['detail']}")
    for row in document["criteria"][:_SHOWN]:
        value = f"{number(row['value'])}, interval {span(row['interval'])}, tolerance {span(row['tolerance'])}"
        print(f"  {row['verdict']:<12}  {row['name']} [{row['bin']}]: {value}")
    if (more := len(document["criteria"]) - _SHOWN) > 0:
        print(f"  and {more} more criteria in the report")
    if incumbent := document.get("incumbent"):
        print(
            f"  against the incumbent: {incumbent['outcome']} (difference {number(incumbent['difference'])}, "
            f"interval {span(incumbent['interval'])}; below zero is better)"
        )
    print(f"report:  {output / REPORT_FILE}\nverdict: {output / VERDICT_FILE}")


def _documents(options: argparse.Namespace) -> Documents | None:
    """What is asked of CaloChallenge's numbers; None unless they, or a file for their table, are given as options."""
    from validation.calochallenge.numbers import Documents  # noqa: PLC0415  as above

    files = [options.classifier, options.timing]
    if not (options.challenge or any(files)):
        return None
    return Documents.read(*(storage.location(file) if file else None for file in files))


command = partial(run_command, main)  # the console script


if __name__ == "__main__":
    command()
