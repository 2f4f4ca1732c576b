"""Carry out plans on Beam: in this process, in several, or on the runner that Beam's options name."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.tolerance import Tolerance
from calopipe.progress import progress_bar
from calopipe.storage import Location
from preprocessing.dataset import SHARDS
from preprocessing.field import FieldSettings, Plan

if TYPE_CHECKING:
    import apache_beam as beam


_IN_PROCESS = ("fnapirunner", "directrunner")
_PROGRESS_SECONDS = 1.0, 10.0  # between two looks for receipts: on a disk, and on gs://
_RAISED_BY_WORKER = re.compile(r"InputError: (.+?)(?: \[while running [^\n]*)?$", re.MULTILINE)


def carry_out(
    plans: Sequence[Plan], output: Location, settings: FieldSettings, tolerance: Tolerance, beam_options: Sequence[str]
) -> None:
    """Carry out `plans` on the runner of `beam_options`. InputError: the first reason for which a plan stopped."""
    from preprocessing import shards  # noqa: PLC0415  loads HDF5, which a finished dataset does not need

    folder = output.absolute()
    stop = folder / f".stop-{uuid.uuid4().hex}.partial"  # `storage.sweep` removes it if this process is killed
    common = {"version": metadata.version("calopipe"), "stop": str(stop)}
    try:
        with _progress(output, plans), _run(beam_options) as begun:
            import apache_beam as beam  # noqa: PLC0415  takes three seconds, which a finished dataset does not need

            (
                begun
                | "Plan" >> beam.Create(list(plans))
                | "Spread over workers" >> beam.Reshuffle()
                | "Write shards"
                >> beam.Map(lambda plan: shards.write_shards(str(folder), plan, settings, tolerance, **common))
            )
        if stop.is_file():
            raise InputError(json.loads(stop.read_text()))
    finally:
        stop.unlink(missing_ok=True)


@contextmanager
def _run(beam_options: Sequence[str]) -> Iterator[beam.Pipeline]:
    """An empty pipeline, to be filled in the block. At its end it is carried out on the runner of `beam_options`.

    InputError: the first reason for which an element stopped, or the runner does not exist.
    """
    logging.disable(logging.WARNING)  # Beam warns of Google's client libraries, which nothing here uses
    try:
        prepared = _pipeline(beam_options)
    finally:
        logging.disable(logging.NOTSET)
    try:
        with _quiet_and_interruptible(), prepared as begun:
            yield begun
    except ImportError as error:
        raise InputError(f"Beam's runner is not installed here: {error}") from None
    except Exception as error:
        # runners hand on the traceback of a worker as text, and the error of a worker in this process with a remark
        if raised := _RAISED_BY_WORKER.search(f"{type(error).__name__}: {error}"):
            raise InputError(raised[1]) from None
        if any(option.startswith("--runner") for option in beam_options):
            raise InputError(f"the runner of {' '.join(beam_options)} failed: {str(error)[:500]}") from error
        raise


def _pipeline(beam_options: Sequence[str]) -> beam.Pipeline:
    """An empty pipeline for the runner that `beam_options` name, else for the one in this process."""
    import apache_beam as beam  # noqa: PLC0415
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions  # noqa: PLC0415

    usage = io.StringIO()
    try:
        with redirect_stderr(usage):  # Beam's own parser prints many lines about a bad option, and exits
            options = PipelineOptions(list(beam_options))
            chosen = options.view_as(StandardOptions)
            # DirectRunner would look for a Go binary to download; the runner in this process needs none.
            chosen.runner = chosen.runner or "FnApiRunner"
            runner, name = None, chosen.runner.rpartition(".")[2].lower()
            if name == "daskrunner":  # Beam finds it only by the name of its module
                from preprocessing.on_dask import DaskRunner  # noqa: PLC0415

                runner = DaskRunner()
            declared, passed = (set(options.get_all_options(retain_unknown_options=keep)) for keep in (False, True))
            if name in _IN_PROCESS and (unknown := passed - declared):
                raise ValueError(f"no option of Beam is called {min(unknown)}")
            return beam.Pipeline(runner=runner, options=options)
    except (ValueError, SystemExit) as error:
        reason = usage.getvalue().strip().rpartition("error: ")[2] or error
        raise InputError(f"Beam does not take {' '.join(beam_options)}: {reason}") from None
    except ImportError as error:
        raise InputError(f"Beam's runner is not installed here: {error}; install the extra of its name") from None


@contextmanager
def _quiet_and_interruptible() -> Iterator[None]:
    """While Beam works, errors that are also raised are not logged, and an interrupt ends the process at once.

    Without this Beam would wait for workers that are gone. A shard that was being written has no receipt, and the next
    run makes it again.
    """

    def interrupted(*_: object) -> NoReturn:
        print("\ninterrupted; finished work is kept", file=sys.stderr, flush=True)
        os._exit(130)

    logs = {logging.getLogger(name) for name in ("apache_beam", "distributed", "distributed.client")}
    levels = {log: log.level for log in logs}
    for log in logs:
        log.setLevel(logging.CRITICAL)
    in_main_thread = threading.current_thread() is threading.main_thread()  # signals can only be caught there
    before = signal.signal(signal.SIGINT, interrupted) if in_main_thread else None
    try:
        yield
    finally:
        for log, level in levels.items():
            log.setLevel(level)
        if in_main_thread:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(output: Location, plans: Sequence[Plan]) -> Iterator[None]:
    """Show a bar of the events done, counted by their receipts, with every runner.

    Beam's counters do not serve: a runner in this process has them only at its end, and Dask's runner has none.
    """
    pending = {plan.key: plan.stop - plan.start for plan in plans}
    pause = _PROGRESS_SECONDS[not isinstance(output, Path)]
    finished = threading.Event()
    bar = progress_bar("preprocess", sum(pending.values()), "events")

    def watch() -> None:
        last = False
        while not last:
            last = finished.wait(pause)  # one more look after the end
            with suppress(InputError, OSError):  # a look that fails must not end the work
                names = storage.listing(output / SHARDS)
                for key in [key for key in pending if f"{key}.json" in names]:
                    bar.update(pending.pop(key))

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
        bar.close()
