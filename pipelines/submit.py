"""Run, compile, submit and schedule the pipeline: `python pipelines/submit.py --help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.errors import CommandParser, InputError, run_command
from calopipe.showers.flaws import SKIP, STOP, Tolerance
from calopipe.showers.selection import CUT_GEV
from components.image import IMAGE
from components.parameters import require_plain
from pipelines import package
from pipelines.cluster.platform import Platform
from pipelines.here.shared import require_shared
from pipelines.remote import commands
from preprocessing.dataset import Settings
from training.configs import ANEW, CONFIGS, DEFAULT, FROM_INCUMBENT, STRATEGIES

SAMPLE = Path(__file__).resolve().parent.parent / "data" / "geant4"
_EXAMPLES = """
examples:
  python pipelines/submit.py
      the whole pipeline here, on the Geant4 sample of this repository, into runs/demo
  python pipelines/submit.py run --input '/data/showers/*.h5' --output runs/mine --epochs 20
      the same on your files
  python pipelines/submit.py compile --output calorimeter.yaml --claim calopipe-data:/data
      a file to upload in the Kubeflow UI; every step sees the volume claim calopipe-data at /data
  python pipelines/submit.py submit --endpoint http://localhost:8080 --claim calopipe-data:/data \\
      --input '/data/showers/*.h5' --output /data/runs/first --wait
      one run on a cluster, followed; `status RUN` and `logs RUN` look at it later
  python pipelines/submit.py schedule --endpoint http://localhost:8080 --claim calopipe-data:/data \\
      --cron '0 0 3 * * 1' --input '/data/showers/*.h5' --output /data/runs/weekly --name weekly
      Mondays at 3:00; `schedule list`, `schedule pause weekly`, `schedule delete weekly`
"""


def parser() -> argparse.ArgumentParser:
    command = CommandParser(
        prog="submit.py",
        description="Run the pipeline here, or compile, submit or schedule it for Kubeflow Pipelines.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tasks = command.add_subparsers(dest="task", required=True)

    run = tasks.add_parser("run", help="run every step on this machine; goes on where an earlier run stopped")
    run.add_argument("--input", nargs="+", metavar="GLOB", help="HDF5 files (default: the sample of the repository)")
    run.add_argument("--output", default="runs/demo", metavar="DIR", help="folder of the run (default %(default)s)")
    run.add_argument("--verbose", action="store_true", help="print all that the steps and kfp print, not only the log")
    run.add_argument("--container", action="store_true", help="run each step in the image, by this machine's Docker")
    _add_parameters(run)

    compile_ = tasks.add_parser("compile", help="write the pipeline as YAML, to upload in the Kubeflow UI")
    compile_.add_argument("--output", type=Path, default=Path("calorimeter.yaml"), metavar="FILE.yaml")
    package.add_options(compile_)

    commands.add_to(tasks, _add_parameters)
    return command


def _add_parameters(task: argparse.ArgumentParser) -> None:
    """The pipeline's parameters; one that is not given keeps the pipeline's default."""
    task.add_argument("--dataset", metavar="DIR", help="dataset that several runs share (default: OUTPUT/dataset)")
    task.add_argument(
        "--registry", metavar="DIR", help="promoted models, which runs may share (default: OUTPUT/registry)"
    )
    task.add_argument("--config", choices=list(CONFIGS), help="training config (default fast)")
    task.add_argument("--epochs", type=int, metavar="N", help="passes over the train split (default: the config's)")
    task.add_argument("--steps", type=int, metavar="N", help="end the training after N steps")
    task.add_argument("--set", action="append", dest="settings", metavar="NAME=VALUE",
                      help="a training setting in place of the config's own, such as average=0.999")  # fmt: skip
    task.add_argument("--warm-start", choices=(FROM_INCUMBENT, ANEW),
                      help="begin with the weights of the registry's current model (default), or anew")  # fmt: skip
    task.add_argument(
        "--strategy", choices=STRATEGIES, help="distribution strategy (default: what training runs on has one)"
    )
    task.add_argument("--per-event", type=int, metavar="N", help="generated showers for each test event (default 1)")
    task.add_argument("--grade", metavar="NAME|FILE", help="acceptance criteria: precision (default), gan, or a file")
    task.add_argument("--split-file", action="append", dest="split_files", metavar="SPLIT=PATTERN",
                      help="give whole files to a split by name")  # fmt: skip
    task.add_argument("--geometry", metavar="NAME=VALUE,...", help="in place of the files' attributes")
    task.add_argument("--threshold-gev", type=float, metavar="E", help="cells below E are set to zero (default 0)")
    task.add_argument("--cut-gev", type=float, metavar="E", help="showers of E or less are dropped (default 0.2)")
    task.add_argument("--beam-option", action="append", dest="beam_options", type="--{}".format, metavar="NAME=VALUE",
                      help="an option of Apache Beam")  # fmt: skip
    task.add_argument(
        "--on-bad-event", choices=(STOP, SKIP), help="stop at corrupt events (default), or leave them out"
    )
    task.add_argument(
        "--on-bad-file", choices=(STOP, SKIP), help="stop at unreadable files (default), or leave them out"
    )
    for what in ("events", "files"):
        task.add_argument(f"--max-bad-{what}", type=float, metavar="SHARE",
                          help=f"stop all the same where more of the {what} are corrupt")  # fmt: skip
    task.add_argument("--seed", type=int, metavar="N", help="of weights, order, noise and resampling (default 1)")


def _parameters(options: argparse.Namespace) -> dict[str, Any]:
    names = (
        "input", "output", "dataset", "registry", "config", "epochs", "steps", "settings", "warm_start", "strategy",
        "per_event", "grade", "split_files",
        "geometry", "threshold_gev", "cut_gev", "beam_options", "on_bad_event", "on_bad_file", "max_bad_events",
        "max_bad_files", "seed",
    )  # fmt: skip
    values = {name: getattr(options, name) for name in names}
    if options.settings is not None:
        values["settings"] = dict(map(_setting, options.settings))
    return {name: value for name, value in values.items() if value is not None}


def _setting(text: str) -> tuple[str, Any]:
    """Name and value of NAME=VALUE, where a value is a number, or else text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InputError(f"--set {text}: expected NAME=VALUE, for example average=0.999")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def run(options: argparse.Namespace) -> None:
    """Run the pipeline on this machine."""
    parameters = _parameters(options)
    parameters.setdefault("input", [str(SAMPLE / "*.h5")])
    check(parameters)

    from pipelines.here import machine  # noqa: PLC0415  kfp, a second that bad input need not wait

    machine.run(parameters, Path(options.output).absolute(), in_containers=options.container, verbose=options.verbose)


