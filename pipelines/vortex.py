"""The pipeline of a flow: it trains a model on simulations, rolls the model out, and judges the roll-outs.

    preprocess-flow -> train -> generate-flow -> validate-flow

The train step is the same as for showers. As in `pipelines.calorimeter`, steps hand on fingerprints, and a step whose
output is there does nothing. Nothing is promoted: each run trains a model of its own.
"""

from typing import Any

from calopipe.errors import InputError
from components.flow.generate import generate_flow
from components.flow.preprocess import preprocess_flow
from components.flow.validate import validate_flow
from pipelines.cluster.platform import Platform
from pipelines.cluster.pods import equip
from pipelines.train_task import train_task


def steps(p: Any, platform: Platform | None) -> None:
    """Define the steps for the parameters `p`. For a run on a cluster, they get what they need on `platform`."""
    if platform and platform.generation_pods > 1:
        raise InputError(f"--generation-pods {platform.generation_pods}: roll-outs are not shared out; leave it out")
    read = ("output", "split_files", "pair_step", "beam_options", "on_bad_event", "on_bad_file")
    prepared = preprocess_flow(patterns=p.input, **{name: getattr(p, name) for name in read})
    model = train_task(p, prepared, platform, warm_start="none")
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
