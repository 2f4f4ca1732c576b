"""The checks of a run before any of its steps starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Any

from calopipe import storage
from calopipe.errors import InputError, require_least
from calopipe.events.contents import MEMORY
from calopipe.events.splits import SplitRule
from calopipe.events.tolerance import Tolerance
from calopipe.flow.files import FlowFile, open_flow
from calopipe.flow.mechanics import LEAST_FRAMES, strouhal, transverse
from calopipe.grade import load_grade
from calopipe.showers.detectors import split_values
from calopipe.showers.selection import Reading
from calopipe.storage import Location
from components.step import require_plain
from pipelines.cluster.platform import Platform
from pipelines.parameters import FLOW, SHOWERS, defaults
from preprocessing.flow.manifest import PairSettings
from preprocessing.showers.manifest import Settings
from training.configs import PARAMETERS, FitConfig, named_config, require_origin, with_settings
from training.models.source import ModelFile, offered
from training.quiet_tensorflow import quiet_tensorflow
from training.rollout.held_out import held_out


def check(parameters: Mapping[str, Any], pipeline: str = SHOWERS, platform: Platform | None = None) -> None:
    """Raise InputError if options are wrong or, for a run on this machine, if the input or the output is wrong.

    For a run on a cluster, `platform` is given: the paths must fit the platform, which also decides the strategy.
    """
    require_plain(parameters)
    values, flow = defaults(pipeline) | dict(parameters), pipeline == FLOW
    changes = {name: values[name] for name in PARAMETERS if values[name] != 0}  # 0: the config's own, or a valid seed
    if platform:
        changes["strategy"] = platform.strategy
    if packed := values["model_file"]:
        quiet_tensorflow()  # the user's file may import TensorFlow
    with offered(ModelFile.unpacked(packed) if packed else None):
        config = with_settings(named_config(values["config"], **changes), values["settings"])
    output = storage.location(values["output"])
    if flow:
        pairs = PairSettings(SplitRule.parse(values["split_files"]), values["pair_step"])
        tolerance = Tolerance(on_bad_event=values["on_bad_event"], on_bad_file=values["on_bad_file"])
        require_least("--rollout-steps", values["rollout_steps"], 0)
    else:
        dataset = values["dataset"] or f"{output}/dataset"
        reading = Reading(**{field.name: values[field.name] for field in fields(Reading)} | {"dataset": dataset})
        settings, tolerance = Settings.of(reading), reading
        split_values(values["geometry"])
        require_origin(values["warm_start"])
        storage.location(values["registry"] or ".")
        require_least("--per-event", values["per_event"], 1)
    if not (platform and values["grade"].endswith(".toml")):  # a file that only the steps can read
        load_grade(values["grade"], "flow" if flow else "")
    if platform:
        require_mounted(parameters, platform.claim)
        return
    if flow:
        files = pairs.discover(values["input"], tolerance).files
        config.check(files[0].geometry)
        simulated = held_out([str(file.path) for file in files], pairs.rule)
        for simulation in simulated if values["rollout_steps"] else ():
            _require_period(simulation, values["rollout_steps"], values["pair_step"])
        for floor in map(open_flow, storage.expand(values["floor"]) if values["floor"] else ()):
            floor.velocity(0, len(floor.time))
    else:
        _check_input(values["input"], storage.location(dataset), settings, tolerance, config)
    storage.require_writable(output)


def _require_period(flow: FlowFile, steps: int, pair_step: int) -> None:
    """Raise InputError if a roll-out of `steps` steps is too short to be compared with the wake of `flow`."""
    frequency = strouhal(transverse(flow.velocity(0, len(flow.time)), flow.solid, flow.grid.cell_d), 1.0)
    least = max(round(1 / frequency / pair_step), LEAST_FRAMES) if frequency > 0 else LEAST_FRAMES
    if steps + 1 < least:
        raise InputError(
            f"--rollout-steps is {steps}, expected at least {least - 1} for {flow.path}: a shedding period, and "
            f"{LEAST_FRAMES} frames"
        )


def _check_input(
    patterns: Sequence[str], dataset: Location, settings: Settings, tolerance: Tolerance, config: FitConfig
) -> None:
    memory = dataset if (dataset / MEMORY).is_file() else None  # a check makes no folder
    files = settings.discover(patterns, tolerance, memory).files
    require_plain({"input": [str(file.path.absolute()) for file in files]})
    config.check(files[0].geometry)
    for split, least in (("train", config.batch), ("test", 1)):
        # at most, since the cells decide which events are in the split
        most = sum(file.events for file in files if settings.rule.may_hold(split, file.path.name))
        if most < least:
            raise InputError(
                f"{files[0].path}: the {split} split of the input holds {most} showers at most, at least {least} are "
                "needed; give more files, or another --split-file"
            )


def require_mounted(parameters: Mapping[str, Any], claim: str) -> None:
    """Raise InputError unless every step sees the paths in `parameters`, by `claim` = "NAME:PATH" or on gs://."""
    folder = claim.partition(":")[2]
    paths = [(name, pattern) for name in ("input", "floor") for pattern in parameters.get(name, ())]
    paths += [(name, parameters[name]) for name in ("output", "dataset", "registry") if parameters.get(name)]
    if (grade := parameters.get("grade", "")).endswith(".toml"):  # else it is a name
        paths.append(("grade", grade))
    for name, text in paths:
        path = PurePosixPath(text)
        if name != "grade" and text.startswith("gs:"):
            continue
        if not claim:
            raise InputError(
                f"--{name} {text}: steps on a cluster see gs:// addresses, and the volume that they mount; give such "
                "an address, or --claim NAME:PATH"
            )
        if ".." in path.parts or not path.is_relative_to(folder):
            raise InputError(
                f"--{name} {text}: not under {folder}, where the steps see the files of --claim {claim}; give one there"
            )
