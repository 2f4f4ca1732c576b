"""The step that every pipeline has: a dataset to a trained model."""

from typing import Any

from kfp import dsl

from components.train import train
from pipelines.cluster.platform import Platform
from training.configs import PARAMETERS


def trained(p: Any, prepared: dsl.PipelineTask, platform: Platform | None, *, warm_start: str) -> dsl.PipelineTask:
    """The training of the parameters `p` on the dataset that the step `prepared` wrote; `warm_start` as it has it."""
    asked = ("output", "config", "model_file", "settings", *PARAMETERS)
    handed_on = ("dataset", "fingerprint", "registry", "data")
    return train(
        **{name: getattr(p, name) for name in asked},
        **{name: prepared.outputs[name] for name in handed_on},
        warm_start=warm_start,
        job=platform.job() if platform else {},
    )
