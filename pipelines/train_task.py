"""The step that every pipeline has: it trains a model on a dataset."""

from typing import Any

from kfp import dsl

from components.train import train
from pipelines.cluster.platform import Platform
from training.configs import PARAMETERS


def train_task(p: Any, prepared: dsl.PipelineTask, platform: Platform | None, *, warm_start: str) -> dsl.PipelineTask:
    """The task that trains on the dataset of the step `prepared`; `p` are the parameters, `warm_start` the step's."""
    parameters = ("output", "config", "model_file", "settings", *PARAMETERS)
    handed_on = ("dataset", "fingerprint", "registry", "data")
    return train(
        **{name: getattr(p, name) for name in parameters},
        **{name: prepared.outputs[name] for name in handed_on},
        warm_start=warm_start,
        job=platform.job() if platform else {},
    )