def check(parameters: dict[str, Any], platform: Platform | None = None) -> None:
    """Find what can be found before any step starts: options and, of a run here, input and output.

    Of a run on a cluster, which `platform` is given for, the paths and the strategy have to fit that.
    """
    from calopipe.grade import load_grade  # noqa: PLC0415
    from calopipe.showers.contents import MEMORY  # noqa: PLC0415
    from calopipe.showers.splits import SplitRule  # noqa: PLC0415
    from preprocessing.inputs import discover  # noqa: PLC0415
    from training.configs import named_config, require_origin, with_settings  # noqa: PLC0415

    require_plain(parameters)
    rule = SplitRule.parse(parameters.get("split_files", []))
    Settings(parameters.get("threshold_gev", 0.0), parameters.get("cut_gev", CUT_GEV), split_rule=rule)
    given = {name: parameters.get(name) for name in ("epochs", "steps", "strategy", "seed")}
    if platform:
        given["strategy"] = given["strategy"] or platform.strategy
    config = with_settings(named_config(parameters.get("config", DEFAULT), **given), parameters.get("settings", {}))
    require_origin(parameters.get("warm_start", FROM_INCUMBENT))
    if parameters.get("registry"):
        storage.location(parameters["registry"])
    names = ("bad_event", "bad_file", "max_bad_events", "max_bad_files")
    stated = {name: parameters[key] for name in names for key in (f"on_{name}", name) if key in parameters}
    tolerance = Tolerance(**stated)
    storage.on_disk(parameters["output"], "--output")
    if parameters.get("per_event", 1) < 1:
        raise InputError(f"--per-event is {parameters['per_event']}, expected at least 1")
    if platform:
        platform.require_strategy(config.strategy)
        require_shared(parameters, platform.claim)
        return
    load_grade(parameters.get("grade", "precision"))
    dataset = storage.location(parameters.get("dataset") or f"{parameters['output']}/dataset")
    memory = dataset if (dataset / MEMORY).is_file() else None  # a check makes no folder
    files = discover(parameters["input"], parameters.get("geometry", ""), tolerance=tolerance, memory=memory).files
    require_plain({"input": [str(file.path.absolute()) for file in files]})
    config.check_shape(files[0].geometry)
    for split, least in (("train", config.batch), ("test", 1)):
        most = sum(file.events for file in files if rule.may_hold(split, file.path.name))  # how many, the cells decide
        if most < least:
            raise InputError(
                f"{files[0].path}: the {split} split of the input holds {most} showers at most, at least {least} are "
                "needed; give more files, or another --split-file"
            )
    storage.require_writable(Path(parameters["output"]))


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["schedule"] and given[1:2] and given[1].startswith("--") and given[1] != "--help":
        given.insert(1, "create")
    options = parser().parse_args(given or ["run"])
    if options.task == "compile":
        package.write(options.output, package.platform_of(options))
        print(f"pipeline: {options.output}")
        if not options.image:
            print(f"the cluster must be able to pull {IMAGE}; see docs/image.md, or give --image", file=sys.stderr)
    elif options.task == "run":
        run(options)
    else:
        parameters = _parameters(options) if "input" in options else {}
        if parameters:
            check(parameters, package.platform_of(options))
        commands.perform(options, parameters)


def command() -> None:
    """Run the command line, with errors as one line: the console script."""
    run_command(main)


if __name__ == "__main__":
    command()
