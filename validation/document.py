"""The document of a verdict, of whatever field: what it is of, whether it stands, and how it is written, last."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.documents import stands
from calopipe.grade import Grade
from calopipe.progress import say
from calopipe.verdict import FORM, REPORT_FILE, VERDICT_FILE, read_verdict, summary_line

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "h5py", "hist")  # that compute the numbers


@dataclass(frozen=True)
class Comparison:
    """A comparison that is asked for: of what (`inputs`), under which grade, and where the answer goes.

    The files of a set are listed under its name, each with its path, `file`. The request depends on the names and
    contents of files, not on where they lie, and on all other inputs.
    """

    output: Path
    grade: Grade
    inputs: dict[str, Any]

    @property
    def request(self) -> str:
        named = {
            side: [{**file, "file": Path(file["file"]).name} for file in files]
            for side, files in self.inputs.items()
            if isinstance(files, list) and files and isinstance(files[0], dict)
        }
        asked = {"grade": self.grade.to_json(), "schema_version": FORM.version, "code_version": _code_version()}
        return storage.fingerprint(self.inputs | named | asked)

    def standing(self) -> dict[str, Any] | None:
        """The verdict that is in `output` already, with its report; None where it is to be made. It is told, too."""
        page = self.output / REPORT_FILE
        try:
            document = read_verdict(self.output / VERDICT_FILE)
        except ValueError:  # none, or not a valid one: make it anew
            return None
        if document["request"] != self.request or not page.is_file():
            return None
        if storage.sha256_of_file(page) != document.get("report_sha256"):
            return None
        stands("verdict stands", self.output / VERDICT_FILE, summary_line(document))
        return document

    def write(self, content: dict[str, Any], page: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
        """Write the report, which `page` makes of the whole document, and then the document of the `content`."""
        versions = {"python": platform.python_version()}
        versions |= {name: importlib.metadata.version(name) for name in _LIBRARIES}  # no part of the request
        inputs = self.inputs | {"code_version": _code_version(), "versions": versions}
        document = FORM.of(content | {"grade": self.grade.to_json(), "inputs": inputs, "request": self.request})
        with storage.replacing(self.output / REPORT_FILE) as temporary:
            temporary.write_text(page(document), encoding="utf-8")
        document["report_sha256"] = storage.sha256_of_file(self.output / REPORT_FILE)
        storage.write_json(self.output / VERDICT_FILE, document)
        say(summary_line(document))
        return document


def _code_version() -> str:
    """The release, and a fingerprint of the code that the verdict depends on, which changes between releases."""
    stage = Path(__file__).parent
    ground = stage.parent / "calopipe"
    own = (file for kind in ("py", "css", "html", "toml") for file in stage.rglob(f"*.{kind}"))
    sources = sorted([*own, *ground.rglob("*.py")])
    contents = storage.fingerprint([path.read_text(encoding="utf-8") for path in sources])
    return f"{importlib.metadata.version('calopipe')}+{contents[:12]}"
