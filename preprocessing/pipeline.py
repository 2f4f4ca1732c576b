"""HDF5 files to a dataset: discover the inputs, carry out what is not yet done through Beam, compose the manifest."""

from __future__ import annotations

import fnmatch
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from preprocessing import dataset, records, shards, storage
from preprocessing.dataset import Manifest, Settings, Shard, Source
from preprocessing.errors import InputError, describe
from preprocessing.layouts import ShowerFile, open_all
from preprocessing.progress import progress_bar

logger = logging.getLogger(__name__)

_PROGRESS_SECONDS = 1.0


def discover(patterns: Sequence[str], geometry: str = "") -> list[ShowerFile]:
    """The input files that `patterns` name, each checked as far as its header and labels go, each content once.

    Showers that this program generated are refused: they are no Monte Carlo to learn from or to be judged by.
    """
    files = open_all(storage.expand(patterns), geometry)
    for file in files:
        if file.request is not None:
            raise InputError(f"{file.path}: holds generated showers, Monte Carlo is expected; leave it out of --input")
    return files


def sources(files: Sequence[ShowerFile]) -> list[Source]:
    return [Source(file.path.name, file.sha256, file.events) for file in files]


def content_fingerprint(files: Sequence[ShowerFile]) -> str:
    """Names the content of `files`, whatever they are called and in whatever order they come."""
    return storage.fingerprint(sorted(file.sha256 for file in files))


def require_content(files: Sequence[ShowerFile], fingerprint: str) -> None:
    """Raise InputError unless the content of `files` is what was fingerprinted before."""
    if content_fingerprint(files) != fingerprint:
        raise InputError(f"{files[0].path} or a file beside it changed since it was discovered; run again")


def preprocess(
    files: Sequence[ShowerFile], output: Path, settings: Settings, beam_options: Sequence[str] = ()
) -> Manifest:
    """Write the dataset of `files` into `output`, or leave it where it stands.

    `beam_options` are Beam's own ("--runner=...", "--direct_num_workers=2"); without a runner the pipeline runs in
    this process. Raises InputError naming every file that could not be used.
    """
    for split, pattern in settings.split_rule.by_file:
        if not any(fnmatch.fnmatch(file.path.name, pattern) for file in files):
            raise InputError(f"--split-file {split}={pattern}: matches none of the {len(files)} input files by name")
    request = dataset.request_fingerprint(sources(files), settings)
    if (standing := _standing(output, request)) is not None:
        print(f"dataset stands: {output / dataset.MANIFEST}, {standing.events['written']} showers; nothing to do")
        return standing
    (output / dataset.SHARDS).mkdir(parents=True, exist_ok=True)
    plans = shards.plan(files, settings)
    missing = [plan for plan in plans if not _done(output, plan)]
    print(f"preprocessing {sum(file.events for file in files)} showers of {len(files)} files: {len(missing)} of "
          f"{len(plans)} pieces to do")  # fmt: skip
    for plan in missing:  # the error of an earlier try, or a receipt whose shards are gone
        shards.receipt_path(output, plan.key).unlink(missing_ok=True)
    if missing:
        with _progress(output, missing):
            _run(output, missing, settings, beam_options)
    manifest = _compose(output, files, plans, settings, request)
    dataset.write_manifest(output, manifest)
    return manifest


def _standing(output: Path, request: str) -> Manifest | None:
    """The dataset in `output`, if it is the one that `request` names and whole."""
    if not (output / dataset.MANIFEST).is_file():
        return None
    try:
        manifest = dataset.read_manifest(output)
    except InputError as error:
        logger.warning("%s", error)
        return None
    return manifest if manifest.fingerprint == request else None


def _done(output: Path, plan: shards.Plan) -> bool:
    receipt = shards.read_receipt(output, plan.key)
    return receipt is not None and "error" not in receipt


