"""The pipeline of a flow: simulations to a model that is rolled out, and a verdict on the roll-outs.

    preprocess-flow -> train -> generate-flow -> validate-flow

The train step is that of showers. Steps hand on fingerprints, and one whose output is there does nothing, as in
`pipelines.calorimeter`. Nothing is promoted: each run trains a model of its own.
"""

from kfp import dsl

from components.generate_flow import generate_flow
from components.preprocess_flow import preprocess_flow
from components.train import train
from components.validate_flow import validate_flow
from pipelines.cluster.platform import Platform
from pipelines.cluster.pods import equip

NAME = "vortex"


def define(platform: Platform | None = None, *, shares: int = 1) -> dsl.base_component.BaseComponent:  # noqa: ARG001
    """The pipeline; with what its steps need on a cluster, if it is to run on one. Roll-outs are not shared out."""

    @dsl.pipeline(
        name=NAME,
        description="Simulated flows to a model that is rolled out, and judged by its vortex street.",
        pipeline_root=(platform.pipeline_root if platform else "") or None,
    )
    def vortex(  # noqa: PLR0917  the form that kfp reads the parameters from
        input: list[str],  # noqa: A002  the name that a person sees in the UI
        output: str,
        config: str = "pix2pix-small",
        epochs: int = 0,
        steps: int = 0,
        model_file: str = "",
        settings: dict = {},  # type: ignore[type-arg]  # noqa: B006  kfp takes defaults as literals
        strategy: str = platform.strategy if platform else "one-device",
        pair_step: int = 1,
        rollout_steps: int = 0,
        grade: str = "precision",
        floor: list[str] = [],  # noqa: B006
        split_files: list[str] = [],  # noqa: B006
        beam_options: list[str] = [],  # noqa: B006
        on_bad_event: str = "stop",
        on_bad_file: str = "stop",
        seed: int = 1,
    ) -> None:
        """Simulated flows to a model that is rolled out, and judged by its vortex street.

        Args:
            input: Paths or globs of HDF5 files of simulations, as the steps see them.
            output: Folder of the run, as the steps see it: dataset, model, rollouts, report.html, verdict.json.
            config: Training config: pix2pix-small or pix2pix.
            epochs: Passes over the train split; 0 for the config's.
            steps: End the training after so many steps; 0 for the config's, or as many as the epochs take.
            model_file: A file of Python that states a model of your own, its text compressed as submit.py does it.
            settings: Training settings in place of the config's own, for example {"noise": 0.02}.
            strategy: Distribution strategy: one-device, mirrored for all GPUs of a machine, multi-worker, or tpu.
            pair_step: Intervals of the files between the two frames of a pair, the model's step.
            rollout_steps: Steps of a roll-out; 0 for as many as its simulation has frames.
            grade: Acceptance criteria: precision, or a TOML file of them.
            floor: Paths or globs of the test split's flows by another solver, or on a finer grid, for comparison.
            split_files: Whole files assigned to a split, SPLIT=PATTERN each.
            beam_options: Options of Apache Beam, --NAME=VALUE each.
            on_bad_event: What to do about a frame with NaN: stop, or skip its pairs.
            on_bad_file: What to do about a file that is no flow, or does not shed vortices: stop, or skip it.
            seed: Seed of weights, order and noise.
        """
        prepared = preprocess_flow(
            patterns=input,
            output=output,
            split_files=split_files,
            pair_step=pair_step,
            beam_options=beam_options,
            on_bad_event=on_bad_event,
            on_bad_file=on_bad_file,
        )
        model = train(
            dataset=prepared.outputs["dataset"],
            fingerprint=prepared.outputs["fingerprint"],
            output=output,
            registry=prepared.outputs["registry"],
            config=config,
            model_file=model_file,
            epochs=epochs,
            steps=steps,
            settings=settings,
            strategy=strategy,
            warm_start="none",
            seed=seed,
            job=platform.job() if platform else {},
            devices=platform.devices() if platform else "",
            data=prepared.outputs["data"],
        )
        made = generate_flow(
            output=output,
            fingerprint=model.outputs["fingerprint"],
            files=prepared.outputs["files"],
            split_files=split_files,
            rollout_steps=rollout_steps,
            model_file=model_file,
            model=model.outputs["model"],
        )
        verdict = validate_flow(
            files=prepared.outputs["files"],
            output=output,
            fingerprint=made.outputs["Output"],
            grade=grade,
            floor=floor,
            rollouts=made.outputs["rollouts"],
        )
        tasks = [prepared, model, made, verdict]
        equip(tasks, platform)

    return vortex
