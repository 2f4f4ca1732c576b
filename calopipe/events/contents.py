"""Files of events by their content: each content once, and what a dataset remembers of its input files."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from calopipe.documents import DocumentError, Form
from calopipe.errors import InputError
from calopipe.labels import DATASETS
from calopipe.storage import Location

logger = logging.getLogger(__name__)

# The document in which a dataset remembers its input files; preprocessing writes it.
MEMORY = "inputs.json"
_MEMORY_FORM = Form("calopipe.inputs", 3)


@dataclass(frozen=True)
class Header:
    """What is known of a file without its cells and labels, whether the file was opened or remembered.

    `chunk_events` is the number of events that are stored together, and are best read together. `labels` names the
    labels that the file has beside energy and angle (`calopipe.labels`).
    """

    path: Location
    sha256: str
    events: int
    chunk_events: int
    geometry: Any  # a `calopipe.showers.cells.Geometry`; for a flow, a `calopipe.flow.grid.Grid`
    labels: tuple[str, ...] = field(default=(), kw_only=True)


File = TypeVar("File", bound=Header)


def distinct(files: Sequence[File]) -> list[File]:
    """The files, each content once; a repeated content is a warning. InputError: geometries or labels differ."""
    first_of: dict[str, File] = {}
    for file in files:
        twin = first_of.setdefault(file.sha256, file)
        if twin is not file:
            logger.warning("%s has the same content as %s: used once", file.path, twin.path)
        if differs := file.geometry.difference(files[0].geometry, unit=True):
            name, value, first_value = differs
            raise InputError(
                f"{file.path}: its geometry's {name} is {value}, that of {files[0].path} is {first_value}; use "
                f"{file.geometry.alike}"
            )
        if file.labels != files[0].labels:
            labels, first_labels = (", ".join(DATASETS[name] for name in f.labels) or "none" for f in (file, files[0]))
            raise InputError(
                f"{file.path}: its labels beside energy and theta: {labels}; those of {files[0].path}: {first_labels}; "
                "give files with the same labels"
            )
    return list(first_of.values())


def read_memory(folder: Location | None) -> dict[str, Any]:
    """What the dataset in `folder` remembers: `geometry` as it was given, and `files` by their absolute paths.

    There are no files if there is no folder, or if its document cannot be read.
    """
    if folder is not None:
        with suppress(DocumentError, KeyError):
            document = _MEMORY_FORM.read(folder / MEMORY)
            return {name: document[name] for name in ("geometry", "files")}
    return {"geometry": None, "files": {}}


def write_memory(folder: Location, geometry: str, files: dict[str, Any]) -> None:
    """Write the document by which the dataset in `folder` remembers these files, read with this `geometry`."""
    with suppress(InputError, OSError):  # only time is lost, for example where the dataset may only be read
        _MEMORY_FORM.write(folder / MEMORY, {"geometry": geometry, "files": files})
