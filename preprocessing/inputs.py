"""The input files of a run, and what is known about each file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.contents import Header
from calopipe.events.tolerance import BadFileError, Tolerance
from calopipe.showers.cells import Geometry
from calopipe.storage import Location
from preprocessing.manifest import BadFile
from preprocessing.showers.plausibility import Look

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class InputFile(Header):
    """What is known of an input file without opening it, as long as its stamp (`storage.stamp`) is the same."""

    stamp: tuple[int, int]
    look: Look | None  # at some of its showers; None if none of these is good and holds energy

    def to_json(self) -> dict[str, Any]:
        entries = asdict(self) | {"geometry": self.geometry.to_json()}
        return {name: value for name, value in entries.items() if name != "path"}

    @classmethod
    def from_json(cls, path: Location, document: dict[str, Any]) -> InputFile:
        geometry = Geometry.from_json(document["geometry"])
        look = Look.from_json(document["look"]) if document["look"] else None
        tuples = {name: tuple(document[name]) for name in ("stamp", "labels")}
        return cls(path, **document | tuples | {"geometry": geometry, "look": look})


@dataclass(frozen=True)
class Inputs:
    """The files of a run, each content once, and the bad files that were left out."""

    files: tuple[InputFile, ...]
    bad: tuple[BadFile, ...] = ()


def looked_at(
    path: Location, remembered_files: Mapping[str, InputFile], look: Callable[[Location, tuple[int, int]], InputFile]
) -> InputFile | BadFile:
    """The file `path`: that of `remembered_files` if the stamp is the same, else `look(path, stamp)`.

    InputError: the file is missing, or it changes meanwhile.
    """
    try:
        stamp = storage.stamp(path)
        remembered = remembered_files.get(str(path.absolute()))
        if remembered is not None and stamp == remembered.stamp:
            return replace(remembered, path=path)
        file = look(path, stamp)
        storage.require_unchanged(path, stamp)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except BadFileError as error:
        return BadFile(path.name, str(error))
    return file


def sorted_out(
    inputs: Sequence[InputFile | BadFile], paths: Sequence[Location], tolerance: Tolerance
) -> tuple[list[InputFile], tuple[BadFile, ...]]:
    """The good and the bad files among the `inputs` at `paths`. InputError: too many are bad, or all."""
    bad = tuple(file for file in inputs if isinstance(file, BadFile))
    tolerance.require("file", len(bad), len(paths), bad[0].reason if bad else "")
    for file in bad:
        logger.warning("left out: %s", file.reason)
    files = [file for file in inputs if isinstance(file, InputFile)]
    if not files:
        raise InputError(f"{paths[0]}: none of the {len(paths)} input files can be used")
    return files, bad
