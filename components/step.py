"""What the bodies of several steps have in common."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calopipe.errors import one_line_errors
from calopipe.mirror import address, mirrored
from calopipe.storage import location


@contextmanager
def step() -> Iterator[None]:
    """Report errors as `one_line_errors` does, and let no other user change what the step writes."""
    keep_from_others()
    with one_line_errors():
        yield


@contextmanager
def working(output: str, *names: str) -> Iterator[Path]:
    """A `step` in the run's folder OUTPUT: that on disk, or of a gs:// address a mirror that begins with `names`."""
    with step(), mirrored(location(output), *names) as run:
        yield run


def keep_from_others() -> None:
    """Let no other user change what this process writes if its umask is 0, which is what Kubeflow starts steps with.

    Any other umask stays as it is.
    """
    before = os.umask(0o022)
    if before:
        os.umask(before)


def describe(artifact: Any, place: str, **facts: Any) -> None:
    """Let `artifact` tell of what lies at `place`, and stays there: by its metadata, and the same as its content.

    The address is metadata and not the artifact's URI, since the launcher copies what a URI names into the pod of each
    step that takes the artifact, and fails at one outside the pipeline root. No fact may be None, which Kubeflow's
    store of metadata refuses.
    """
    artifact.metadata |= {"location": place} | facts
    Path(artifact.path).write_text(json.dumps(artifact.metadata, indent=1) + "\n")


def hand_on(
    verdict: dict[str, Any], judged: Any, run: Path, report: Any, summary: Any, metrics: Any
) -> tuple[str, str]:
    """Fill the artifacts `report`, `summary` and `metrics` of the `verdict` in `run`; gives it and its `request`.

    The report says in its metadata where the showers lie that were `judged`.
    """
    from validation.report.summary import summary as markdown

    page = run / "report.html"
    report.metadata |= {"location": address(page), "of": judged.metadata.get("location", "")}
    shutil.copyfile(page, report.path)
    Path(summary.path).write_text(markdown(verdict))
    for name, value in verdict["scalars"].items():
        if value is not None:
            metrics.log_metric(name, value)
    return verdict["verdict"], verdict["request"]
