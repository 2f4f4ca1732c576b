"""Beam's DaskRunner, with one plan for each task, and with limits to its waits.

To import this module, the extra `dask` must be installed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path

import dask
import distributed
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import Pipeline
from apache_beam.runners.dask import dask_runner

from calopipe.errors import InputError

_LOOK_SECONDS = 2.0  # between two looks at the workers
_NO_WORKER_SECONDS = 300.0  # unless Dask's own setting says otherwise: batch systems take minutes to start a worker
_NO_WORKER_SETTING = "distributed.scheduler.no-workers-timeout"


class DaskRunner(dask_runner.DaskRunner):
    """Beam's runner with limits: on its own it waits for ever for the file of a scheduler, and for workers."""

    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions) -> dask_runner.DaskRunnerResult:
        """Start `pipeline`. InputError: there is no scheduler."""
        chosen = options.view_as(dask_runner.DaskOptions)
        _require_scheduler(chosen)
        if not (chosen.partition_size or chosen.npartitions):
            chosen.partition_size = 1  # Beam's 128 would give a small dataset to one worker
        started = super().run_pipeline(pipeline, options)
        return _Result(started.client, started.futures)


class _Result(dask_runner.DaskRunnerResult):
    """The work that has been handed to Dask."""

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Wait for the end of the work. InputError: the scheduler or the workers are lost."""
        where = self.client.scheduler.address
        try:
            _watch(self.client, self.futures)
            return str(super().wait_until_finish(duration))
        except CancelledError:
            raise InputError(
                f"{where}: the Dask scheduler is lost, or it cancelled the work; run again, finished work is kept"
            ) from None
        except distributed.KilledWorker as error:
            raise InputError(
                f"{where}: several Dask workers died at one piece of the work, the last at "
                f"{error.last_worker.address}; read the log of that worker: often its memory is too small"
            ) from None
        finally:
            self.client.close()  # cancels the work that is not done


def _require_scheduler(chosen: dask_runner.DaskOptions) -> None:
    """Raise InputError unless a client can reach a scheduler, whose address or file is given."""
    file = chosen.scheduler_file
    if file and not Path(file).is_file():  # Dask would wait for it without end
        raise InputError(f"{file}: no such file of a Dask scheduler; start one with `dask scheduler --scheduler-file`")
    where = file or chosen.address or dask.config.get("scheduler-address", None)
    if not where:
        raise InputError(
            "the DaskRunner needs --beam-option dask_client_address=tcp://HOST:PORT or dask_scheduler_file=FILE; "
            "for processes on this machine alone give --workers N"
        )
    connection = chosen.get_all_options(drop_default=True, current_only=True)
    for of_bags in ("partition_size", "npartitions"):
        connection.pop(of_bags, None)
    try:
        distributed.Client(**connection, set_as_default=False).close()
    except (OSError, TypeError, ValueError) as error:  # TypeError: no certificate for tls
        reason = str(error)
    else:
        return
    gc.collect()  # removes the client that could not start: it would hang at the end of the process
    raise InputError(
        f"{where}: no Dask scheduler can be reached ({reason}); start one with `dask scheduler`, or correct "
        "--beam-option dask_client_address=tcp://HOST:PORT"
    )


def _watch(client: distributed.Client, futures: Sequence[distributed.Future]) -> None:
    """Return at the end of the work, good or bad. InputError: no workers for too long."""
    patience = dask.utils.parse_timedelta(dask.config.get(_NO_WORKER_SETTING, None) or _NO_WORKER_SECONDS)
    last_seen = time.monotonic()
    while True:
        with suppress(TimeoutError):
            distributed.wait(futures, timeout=_LOOK_SECONDS)
            return
        try:
            workers = client.nthreads(callback_timeout=patience)
        except OSError as error:  # the scheduler is gone, or does not answer
            raise CancelledError from error
        if workers:
            last_seen = time.monotonic()
        elif time.monotonic() - last_seen > patience:
            raise InputError(
                f"{client.scheduler.address}: no Dask worker for {patience:.0f} s; start some with `dask worker` and "
                f"run again, finished work is kept (DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT=1h waits longer)"
            )
