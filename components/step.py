"""Functions that several steps have in common."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calopipe.errors import InputError, one_line_errors
from calopipe.lock import alone
from calopipe.mirror import address, mirrored
from calopipe.storage import expand, location

# Placeholders of a step's command, then of a run's parameters; [[CurrentTime.2006]] states a format.
_PLACEHOLDER = re.compile(r"\{\{|\[\[(RunUUID|Index|CurrentTime|ScheduledTime)(\..*?)?\]\]")

_MOST_LISTED = 96 * 1024  # bytes of a list; Linux allows 128 KiB for the argument with all parameters of a step


@contextmanager
def working(output: str, name: str, *files: str) -> Iterator[Path]:
    """The folder in which a step works: OUTPUT on disk, or for a gs:// address a mirror that begins with `files`.

    Errors are reported as by `one_line_errors`, and no other user may change what the step writes. It is an error if
    another run holds the lock `name` there now.
    """
    keep_from_others()
    with one_line_errors():
        place = location(output)
        with alone(place, f"logs/.{name}.lock"), mirrored(place, *files) as run:
            yield run


def require_plain(parameters: Mapping[str, object]) -> None:
    """Raise InputError if a text in `parameters` holds a placeholder, or a list is too long for a step.

    Kubeflow writes the parameters of a step into its command and then fills in the placeholders of that command, also
    those in the parameters: `{{$}}` in the name of a file would become a document of hundreds of characters. Its server
    fills in placeholders such as `[[CurrentTime]]` when a run begins. Any other `[[` stays, as in `run[[]1].h5`.
    """
    for name, value in parameters.items():
        if (size := len(json.dumps(value))) > _MOST_LISTED and isinstance(value, list):
            raise InputError(
                f"{name}: the names of {len(value)} files take {size // 1024} KiB, and a step can be given "
                f"{_MOST_LISTED // 1024}; give fewer and larger files, or a folder of a shorter path"
            )
        for text in value if isinstance(value, list) else [value]:
            if mark := _PLACEHOLDER.search(str(text)):
                raise InputError(
                    f"{name} {text}: holds {mark[0]}, which Kubeflow replaces by something else; give it another name"
                )


def prepared(
    patterns: list[str],
    dataset: str,
    settings: Any,
    tolerance: Any,
    beam_options: list[str],
    data: Any,
    metrics: Any,
    **facts: Any,
) -> tuple[list[str], str]:
    """Find the files that match `patterns`, and write the `dataset` of a field's `settings`, unless it is there.

    The artifacts `data` and `metrics` describe the dataset; `data` also holds the `facts`. Returns the files that could
    be read, and the dataset's fingerprint.
    """
    from calopipe.progress import say
    from preprocessing.dataset import news
    from preprocessing.pipeline import preprocess

    place = location(dataset)
    require_plain({"input": [str(path.absolute()) for path in expand(patterns)]})  # the next steps are given these
    inputs = settings.discover(patterns, tolerance, place)
    if since := news(inputs.files, place):
        say(since)
    items = inputs.files[0].geometry.items
    say(f"{len(inputs.files)} files, {sum(file.events for file in inputs.files)} {items}")
    manifest = preprocess(inputs, place, settings, beam_options, tolerance=tolerance)
    used = {source.sha256 for source in manifest.inputs}
    files = [str(file.path.absolute()) for file in inputs.files if file.sha256 in used]
    made_from = {"made_from": " ".join(patterns), "files": len(files), "since_the_last_run": since}
    describe(data, dataset, **made_from, **facts, **manifest.facts())
    metrics.log_metric(f"{items} read", manifest.events["read"])
    metrics.log_metric(f"{items} written", manifest.events["written"])
    for reason, count in manifest.events["dropped"].items():
        metrics.log_metric(f"dropped: {reason}", count)
    return files, manifest.fingerprint


@contextmanager
def offered(packed: str, run: Path) -> Iterator[None]:
    """Within the block, the configs of the user's file in the parameter `packed`, if there is one, can be chosen.

    The file then lies at OUTPUT/model.py, where other processes that the step starts, here or on other nodes, find it.
    """
    from training.models import source

    if not packed:
        yield
        return
    source.ModelFile.unpacked(packed).write(run)
    with source.offered(source.ModelFile.read(run / source.NAME)):
        yield


def require_models(run: Path, model_file: str, **fingerprints: str) -> None:
    """Run the user's file in the parameter `model_file`, if there is one, and check the models in folders of `run`.

    InputError unless each model is whole and has its fingerprint. An empty fingerprint means that there is no model.
    """
    from training.model_folder import require_model
    from training.models.source import ModelFile

    if model_file:
        ModelFile.unpacked(model_file).run()
    for name, fingerprint in fingerprints.items():
        if fingerprint:
            require_model(run / name, fingerprint)


def keep_from_others() -> None:
    """Set the umask, if it is 0, so that no other user can change what this process writes.

    Kubeflow starts steps with 0. Any other umask stays as it is.
    """
    before = os.umask(0o022)
    if before:
        os.umask(before)


def describe(artifact: Any, place: str, **facts: Any) -> None:
    """Describe in `artifact` what lies at `place`, and stays there: in its metadata, and again in its content.

    The address is metadata, not the artifact's URI: the launcher copies what a URI names into the pod of each step that
    takes the artifact, and fails at a URI outside the pipeline root. No fact may be None: Kubeflow's store of metadata
    refuses it.
    """
    artifact.metadata |= {"location": place} | facts
    Path(artifact.path).write_text(json.dumps(artifact.metadata, indent=1) + "\n")


def hand_on(
    verdict: dict[str, Any], judged: Any, run: Path, report: Any, summary: Any, metrics: Any
) -> tuple[str, str]:
    """Fill the artifacts `report`, `summary` and `metrics` of the `verdict` in `run`. Returns verdict and `request`.

    The metadata of the report states where the showers that were `judged` lie.
    """
    from calopipe.verdict import summary as markdown

    page = run / "report.html"
    report.metadata |= {"location": address(page), "of": judged.metadata.get("location", "")}
    shutil.copyfile(page, report.path)
    Path(summary.path).write_text(markdown(verdict))
    for name, value in verdict["scalars"].items():
        if value is not None:
            metrics.log_metric(name, value)
    return verdict["verdict"], verdict["request"]
