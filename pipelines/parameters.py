"""The pipeline's parameters as options of the command line.

The module of a pipeline, such as `calorimeter.py`, states each parameter once: name, type and default in the signature,
help in the docstring. This module reads its source and does not import it, which would load kfp for a second before an
error in an option could be shown.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from calopipe.errors import InputError
from calopipe.storage import location
from components.parameters import require_plain

SHOWERS, FLOW = PIPELINES = ("calorimeter", "vortex")  # the modules of pipelines

# Options with another name than their parameter, since they are given once for each of its elements, or another value.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "model_file": {"metavar": "FILE.py"},
    "settings": {"flag": "--set", "metavar": "NAME=VALUE"},
    "split_files": {"flag": "--split-file", "metavar": "SPLIT=PATTERN"},
    "beam_options": {"flag": "--beam-option", "metavar": "NAME=VALUE", "type": "--{}".format},
}
_NUMBERS: Mapping[str, Mapping[str, Any]] = {
    "int": {"type": int, "metavar": "N"},
    "float": {"type": float, "metavar": "X"},
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of the pipeline; `default` is None where it has none, or where the cluster decides it."""

    name: str
    type: str
    default: Any
    help: str


@cache
def stated(pipeline: str = SHOWERS) -> tuple[Parameter, ...]:
    """The parameters of the `pipeline`, in the order of the signature."""
    tree = ast.parse(Path(__file__).with_name(f"{pipeline}.py").read_text(encoding="utf-8"))
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == pipeline)
    helps = dict(re.findall(r"^ +(\w+): (.+)$", ast.get_docstring(function) or "", re.MULTILINE))
    arguments = function.args.args
    defaults = [None] * (len(arguments) - len(function.args.defaults)) + [*map(_literal, function.args.defaults)]
    return tuple(
        Parameter(each.arg, ast.unparse(each.annotation or ast.Constant("str")), default, helps[each.arg])
        for each, default in zip(arguments, defaults, strict=True)
    )


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:  # computed from what the cluster has
        return None


def defaults(pipeline: str = SHOWERS) -> dict[str, Any]:
    """The default of each parameter; None for one without."""
    return {each.name: each.default for each in stated(pipeline)}


def add_choice(task: argparse.ArgumentParser) -> None:
    """The option that chooses the pipeline."""
    task.add_argument(
        "--pipeline", choices=PIPELINES, default=SHOWERS, help="of showers (default), or vortex, of a flow"
    )


def add_options(task: argparse.ArgumentParser, pipeline: str = SHOWERS) -> None:
    """An option for each parameter but input and output, which mean something else to each command."""
    for each in stated(pipeline):
        if each.name in {"input", "output"}:
            continue
        option = {**_OPTIONS.get(each.name, {}), **_NUMBERS.get(each.type, {})}
        flag = option.pop("flag", f"--{each.name.replace('_', '-')}")
        action = {"bool": "store_true"}.get(each.type, "store" if each.type in {"str", *_NUMBERS} else "append")
        text = each.help[0].lower() + each.help[1:].rstrip(".").replace("%", "%%")
        if each.name in _OPTIONS:
            text = text.partition(",")[0]  # the rest is the form of the parameter as a whole
        text += f" (default: {each.default})" if each.default else ""
        task.add_argument(flag, dest=each.name, action=action, default=None, help=text, **option)


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The values of the parameters that `options` name; those left out keep the pipeline's defaults.

    Files that describe a calorimeter or state a model are read here: the steps, which may run elsewhere, are given what
    they say.
    """
    pipeline = getattr(options, "pipeline", SHOWERS)
    values: dict[str, Any] = {each.name: getattr(options, each.name, None) for each in stated(pipeline)}
    if values.get("geometry"):
        from calopipe.showers.detectors import settled  # noqa: PLC0415  numpy

        require_plain({"geometry": values["geometry"]})
        values["geometry"] = settled(values["geometry"])
    if values.get("model_file"):
        from training.models.source import ModelFile  # noqa: PLC0415  numpy

        values["model_file"] = ModelFile.read(location(values["model_file"])).packed()
    if values.get("settings") is not None:
        values["settings"] = dict(_settings(values["settings"]))
    return {name: value for name, value in values.items() if value is not None}


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
