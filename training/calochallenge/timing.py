"""How long a model takes to make showers, as CaloChallenge states it."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from calopipe import storage
from calopipe.documents import require_own, stands
from calopipe.progress import say
from calopipe.showers.calochallenge import TIMING
from training.generation.conditions import Conditions, LabelsAlone
from training.generation.generator import Generator
from training.models.precision import processor

_BATCHES = {1: 30, 100: 3, 10_000: 1}  # sizes of batches, and how often each is timed


def time_generation(model: Path, conditions: Conditions | LabelsAlone, output: Path) -> None:
    """Write to `output`, a JSON file, the median time of a shower in ms for each batch, on one device.

    The labels are those of the `conditions`, repeated. Start, tracing, reading and writing are not timed. A batch is
    made at once: 10,000 showers of 65,025 cells are 2.6 GB. A file of this model and device is left as it is.
    """
    batches = {batch: Generator(model, batch) for batch in _BATCHES}
    device = _device()
    require_own(output, TIMING.kind)
    request = storage.fingerprint([next(iter(batches.values())).card.fingerprint(), device])
    if TIMING.standing(output, request) is not None:
        stands("times stand", output)
        return
    times = [
        {"batch": batch, "ms_per_shower": 1000 * _seconds(generator, conditions, _BATCHES[batch]) / batch}
        for batch, generator in batches.items()
    ]
    TIMING.write(output, {**device, "times": times, "request": request})
    say("; ".join(f"batch {timed['batch']:,}: {timed['ms_per_shower']:.3g} ms a shower" for timed in times))


def _seconds(generator: Generator, conditions: Conditions | LabelsAlone, repeats: int) -> float:
    labels = {name: np.resize(label, generator.batch) for name, label in conditions.events.labels.items()}
    seconds = []
    for repeat in range(repeats + 1):  # the first one traces, and is not timed
        began = time.perf_counter()
        for _ in generator.showers(labels, seed=repeat):
            pass
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def _device() -> dict[str, Any]:
    """The name of the accelerator, or of the processor, and the cores of this process."""
    cores = len(os.sched_getaffinity(0))
    accelerators = [device for device in tf.config.list_physical_devices() if device.device_type != "CPU"]
    if accelerators:
        details = tf.config.experimental.get_device_details(accelerators[0])
        name = str(details.get("device_name", accelerators[0].device_type))
    else:
        lines = processor().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "processor")
    return {"device": name, "accelerator": bool(accelerators), "cores": cores}
