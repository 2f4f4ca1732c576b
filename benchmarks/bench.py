"""The bench of calorimeters: how good the default model becomes on each, with the same commands.

    python benchmarks/bench.py --data DIR --output runs/bench [--only NAME ...] [--showers 4000] [--config standard] \
        [--seeds 1 2 3]

`DIR/NAME/*.h5` are the showers of a calorimeter, as `benchmarks/calorimeters/simulate.py NAME` makes them. The last
quarter of the files is for the test, the file before it chooses the epoch, and the others are trained on. Calorimeters
that their files do not describe are described in `benchmarks/calorimeters/`. Prints a row for each calorimeter, as
`fidelity.py` does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fidelity import one, table

_DESCRIBED = Path(__file__).parent / "calorimeters"


def options_of(folder: Path, output: Path) -> argparse.Namespace:
    """The options of `fidelity.one` for the calorimeter whose files are in `folder`."""
    files = sorted(map(str, folder.glob("*.h5")))
    first = len(files) - max(len(files) // 4, 1)
    if first < 2:
        raise SystemExit(f"{folder}: {len(files)} files, expected three or more: train, validation, test")
    described = _DESCRIBED / f"{folder.name}.toml"
    return argparse.Namespace(
        train=files[:first],
        test=files[first:],
        output=output / folder.name,
        fit=[],
        geometry=str(described) if described.exists() else "",
    )


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--data", type=Path, required=True, metavar="DIR")
    command.add_argument("--output", type=Path, required=True, metavar="DIR")
    command.add_argument("--only", nargs="+", default=[], metavar="NAME", help="calorimeters (all that DIR has)")
    command.add_argument("--showers", type=int, default=4000, metavar="N", help="to train with")
    command.add_argument("--config", default="standard", metavar="NAME")
    command.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N")
    options = command.parse_args()
    for folder in sorted(options.data.iterdir()):
        if not options.only or folder.name in options.only:
            told = options_of(folder, options.output)
            rows = [one(told, options.showers, options.config, seed) for seed in options.seeds]
            print(f"\n{folder.name}\n", *table(rows), sep="\n", flush=True)


if __name__ == "__main__":
    main()
