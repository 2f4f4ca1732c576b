"""The command line of the validation stage."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from calopipe import storage
from calopipe.errors import CommandParser, InputError, run_command
from calopipe.grade import built_in_grades
from calopipe.mirror import mirrored
from calopipe.showers.selection import Selection, add_selection
from calopipe.showers.splits import ALL, SPLITS
from calopipe.verdict import REPORT_FILE, VERDICT_FILE, number, span
from validation.command import add_output, answer_line, finish

if TYPE_CHECKING:
    from validation.challenge.numbers import Asked

_SHOWN = 5  # criteria

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

exit codes: 0 the comparison was made; 2 the input cannot be used; 3 the verdict is not the one of --require
"""


def parser() -> argparse.ArgumentParser:
    command = CommandParser(
        prog="python -m validation",
        description="Compare generated showers with Monte Carlo: accepted, rejected or inconclusive, and why.",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "--reference", nargs="+", required=True, metavar="FILE", help="Monte Carlo: HDF5 files or globs"
    )
    command.add_argument("--candidate", nargs="+", required=True, metavar="FILE", help="the showers to judge")
    command.add_argument(
        "--incumbent", nargs="+", default=[], metavar="FILE",
        help="other showers for the same Monte Carlo: is the candidate better than these?",
    )  # fmt: skip
    command.add_argument(
        "--training", nargs="+", default=[], metavar="FILE",
        help="Monte Carlo that the candidate's generator was trained on: does it repeat that?",
    )  # fmt: skip
    command.add_argument(
        "--training-split", default="train", choices=(ALL, *SPLITS), help="of --training (default: train)"
    )
    add_output(command, f"{', '.join(built_in_grades())}, or a TOML file")
    add_selection(command, "of the reference")
    command.add_argument(
        "--challenge", action="store_true",
        help="add CaloChallenge's separation powers, FPD and KPD, beside published values (cells in rings); minutes",
    )  # fmt: skip
    command.add_argument(
        "--classifier",
        metavar="FILE",
        help="with --challenge: what `python -m training discriminate` wrote of these sets",
    )
    command.add_argument(
        "--timing", metavar="FILE", help="with --challenge: what `python -m training generate --timing FILE` wrote"
    )
    command.add_argument("--workers", type=int, default=1, metavar="N", help="processes that read (default: 1)")
    command.add_argument("--seed", type=int, default=1, help="of the resampling (default: 1)")
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    output = storage.location(options.output)
    from validation.compare import validate  # noqa: PLC0415  seconds of plotting that --help need not wait

    with mirrored(output, VERDICT_FILE, REPORT_FILE) as folder:
        document = validate(
            storage.expand(options.reference),
            storage.expand(options.candidate),
            folder,
            incumbent=storage.expand(options.incumbent) if options.incumbent else (),
            training=storage.expand(options.training) if options.training else (),
            training_split=options.training_split,
            selection=Selection.of(options),
            grade=options.grade,
            challenge=_asked(options),
            workers=options.workers,
            seed=options.seed,
        )
    for kind, findings in (("hard failure", document["hard_failures"]), ("caution", document["cautions"])):
        for finding in findings:
            print(f"  {kind}  {finding['name']}: {finding['detail']}")
    for each in document["criteria"][:_SHOWN]:
        print(answer_line(each, f" [{each['bin']}]"))
    if (more := len(document["criteria"]) - _SHOWN) > 0:
        print(f"  and {more} more criteria in the report")
    if incumbent := document["incumbent"]:
        print(
            f"  against the incumbent: {incumbent['outcome']} (difference {number(incumbent['difference'])}, "
            f"interval {span(incumbent['interval'])}; below zero is better)"
        )
    finish(document, output, options.require)


def _asked(options: argparse.Namespace) -> Asked | None:
    """The challenge's numbers, if they are asked for."""
    from validation.challenge.numbers import Asked  # noqa: PLC0415  as above

    files = {name: getattr(options, name) for name in ("classifier", "timing")}
    if not options.challenge:
        for name, given in files.items():
            if given:
                raise InputError(f"--{name} {given}: is for the table of --challenge; give that too")
        return None
    return Asked.read(**{name: storage.location(given) if given else None for name, given in files.items()})


command = partial(run_command, main)  # the console script


if __name__ == "__main__":
    command()
