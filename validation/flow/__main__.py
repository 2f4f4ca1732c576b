"""The command line of the validation of flows."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from calopipe import storage
from calopipe.errors import CommandParser, run_command
from calopipe.mirror import mirrored
from calopipe.verdict import REPORT_FILE, VERDICT_FILE
from validation.command import add_output, answer_line, finish

_EXAMPLES = """examples:
  compare roll-outs with the simulations that they were started from:
    python -m validation.flow --reference 'data/vortex/*.h5' --candidate rollout.h5 --output verdict

exit codes: 0 the comparison was made; 2 the input cannot be used; 3 the verdict is not the one of --require
"""


def parser() -> argparse.ArgumentParser:
    command = CommandParser(
        prog="python -m validation.flow",
        description="Compare roll-outs with the solver's simulations: accepted, rejected or inconclusive, and why.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "--reference", nargs="+", required=True, metavar="FILE", help="the solver's simulations: HDF5 files or globs"
    )
    command.add_argument("--candidate", nargs="+", required=True, metavar="FILE", help="the roll-outs to judge")
    command.add_argument(
        "--floor", nargs="+", default=[], metavar="FILE",
        help="the same flows by another solver, or on a finer grid: how far are two solvers from each other?",
    )  # fmt: skip
    add_output(command, "a grade, or a TOML file")
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    output = storage.location(options.output)
    from validation.flow.compare import validate  # noqa: PLC0415  seconds of plotting that --help need not wait

    with mirrored(output, VERDICT_FILE, REPORT_FILE) as folder:
        document = validate(
            storage.expand(options.reference),
            storage.expand(options.candidate),
            folder,
            floor=storage.expand(options.floor) if options.floor else (),
            grade=options.grade,
        )
    for each in document["criteria"]:
        print(answer_line(each))
    finish(document, output, options.require)


if __name__ == "__main__":
    run_command(main)
