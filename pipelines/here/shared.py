"""Paths as the steps on a cluster see them: on the volume claim that all of them mount, or on gs://."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from calopipe.errors import InputError

_ALSO_ON_GCS = {"input", "dataset", "registry"}


def require_shared(parameters: Mapping[str, Any], claim: str) -> None:
    """Raise InputError unless every step sees the paths in the pipeline's `parameters`, by `claim` = "NAME:PATH"."""
    if not claim:
        raise InputError("--claim is missing: the steps hand files on in a volume that all mount; give NAME:PATH")
    folder = claim.partition(":")[2]
    for name, text in _paths(parameters):
        path = PurePosixPath(text)
        if name in _ALSO_ON_GCS and text.startswith("gs:"):
            continue
        if ".." in path.parts or not path.is_relative_to(folder):
            raise InputError(
                f"--{name} {text}: not under {folder}, where the steps see the files of --claim {claim}; give one there"
            )


def _paths(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each path with the name of its parameter; of a grade only where it is a file's."""
    yield from (("input", pattern) for pattern in parameters["input"])
    yield from ((name, parameters[name]) for name in ("output", "dataset", "registry") if parameters.get(name))
    if (grade := parameters.get("grade", "")).endswith(".toml"):
        yield "grade", grade
