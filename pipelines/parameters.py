"""The pipelines' parameters, each stated once: kfp compiles them, and the command line makes its options from them.

kfp takes a second to load, so errors in options are shown before it is loaded.
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from calopipe.errors import InputError
from calopipe.events.tolerance import STOP
from calopipe.options import add_settings, default_of, given_values, option_help, setting, settings_of, type_of
from calopipe.showers.detectors import settled
from calopipe.showers.selection import Reading
from calopipe.storage import location
from components.step import require_plain

SHOWERS, FLOW = "calorimeter", "vortex"


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of every pipeline."""

    input: tuple[str, ...] = setting(help="Paths or globs of HDF5 files, as the steps see them.")
    output: str = setting(
        help="Folder of the run, as the steps see it: dataset, model, what it generated, report.html, verdict.json."
    )
    config: str = setting(help="")
    epochs: int = setting(0, help="Passes over the train split; 0 for the config's.")
    steps: int = setting(
        0, help="End the training after so many steps; 0 for the config's, or as many as the epochs take."
    )
    model_file: str = setting(
        "",
        flag="--model-file",
        metavar="FILE.py",
        help="A file of Python that states a model of your own, its text compressed as submit.py does it.",
    )
    settings: Mapping[str, Any] = setting(
        {},
        flag="--set",
        help='Training settings in place of the config\'s own, for example {"average": 0.999}.',
    )
    strategy: str = setting(
        "one-device",
        help="Distribution strategy: one-device, mirrored for all GPUs of a machine, multi-worker, or tpu.",
    )
    grade: str = setting("precision", help="Acceptance criteria: precision, or a TOML file of them.")
    beam_options: tuple[str, ...] = setting(
        (),
        flag="--beam-option",
        metavar="NAME=VALUE",
        each="--{}".format,
        help="Options of Apache Beam, --NAME=VALUE each.",
    )
    seed: int = setting(1, help="Seed of all that is drawn, as weights, order and noise.")


@dataclass(frozen=True, kw_only=True)
class ShowerParameters(Reading, Parameters):  # so input and output come first
    """Calorimeter showers to a validated generative model."""

    # in doubt, a command warns and a pipeline stops
    on_doubt: str = field(default=STOP, metadata=Reading.__dataclass_fields__["on_doubt"].metadata)
    registry: str = setting(
        "", help="Folder or gs:// address of promoted models, which runs may share; empty for OUTPUT/registry."
    )
    config: str = setting(
        "fast", help="Training config: fast, standard, full, 3dgan or small; no other config generates showers."
    )
    warm_start: str = setting(
        "incumbent",
        help="What training begins with: incumbent (weights of the registry's current model), or none (new weights).",
    )
    per_event: int = setting(1, help="Generated showers for each event of the test split.")
    grade: str = setting("precision", help="Acceptance criteria: precision, gan, or a TOML file of them.")
    challenge: bool = setting(
        False, help="Add CaloChallenge's numbers to the report: distances, classifiers, times of generation."
    )


@dataclass(frozen=True, kw_only=True)
class FlowParameters(Parameters):
    """Simulated flows to a model that is rolled out, and judged by its vortex street."""

    config: str = setting("pix2pix-small", help="Training config: pix2pix-small or pix2pix.")
    split_files: tuple[str, ...] = setting(
        (), flag="--split-file", metavar="SPLIT=PATTERN", help="Whole files assigned to a split, SPLIT=PATTERN each."
    )
    pair_step: int = setting(1, help="Intervals of the files between the two frames of a pair, the model's step.")
    rollout_steps: int = setting(0, help="Steps of a roll-out; 0 for as many as its simulation has frames.")
    floor: tuple[str, ...] = setting(
        (), help="Paths or globs of the test split's flows by another solver, or on a finer grid, for comparison."
    )
    on_bad_event: str = setting("stop", help="What to do about a frame with NaN: stop, or skip its pairs.")
    on_bad_file: str = setting(
        "stop", help="What to do about a file that is no flow, or does not shed vortices: stop, or skip it."
    )


KINDS: Mapping[str, type[Parameters]] = {SHOWERS: ShowerParameters, FLOW: FlowParameters}


def defaults(pipeline: str = SHOWERS) -> dict[str, Any]:
    """The default of each parameter; None for a parameter without a default."""
    return {entry.name: default_of(entry) for entry in settings_of(KINDS[pipeline])}


def function_of(name: str, body: Callable[[Any], None], strategy: str) -> Callable[..., None]:
    """The function that kfp compiles into the pipeline `name`. It calls `body` with an object that has the parameters.

    `strategy` is the default of the parameter of this name, which the cluster decides.
    """
    stated = settings_of(KINDS[name])

    def pipeline(*values: Any) -> None:
        body(SimpleNamespace(**{entry.name: value for entry, value in zip(stated, values, strict=True)}))

    kinds: dict[type, Any] = {tuple: list[str], dict: dict}
    by_default = defaults(name) | {"strategy": strategy}
    parameters = [
        inspect.Parameter(
            entry.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if by_default[entry.name] is None else by_default[entry.name],
            annotation=kinds.get(type_of(entry), type_of(entry)),
        )
        for entry in stated
    ]
    lines = [f"{KINDS[name].__doc__}\n", "Args:", *(f"    {entry.name}: {entry.metadata['help']}" for entry in stated)]
    pipeline.__name__, pipeline.__doc__ = name, "\n".join(lines)
    pipeline.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return pipeline


def add_choice(task: argparse.ArgumentParser) -> None:
    """Add the option that chooses the pipeline."""
    task.add_argument(
        "--pipeline", choices=KINDS, default=SHOWERS, help="calorimeter: of showers (default); vortex: of a flow"
    )


def add_options(task: argparse.ArgumentParser, pipeline: str = SHOWERS, *, without: str = "") -> None:
    """Add an option for each parameter except `without`, input and output; these two differ between the commands."""
    left_out = {"input", "output", without}
    add_settings(task, [entry for entry in settings_of(KINDS[pipeline]) if entry.name not in left_out], option_help)


def given_parameters(options: argparse.Namespace) -> dict[str, Any]:
    """The values of the parameters in `options`. Parameters that are left out keep the pipeline's defaults.

    Files that describe a calorimeter or state a model are read here, and the steps are given their content, as steps
    may run elsewhere.
    """
    values = given_values(KINDS[options.pipeline], options)
    if values.get("geometry"):
        require_plain({"geometry": values["geometry"]})
        values["geometry"] = settled(values["geometry"])
    if values.get("model_file"):
        from training.models.source import ModelFile  # noqa: PLC0415  loads numpy

        values["model_file"] = ModelFile.read(location(values["model_file"])).packed()
    if "settings" in values:
        values["settings"] = dict(_settings(values["settings"]))
    return values


def _settings(options: list[str]) -> Iterator[tuple[str, Any]]:
    """Name and value of each NAME=VALUE; a value that is not JSON, such as a number, is text."""
    for text in options:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InputError(f"--set {text}: expected NAME=VALUE, for example average=0.999")
        try:
            yield name, json.loads(value)
        except ValueError:
            yield name, value