def _run(output: Path, plans: Sequence[shards.Plan], settings: Settings, beam_options: Sequence[str]) -> None:
    logging.disable(logging.WARNING)  # Beam warns of Google's client libraries, which nothing here uses
    import apache_beam as beam  # noqa: PLC0415  three seconds that a dataset that stands need not wait
    from apache_beam.options.pipeline_options import PipelineOptions  # noqa: PLC0415

    logging.disable(logging.NOTSET)

    # DirectRunner would look for a Go binary to download; the runner in this process needs none.
    chosen = any(option.startswith("--runner") for option in beam_options)
    options = PipelineOptions([*beam_options, *([] if chosen else ["--runner=FnApiRunner"])])
    try:
        prepared = beam.Pipeline(options=options)
    except ValueError as error:
        raise InputError(f"Beam does not take {' '.join(beam_options)}: {error}") from None
    try:
        with prepared as pipeline:
            (
                pipeline
                | "Plan" >> beam.Create(list(plans))
                | "Spread over workers" >> beam.Reshuffle()
                | "Write shards" >> beam.Map(lambda plan: shards.write_shards(output, plan, settings))
            )
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:  # Beam wraps what a worker raised
            if (line := describe(cause)) is not None:
                raise InputError(line) from None
            cause = cause.__cause__ or cause.__context__
        raise


def _compose(
    output: Path, files: Sequence[ShowerFile], plans: Sequence[shards.Plan], settings: Settings, request: str
) -> Manifest:
    """The manifest of the receipts that the plans left."""
    receipts = [shards.read_receipt(output, plan.key) for plan in plans]
    errors = [receipt["error"] for receipt in receipts if receipt is not None and "error" in receipt]
    if errors:
        more = f" (and {len(errors) - 1} more like it)" if len(errors) > 1 else ""
        raise InputError(errors[0] + more)
    whole = [receipt for receipt in receipts if receipt is not None]
    if len(whole) != len(plans):
        raise InputError(f"{output}: {len(plans) - len(whole)} pieces vanished while they were made; run again")
    dropped: dict[str, int] = {}
    for receipt in whole:
        for reason, count in receipt["events"]["dropped"].items():
            dropped[reason] = dropped.get(reason, 0) + count
    kept = dict.fromkeys((str(file.path) for file in files), 0)
    for plan, receipt in zip(plans, whole, strict=True):
        kept[plan.path] += receipt["events"]["written"]
    for path, showers in kept.items():
        if showers == 0:
            raise InputError(
                f"{path}: no shower is above the cut of {settings.cut_gev} GeV; its unit may be another than "
                f"{files[0].geometry.file_unit_gev} GeV (--geometry file_unit_gev=...), or lower --cut-gev"
            )
    written = sum(kept.values())
    return Manifest(
        fingerprint=request,
        settings=settings.to_json(),
        geometry=files[0].geometry,
        index_type=records.index_type(files[0].geometry),
        events={"read": sum(r["events"]["read"] for r in whole), "written": written, "dropped": dropped},
        energy_gev=_range(whole, "energy_gev"),
        theta_rad=_range(whole, "theta_rad"),
        inputs=tuple(sources(files)),
        shards=tuple(Shard(**shard) for receipt in whole for shard in receipt["shards"]),
    )


def _range(receipts: Sequence[dict[str, Any]], label: str) -> tuple[float, float]:
    """Lowest and highest value of a label over the receipts that hold showers."""
    bounds = [receipt[label] for receipt in receipts if receipt[label] is not None]
    return min(low for low, _ in bounds), max(high for _, high in bounds)


@contextmanager
def _progress(output: Path, plans: Sequence[shards.Plan]) -> Iterator[None]:
    """A bar of the showers done, read off the receipts: so it serves any runner, wherever its workers are."""
    pending = {plan.key: plan.stop - plan.start for plan in plans}
    finished = threading.Event()
    bar = progress_bar("preprocess", sum(pending.values()), "showers")

    def watch() -> None:
        last = False
        while not last:
            last = finished.wait(_PROGRESS_SECONDS)  # one more look after the end
            for key in [key for key in pending if shards.receipt_path(output, key).is_file()]:
                bar.update(pending.pop(key))

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
        bar.close()
