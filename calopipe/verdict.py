"""The verdict of any field, the document that a promotion trusts: how it is made, found again and read."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.documents import Form, require_own, stands
from calopipe.errors import InputError
from calopipe.grade import Grade
from calopipe.progress import say
from calopipe.storage import Location

FORM = Form("calopipe.verdict", 2)
BETTER, WORSE, ALIKE = "better", "worse", "no significant difference"  # a challenger, beside the incumbent
VERDICT_FILE, REPORT_FILE, OVERVIEW_FILE = "verdict.json", "report.html", "overview.png"
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "h5py", "hist")  # these compute the numbers
_NEEDED = ("verdict", "grade", "paired", "events", "criteria", "hard_failures", "cautions", "inputs", "request")


def overall(answers: Sequence[str], hard_failures: Sequence[object], cautions: Sequence[object]) -> str:
    """The verdict that the answers of the criteria ("pass", "fail", "inconclusive") add up to.

    Rejected: at least one failure. Accepted: all criteria pass, and there is no caution. Otherwise, or without any
    criterion: inconclusive. As all tests must pass, acceptance needs no correction for their number.
    """
    if hard_failures or "fail" in answers:
        return "rejected"
    return "accepted" if answers and set(answers) == {"pass"} and not cautions else "inconclusive"


def require_own_verdict(output: Location) -> None:
    """Raise InputError if a verdict in `output` would replace another program's files."""
    require_own(output / VERDICT_FILE, FORM.kind, page=output / REPORT_FILE)
    picture = output / OVERVIEW_FILE
    if picture.is_file() and not any((output / name).is_file() for name in (VERDICT_FILE, REPORT_FILE)):
        with picture.open("rb") as file:
            if b"calopipe" in file.read():
                return
        raise InputError(f"{picture}: exists, and calopipe did not write it; move it, or give another --output")


def read_verdict(path: Location) -> dict[str, Any]:
    """Read a verdict. InputError: another kind or version, incomplete, or not what its criteria add up to."""
    document = FORM.read(path)
    if missing := [key for key in _NEEDED if key not in document]:
        raise InputError(f"{path}: not a whole {FORM.kind}: {missing[0]!r} is missing; validate again")
    answers = [criterion.get("verdict") for criterion in document["criteria"]]
    if None in answers:
        raise InputError(f"{path}: not a whole {FORM.kind}: a criterion has no verdict; validate again")
    expected = overall(answers, document["hard_failures"], document["cautions"])
    if document["verdict"] != expected:
        raise InputError(f"{path}: says {document['verdict']!r} where its criteria say {expected!r}; validate again")
    return document


@dataclass(frozen=True)
class Comparison:
    """A comparison that is asked for: its `inputs`, its grade, and the folder for the answer.

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
        terms = {"grade": self.grade.to_json(), "schema_version": FORM.version, "code_version": _code_version()}
        return storage.fingerprint(self.inputs | named | terms)

    def standing(self) -> dict[str, Any] | None:
        """The verdict for this request that is in `output` already; None if it must be made. It is printed, too.

        The report must be there as well. InputError: files of another program have these names.
        """
        require_own_verdict(self.output)
        page = self.output / REPORT_FILE
        try:
            document = read_verdict(self.output / VERDICT_FILE)
        except ValueError:  # no verdict, or not a valid one: make it anew
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
    ground = Path(__file__).parent
    stage = ground.parent / "validation"
    stage_files = (file for kind in ("py", "css", "html", "toml") for file in stage.rglob(f"*.{kind}"))
    sources = sorted([*stage_files, *ground.rglob("*.py")])
    contents = storage.fingerprint([path.read_text(encoding="utf-8") for path in sources])
    return f"{importlib.metadata.version('calopipe')}+{contents[:12]}"


def summary_line(document: dict[str, Any]) -> str:
    """The verdict, how many criteria led to it, and how the candidate compares with an incumbent."""
    answers = [criterion["verdict"] for criterion in document["criteria"]]
    counts = ", ".join(f"{answers.count(answer)} {answer}" for answer in ("pass", "fail", "inconclusive"))
    beside = f"; against the incumbent: {document['incumbent']['outcome']}" if document.get("incumbent") else ""
    return f"{document['verdict']} (grade {document['grade']['name']}); criteria: {counts}{beside}"


def number(value: float | None, scale: float = 1) -> str:
    return "none" if value is None else f"{scale * value:.4g}"


def span(ends: Sequence[float | None] | None) -> str:
    """An interval as text; None as an end means that the interval is open there."""
    if ends is None:
        return "none yet"
    low, high = ends
    if low is None or high is None:
        return f"at most {number(high)}" if low is None else f"at least {number(low)}"
    return f"{number(low)} to {number(high)}"


def summary(document: dict[str, Any], criteria: int = 10) -> str:
    """The verdict in Markdown, for a user interface that shows nothing else: the worst `criteria` in a table."""
    events = document["events"]
    pairing = "paired" if document["paired"] else "unpaired"
    samples = document.get("samples", "showers")
    counts = f"{events['candidate']:,} {samples} against {events['reference']:,} of the reference, {pairing}"
    lines = [
        f"# {document['verdict'].capitalize()}",
        "",
        f"Grade {_plain(document['grade']['name'])}; {counts}.",
        "",
        *(f"- **{_plain(failure['name'])}**: {_plain(failure['detail'])}" for failure in document["hard_failures"]),
        *_overall_figures(document),
        "",
        "| criterion | bin | value | 95 % interval | tolerance | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for row in document["criteria"][:criteria]:
        cells = (row["name"], row["bin"], number(row["value"]), span(row["interval"]), span(row["tolerance"]))
        lines.append("| " + " | ".join(map(_plain, (*cells, row["verdict"]))) + " |")
    return "\n".join(lines) + "\n"


def _overall_figures(document: dict[str, Any]) -> list[str]:
    """A line for each figure of similarity that is known, and a line for the incumbent."""
    distances, classifier, neighbours = (document.get(key) or {} for key in ("distances", "classifier", "neighbours"))
    lines = []
    if (fpd := distances.get("fpd")) and fpd["value"] is not None:
        lines.append(f"- FPD x 1000: {number(fpd['value'], 1000)} (0 is perfect)")
    aucs = [f"{name} {number(score['value'])}" for name, score in classifier.items() if score["value"] is not None]
    if aucs:
        lines.append(f"- AUC of a classifier: {', '.join(aucs)} (0.5 is perfect)")
    if (coverage := neighbours.get("coverage")) and coverage["value"] is not None:
        lines.append(f"- Coverage, relative to Monte Carlo's own: {number(coverage['value'])} (1 is perfect)")
    if incumbent := document.get("incumbent"):
        difference = f"difference {number(incumbent['difference'])}, 95 % interval {span(incumbent['interval'])}"
        lines.append(f"- Against the incumbent: **{_plain(incumbent['outcome'])}**; {difference}, below zero is nearer")
    return lines


def _plain(text: str) -> str:
    """`text` without characters that Markdown or HTML would interpret."""
    escaped = "".join("\\" + character if character in r"\`*_[]|#" else character for character in text)
    return " ".join(escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())
