"""The step that every pipeline has: a dataset to a trained model."""

from typing import Any

from kfp import dsl

from components.train import train
from pipelines.cluster.platform import Platform


def trained(p: Any, prepared: dsl.PipelineTask, platform: Platform | None, *, warm_start: str) -> dsl.PipelineTask:
    """The training of the parameters `p` on the dataset that the step `prepared` wrote; `warm_start` as it has it."""
    return train(
        dataset=prepared.outputs["dataset"],
        fingerprint=prepared.outputs["fingerprint"],
        output=p.output,
        registry=prepared.outputs["registry"],
        config=p.config,
        model_file=p.model_file,
        epochs=p.epochs,
        steps=p.steps,
        settings=p.settings,
        strategy=p.strategy,
        warm_start=warm_start,
        seed=p.seed,
        job=platform.job() if platform else {},
        data=prepared.outputs["data"],
    )
