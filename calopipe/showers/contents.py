"""Files of showers by their content: each content once, and hashes that a dataset remembers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol, TypeVar

from calopipe import storage
from calopipe.errors import InputError
from calopipe.showers.cells import Geometry
from calopipe.storage import Location

logger = logging.getLogger(__name__)

# The document in which a dataset remembers its input files; preprocessing writes it.
MEMORY = "inputs.json"
MEMORY_KIND = "calopipe.inputs"
MEMORY_SCHEMA_VERSION = 2


class Content(Protocol):
    """A file by what it holds, whether it was opened or remembered."""

    @property
    def path(self) -> Location: ...
    @property
    def sha256(self) -> str: ...
    @property
    def geometry(self) -> Geometry: ...


File = TypeVar("File", bound=Content)


def distinct(files: Sequence[File]) -> list[File]:
    """Files of one geometry, each content once; another geometry is an error, a content again a warning."""
    first_of: dict[str, File] = {}
    for file in files:
        twin = first_of.setdefault(file.sha256, file)
        if twin is not file:
            logger.warning("%s has the same content as %s: used once", file.path, twin.path)
        if file.geometry != files[0].geometry:
            raise InputError(
                f"{file.path}: geometry {file.geometry.to_json()} differs from that of {files[0].path}, "
                f"{files[0].geometry.to_json()}; use files of one detector, or give --geometry"
            )
    return list(first_of.values())


def remembered_hashes(memory: Location | None) -> dict[tuple[str, tuple[int, int]], str]:
    """SHA-256 of files by their absolute path and stamp, as the folder `memory` of a dataset remembers them.

    Empty where `memory` is None or its document cannot be read.
    """
    if memory is None:
        return {}
    try:
        document = storage.read_json(memory / MEMORY, kind=MEMORY_KIND, schema_version=MEMORY_SCHEMA_VERSION)
        return {(text, tuple(file["stamp"])): file["sha256"] for text, file in document["files"].items()}
    except (storage.DocumentError, KeyError, TypeError, ValueError, AttributeError):
        return {}
