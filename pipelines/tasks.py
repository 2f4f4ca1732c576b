"""The pipelines: chains of idempotent steps. Each arrow is a file in the run's folder.

    preprocess -> train -> generate -> validate -> promote
    preprocess-flow -> train -> generate-flow -> validate-flow

If generation is divided among pods, each of several tasks before `generate` makes a share, and `generate` joins the
shares. There are no conditionals: `promote` reads the verdict and may refuse, and a step whose output is there does
nothing. Each step hands on fingerprints of the files that the next step must find in the run's folder.

Kubeflow's cache is off for every step: the cache compares parameters and cannot see whether a folder still holds what a
step once wrote there. Each step checks the folder itself, which takes seconds.
"""

from dataclasses import fields
from typing import Any

from kfp import dsl

from calopipe.errors import InputError
from calopipe.showers.selection import Reading
from components.flow.generate import generate_flow
from components.flow.preprocess import preprocess_flow
from components.flow.validate import validate_flow
from components.generate import generate
from components.preprocess import preprocess
from components.promote import promote
from components.train import train
from components.validate import validate
from pipelines.cluster.platform import Platform
from pipelines.cluster.pods import equip
from training.configs import PARAMETERS


def calorimeter(p: Any, platform: Platform | None) -> None:
    """Define the steps of showers for the parameters `p`. On a cluster, they get what they need on `platform`."""
    prepared = preprocess(
        patterns=p.input,
        output=p.output,
        registry=p.registry,
        beam_options=p.beam_options,
        **{field.name: getattr(p, field.name) for field in fields(Reading)},
    )
    model = _train_task(p, prepared, platform, warm_start=p.warm_start)
    test_split = {
        "files": prepared.outputs["files"],
        "reading": prepared.outputs["reading"],
        "output": p.output,
        "seed": p.seed,
        "challenge": p.challenge,
    }
    arguments = test_split | {
        "fingerprint": model.outputs["fingerprint"],
        "incumbent": model.outputs["incumbent"],
        "per_event": p.per_event,
        "model_file": p.model_file,
        "model": model.outputs["model"],
    }
    shares = platform.generation_pods if platform else 1
    # made first, since kfp numbers the tasks of one component: the shares are then generate-2, generate-3, ...
    showers = generate(**arguments)
    divided = [generate(**arguments, share=f"{number}/{shares}") for number in range(shares if shares > 1 else 0)]
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
        registry=prepared.outputs["registry"],
        model=model.outputs["model"],
    )
    tasks = [prepared, model, showers, *divided, verdict, promotion]
    equip(tasks, platform)
    for number, task in enumerate(divided, 1):
        task.set_display_name(f"Generate share {number} of {shares}")


def vortex(p: Any, platform: Platform | None) -> None:
    """Define the steps of a flow, as `calorimeter` does. No model is promoted: each run trains a model of its own."""
    if platform and platform.generation_pods > 1:
        raise InputError(f"--generation-pods {platform.generation_pods}: roll-outs are not shared out; leave it out")
    read = ("output", "split_files", "pair_step", "beam_options", "on_bad_event", "on_bad_file")
    prepared = preprocess_flow(patterns=p.input, **{name: getattr(p, name) for name in read})
    model = _train_task(p, prepared, platform, warm_start="none")
    made = generate_flow(
        output=p.output,
        fingerprint=model.outputs["fingerprint"],
        files=prepared.outputs["files"],
        split_files=p.split_files,
        rollout_steps=p.rollout_steps,
        model_file=p.model_file,
        model=model.outputs["model"],
    )
    verdict = validate_flow(
        files=prepared.outputs["files"],
        output=p.output,
        fingerprint=made.outputs["Output"],
        grade=p.grade,
        floor=p.floor,
        rollouts=made.outputs["rollouts"],
    )
    equip([prepared, model, made, verdict], platform)


def _train_task(p: Any, prepared: dsl.PipelineTask, platform: Platform | None, *, warm_start: str) -> dsl.PipelineTask:
    """The task that trains on the dataset of the step `prepared`; `p` are the parameters, `warm_start` the step's."""
    parameters = ("output", "config", "model_file", "settings", *PARAMETERS)
    handed_on = ("dataset", "fingerprint", "registry", "data")
    return train(
        **{name: getattr(p, name) for name in parameters},
        **{name: prepared.outputs[name] for name in handed_on},
        warm_start=warm_start,
        job=platform.job() if platform else {},
    )
