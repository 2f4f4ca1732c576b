"""The command line of the validation of flows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from calopipe import storage
from calopipe.errors import CommandParser, run_command
from calopipe.verdict import REPORT_FILE, VERDICT_FILE, number, span
from validation.__main__ import REQUIREMENT_EXIT_CODE

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
    command.add_argument("--output", required=True, metavar="DIR", help="folder for the report and verdict")
    command.add_argument(
        "--grade", default="precision", metavar="NAME|FILE", help="tolerances: a grade, or a TOML file"
    )
    command.add_argument("--require", choices=("accepted",), help="exit with 3 unless this is the verdict")
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    output = storage.on_disk(options.output, "--output")
    from validation.flow.compare import validate  # noqa: PLC0415  seconds of plotting that --help need not wait

    document = validate(
        storage.expand(options.reference),
        storage.expand(options.candidate),
        output,
        floor=storage.expand(options.floor) if options.floor else (),
        grade=options.grade,
    )
    for each in document["criteria"]:
        value = f"{number(each['value'])}, interval {span(each['interval'])}, tolerance {span(each['tolerance'])}"
        print(f"  {each['verdict']:<12}  {each['name']}: {value}")
    print(f"report:  {output / REPORT_FILE}\nverdict: {output / VERDICT_FILE}")
    if options.require and document["verdict"] != options.require:
        sys.exit(REQUIREMENT_EXIT_CODE)


if __name__ == "__main__":
    run_command(main)
