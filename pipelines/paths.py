"""The paths among the pipeline's parameters, and whether the steps on a cluster see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from calopipe.errors import InputError


def paths(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The name of each parameter that holds a path, with the path; a grade is one if it is a file."""
    yield from ((name, pattern) for name in ("input", "floor") for pattern in parameters.get(name, ()))
    yield from ((name, parameters[name]) for name in ("output", "dataset", "registry") if parameters.get(name))
    if (grade := parameters.get("grade", "")).endswith(".toml"):
        yield "grade", grade


def require_mounted(parameters: Mapping[str, Any], claim: str) -> None:
    """Raise InputError unless every step sees the paths in `parameters`, by `claim` = "NAME:PATH" or on gs://."""
    folder = claim.partition(":")[2]
    for name, text in paths(parameters):
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
