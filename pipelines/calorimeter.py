"""The pipeline: a straight line of idempotent steps, each arrow a file in the run's folder.

    discover -> preprocess -> train -> generate -> validate -> promote

Where generation is divided among pods, tasks that make a share each stand before `generate`, which joins the shares.
There are no conditionals: `promote` reads the verdict and refuses, and a step whose output is there does nothing. Each
step passes on fingerprints of what the next one must find in the run's folder.

Kubeflow's cache is off for every step: it compares parameters and cannot see whether a folder still holds what a step
once wrote there. Each step looks for itself, which costs seconds.

`pipelines.parameters` states the pipeline's parameters, which `steps` is given as `p`.
"""

from typing import Any

from kfp import dsl

from calopipe.errors import InputError
from components.discover import discover
from components.generate import generate
from components.preprocess import preprocess
from components.promote import promote
from components.train import train
from components.validate import validate
from pipelines.cluster.platform import Platform
from pipelines.cluster.pods import equip
from pipelines.parameters import SHOWERS, function_of


def define(platform: Platform | None = None, *, shares: int = 1) -> dsl.base_component.BaseComponent:
    """The pipeline; with what its steps need on a cluster, if it is to run on one.

    Showers are generated in so many `shares`, or as many as the platform has pods for it.
    """
    shares = platform.generation_pods if platform else shares
    if shares < 1:
        raise InputError(f"--generation-pods is {shares}, expected at least 1")

    def steps(p: Any) -> None:
        discovered = discover(
            patterns=p.input,
            output=p.output,
            dataset=p.dataset,
            registry=p.registry,
            split_files=p.split_files,
            geometry=p.geometry,
            threshold_gev=p.threshold_gev,
            cut_gev=p.cut_gev,
            on_bad_event=p.on_bad_event,
            on_bad_file=p.on_bad_file,
            max_bad_events=p.max_bad_events,
            max_bad_files=p.max_bad_files,
            on_doubt=p.on_doubt,
        )
        reading = discovered.outputs["reading"]
        prepared = preprocess(
            files=discovered.outputs["files"],
            fingerprint=discovered.outputs["fingerprint"],
            reading=reading,
            beam_options=p.beam_options,
            showers=discovered.outputs["showers"],
        )
        model = train(
            dataset=discovered.outputs["dataset"],
            fingerprint=prepared.outputs["fingerprint"],
            output=p.output,
            registry=discovered.outputs["registry"],
            config=p.config,
            model_file=p.model_file,
            epochs=p.epochs,
            steps=p.steps,
            settings=p.settings,
            strategy=p.strategy,
            warm_start=p.warm_start,
            seed=p.seed,
            job=platform.job() if platform else {},
            data=prepared.outputs["data"],
        )
        test_split = {
            "files": prepared.outputs["files"],
            "reading": reading,
            "output": p.output,
            "seed": p.seed,
            "challenge": p.challenge,
        }
        asked = test_split | {
            "fingerprint": model.outputs["fingerprint"],
            "incumbent": model.outputs["incumbent"],
            "per_event": p.per_event,
            "model_file": p.model_file,
            "model": model.outputs["model"],
        }
        # first, since kfp numbers the tasks of one component: the shares are generate-2, generate-3, ...
        showers = generate(**asked)
        divided = [generate(**asked, share=f"{number}/{shares}") for number in range(shares if shares > 1 else 0)]
        showers.after(*divided)
        verdict = validate(
            **test_split,
            fingerprint=showers.outputs["fingerprint"],
            incumbent=showers.outputs["incumbent"],
            grade=p.grade,
            showers=showers.outputs["showers"],
        )
        promotion = promote(
            output=p.output,
            fingerprint=model.outputs["fingerprint"],
            verdict=verdict.outputs["request"],
            registry=discovered.outputs["registry"],
            model=model.outputs["model"],
        )
        tasks = [discovered, prepared, model, showers, *divided, verdict, promotion]
        equip(tasks, platform)
        for number, task in enumerate(divided, 1):
            task.set_display_name(f"Generate share {number} of {shares}")

    strategy = platform.strategy if platform else "one-device"
    return dsl.pipeline(
        name=SHOWERS,
        description="Calorimeter showers to a validated generative model.",
        pipeline_root=(platform.pipeline_root if platform else "") or None,
    )(function_of(SHOWERS, steps, strategy))
