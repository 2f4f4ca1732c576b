"""JSON documents that state their kind, their version and the request that they were made for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calopipe import storage
from calopipe.errors import InputError
from calopipe.progress import say
from calopipe.storage import Location

_GENERATOR = '<meta name="generator" content="calopipe">'  # in all pages; earlier versions did not write it


class DocumentError(InputError):
    """A document that is missing, or not the one expected."""


def read_json(path: Location, *kinds: str, schema_version: int) -> dict[str, Any]:
    """Read a JSON document of this version and of one of these kinds. DocumentError: it is missing, or another."""
    kind = kinds[0]
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise DocumentError(f"{path}: no such file; a {kind} was expected there") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise DocumentError(f"{path}: not a {kind}: not valid JSON ({error})") from None
    if not isinstance(document, dict) or document.get("kind") not in kinds:
        raise DocumentError(f"{path}: not a {kind}: its 'kind' is missing or another")
    if document.get("schema_version") != schema_version:
        raise DocumentError(
            f"{path}: {document['kind']} of schema version {document.get('schema_version')}, this program reads "
            f"{schema_version}; make it again with this version"
        )
    return document


def require_own(path: Location, *kinds: str, page: Location | None = None) -> None:
    """Raise InputError if the file at `path`, which would be replaced, is another program's: not of these `kinds`.

    The version does not count. The `page` beside `path` counts only where no file is at `path`: it must then state that
    calopipe made it.
    """
    file = path if path.is_file() or page is None else page
    if not file.is_file():
        return
    try:
        own = _GENERATOR in file.read_text() if file == page else json.loads(file.read_text())["kind"] in kinds
    except (KeyError, TypeError, ValueError, RecursionError):
        own = False
    if not own:
        raise InputError(f"{file}: exists, and calopipe did not write it; move it, or give another --output")


@dataclass(frozen=True)
class Form:
    """A kind of document, and the version of it that this program reads and writes."""

    kind: str
    version: int

    def of(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The document of this content."""
        return {"kind": self.kind, "schema_version": self.version, **content}

    def read(self, path: Location) -> dict[str, Any]:
        """The document in `path`. DocumentError: there is none, or one of another kind or version."""
        return read_json(path, self.kind, schema_version=self.version)

    def write(self, path: Location, content: Mapping[str, Any]) -> dict[str, Any]:
        """Write the document of this content to `path`, atomically. Returns the document."""
        document = self.of(content)
        storage.write_json(path, document)
        return document

    def standing(self, path: Location, request: str) -> dict[str, Any] | None:
        """The document in `path` if it was made for the `request` that it states, else None."""
        try:
            document = self.read(path)
        except InputError:
            return None
        return document if document.get("request") == request else None


def stands(what: str, place: Location, detail: str = "") -> None:
    """Print that `what`, which a command was asked for, is at `place` already."""
    say(f"{what}: {place}{detail and f', {detail}'}; nothing to do")


def finite(value: float) -> float | None:
    """`value` for JSON: None for infinity and NaN, which JSON does not have."""
    return float(value) if math.isfinite(value) else None
