"""The pipeline: a chain of idempotent steps. Each arrow is a file in the run's folder.

    preprocess -> train -> generate -> validate -> promote

If generation is divided among pods, each of several tasks before `generate` makes a share, and `generate` joins the
shares. There are no conditionals: `promote` reads the verdict and may refuse, and a step whose output is there does
nothing. Each step hands on fingerprints of the files that the next step must find in the run's folder.

Kubeflow's cache is off for every step: the cache compares parameters and cannot see whether a folder still holds what a
step once wrote there. Each step checks the folder itself, which takes seconds.
"""

from dataclasses import fields
from typing import Any

from calopipe.showers.selection import Reading
from components.generate import generate
from components.preprocess import preprocess
from components.promote import promote
from components.validate import validate
from pipelines.cluster.platform import Platform
from pipelines.cluster.pods import equip
from pipelines.train_task import train_task


def steps(p: Any, platform: Platform | None) -> None:
    """Define the steps for the parameters `p`. For a run on a cluster, they get what they need on `platform`."""
    prepared = preprocess(
        patterns=p.input,
        output=p.output,
        registry=p.registry,
        beam_options=p.beam_options,
        **{field.name: getattr(p, field.name) for field in fields(Reading)},
    )
    model = train_task(p, prepared, platform, warm_start=p.warm_start)
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
