"""What can be found wrong with a run before any of its steps starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.errors import InputError
from calopipe.flow.files import open_flow
from calopipe.grade import load_grade
from calopipe.showers.contents import MEMORY
from calopipe.showers.detectors import split_values
from calopipe.showers.flaws import Tolerance
from calopipe.showers.selection import Selection
from calopipe.showers.splits import SplitRule
from components.parameters import require_plain
from pipelines.cluster.platform import Platform
from pipelines.parameters import FLOW, defaults
from pipelines.paths import require_mounted
from preprocessing.dataset import Settings
from preprocessing.flow.manifest import PairSettings
from preprocessing.flow.pairs import discover_pairs
from preprocessing.inputs import discover
from training.configs import FitConfig, named_config, require_origin, with_settings


def check(parameters: Mapping[str, Any], platform: Platform | None = None) -> None:
    """Raise InputError where options are wrong or, of a run here, input or output.

    Of a run on a cluster, which `platform` is given for, the paths and the strategy must fit that.
    """
    require_plain(parameters)
    values = defaults() | dict(parameters)
    rule = SplitRule.parse(values["split_files"])
    Settings(Selection(cut_gev=values["cut_gev"]), values["threshold_gev"])
    split_values(values["geometry"])
    config = _config(parameters, values, platform)
    require_origin(values["warm_start"])
    if values["registry"]:
        storage.location(values["registry"])
    tolerance = Tolerance(
        *(values[name] for name in ("on_bad_event", "on_bad_file", "max_bad_events", "max_bad_files"))
    )
    storage.on_disk(values["output"], "--output")
    if values["per_event"] < 1:
        raise InputError(f"--per-event is {values['per_event']}, expected at least 1")
    if platform:
        platform.require_strategy(config.strategy)
        require_mounted(parameters, platform.claim)
    else:
        load_grade(values["grade"])
        _check_input(values, rule, tolerance, config)
        storage.require_writable(Path(values["output"]))


def check_flow(parameters: Mapping[str, Any], platform: Platform | None = None) -> None:
    """The same of a run of the pipeline of a flow."""
    require_plain(parameters)
    values = defaults(FLOW) | dict(parameters)
    config = _config(parameters, values, platform)
    settings = PairSettings(SplitRule.parse(values["split_files"]), values["pair_step"])
    tolerance = Tolerance(values["on_bad_event"], values["on_bad_file"])
    output = storage.on_disk(values["output"], "--output")
    if values["rollout_steps"] < 0:
        raise InputError(f"--rollout-steps is {values['rollout_steps']}, expected at least 0")
    if platform:
        platform.require_strategy(config.strategy)
        require_mounted(parameters, platform.claim)
    else:
        load_grade(values["grade"], "flow")
        config.check(discover_pairs(values["input"], settings, tolerance).files[0].geometry)
        for path in storage.expand(values["floor"]) if values["floor"] else ():
            open_flow(path)
        storage.require_writable(output)


def _config(parameters: Mapping[str, Any], values: Mapping[str, Any], platform: Platform | None) -> FitConfig:
    given = {name: parameters.get(name) for name in ("epochs", "steps", "strategy", "seed")}
    if platform:
        given["strategy"] = given["strategy"] or platform.strategy
    return with_settings(named_config(values["config"], **given), values["settings"])


def _check_input(values: Mapping[str, Any], rule: SplitRule, tolerance: Tolerance, config: FitConfig) -> None:
    dataset = storage.location(values["dataset"] or f"{values['output']}/dataset")
    memory = dataset if (dataset / MEMORY).is_file() else None  # a check makes no folder
    files = discover(values["input"], values["geometry"], tolerance=tolerance, memory=memory).files
    require_plain({"input": [str(file.path.absolute()) for file in files]})
    config.check(files[0].geometry)
    for split, least in (("train", config.batch), ("test", 1)):
        most = sum(file.events for file in files if rule.may_hold(split, file.path.name))  # how many, the cells decide
        if most < least:
            raise InputError(
                f"{files[0].path}: the {split} split of the input holds {most} showers at most, at least {least} are "
                "needed; give more files, or another --split-file"
            )
