"""The pipeline: a straight line of idempotent steps, each arrow a file in the run's folder.

    discover -> preprocess -> train -> generate -> validate -> promote

Where generation is divided among pods, tasks that make a share each stand before `generate`, which joins the shares.
There are no conditionals: `promote` reads the verdict and refuses, and a step whose output is there does nothing. Each
step passes on fingerprints of what the next one must find in the run's folder.

Kubeflow's cache is off for every step: it compares parameters and cannot see whether a folder still holds what a step
once wrote there. Each step looks for itself, which costs seconds.

The signature and the docstring below are the one place that states the pipeline's parameters: kfp compiles them, and
`pipelines.parameters` makes the options of the command line from them.
"""

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

NAME = "calorimeter"


def define(platform: Platform | None = None, *, shares: int = 1) -> dsl.base_component.BaseComponent:
    """The pipeline; with what its steps need on a cluster, if it is to run on one.

    Showers are generated in so many `shares`, or as many as the platform has pods for it.
    """
    shares = platform.generation_pods if platform else shares
    if shares < 1:
        raise InputError(f"--generation-pods is {shares}, expected at least 1")

    @dsl.pipeline(
        name=NAME,
        description="Calorimeter showers to a validated generative model.",
        pipeline_root=(platform.pipeline_root if platform else "") or None,
    )
    def calorimeter(  # noqa: PLR0917  the form that kfp reads the parameters from
        input: list[str],  # noqa: A002  the name that a person sees in the UI
        output: str,
        dataset: str = "",
        registry: str = "",
        config: str = "fast",
        epochs: int = 0,
        steps: int = 0,
        model_file: str = "",
        settings: dict = {},  # type: ignore[type-arg]  # noqa: B006  kfp takes defaults as literals
        warm_start: str = "incumbent",
        strategy: str = platform.strategy if platform else "one-device",
        per_event: int = 1,
        grade: str = "precision",
        challenge: bool = False,
        split_files: list[str] = [],  # noqa: B006  kfp takes defaults as literals
        geometry: str = "",
        threshold_gev: float = 0.0,
        cut_gev: float = 0.0,
        beam_options: list[str] = [],  # noqa: B006
        on_bad_event: str = "stop",
        on_bad_file: str = "stop",
        max_bad_events: float = 0.01,
        max_bad_files: float = 0.1,
        on_doubt: str = "stop",
        seed: int = 1,
    ) -> None:
        """Calorimeter showers to a validated generative model.

        Args:
            input: Paths or globs of HDF5 files, as the steps see them.
            output: Folder of the run, as the steps see it: dataset, model, generated.h5, report.html, verdict.json.
            dataset: Folder or gs:// address of a dataset that several runs share; empty for OUTPUT/dataset.
            registry: Folder or gs:// address of promoted models, which runs may share; empty for OUTPUT/registry.
            config: Training config: fast, standard, full, 3dgan or small; of the others none generates showers.
            epochs: Passes over the train split; 0 for the config's.
            steps: End the training after so many steps; 0 for the config's, or as many as the epochs take.
            model_file: A file of Python that states a model of your own, its text compressed as submit.py does it.
            settings: Training settings in place of the config's own, for example {"average": 0.999}.
            warm_start: What training begins with: incumbent, the weights of the registry's current model, or none.
            strategy: Distribution strategy: one-device, mirrored for all GPUs of a machine, multi-worker, or tpu.
            per_event: Generated showers for each event of the test split.
            grade: Acceptance criteria: precision, gan, or a TOML file of them.
            challenge: Add CaloChallenge's numbers to the report: distances, classifiers, times of generation.
            split_files: Whole files assigned to a split, SPLIT=PATTERN each.
            geometry: Geometry that the files do not state: FILE.toml, FILE.xml or a name, and NAME=VALUE,...
            threshold_gev: Cells below it are set to zero.
            cut_gev: Showers that deposit no more GeV are dropped; 0 drops those without any energy.
            beam_options: Options of Apache Beam, --NAME=VALUE each.
            on_bad_event: What to do about an event with NaN, negative or impossible values: stop, or skip it.
            on_bad_file: What to do about a file that cannot be read as showers: stop, or skip it.
            max_bad_events: Stop, although corrupt events are skipped, past this share of the events.
            max_bad_files: Stop, although corrupt files are skipped, past this share of the files.
            on_doubt: What to do about a file whose unit, scale or labels are not plausible: stop, or warn.
            seed: Seed of weights, order, noise and resampling.
        """
        found = discover(
            patterns=input,
            geometry=geometry,
            on_bad_event=on_bad_event,
            on_bad_file=on_bad_file,
            max_bad_files=max_bad_files,
            dataset=dataset,
            registry=registry,
            output=output,
            on_doubt=on_doubt,
        )
        prepared = preprocess(
            files=found.outputs["files"],
            fingerprint=found.outputs["fingerprint"],
            dataset=found.outputs["dataset"],
            threshold_gev=threshold_gev,
            cut_gev=cut_gev,
            split_files=split_files,
            geometry=geometry,
            beam_options=beam_options,
            on_bad_event=on_bad_event,
            on_bad_file=on_bad_file,
            max_bad_events=max_bad_events,
            max_bad_files=max_bad_files,
            showers=found.outputs["showers"],
        )
        model = train(
            dataset=found.outputs["dataset"],
            fingerprint=prepared.outputs["fingerprint"],
            output=output,
            registry=found.outputs["registry"],
            config=config,
            model_file=model_file,
            epochs=epochs,
            steps=steps,
            settings=settings,
            strategy=strategy,
            warm_start=warm_start,
            seed=seed,
            job=platform.job() if platform else {},
            devices=platform.devices() if platform else "",
            data=prepared.outputs["data"],
        )
        test_split = {
            "files": prepared.outputs["files"],
            "dataset": found.outputs["dataset"],
            "split_files": split_files,
            "geometry": geometry,
            "cut_gev": cut_gev,
            "on_bad_event": on_bad_event,
            "output": output,
            "seed": seed,
            "challenge": challenge,
        }
        asked = test_split | {
            "fingerprint": model.outputs["fingerprint"],
            "incumbent": model.outputs["incumbent"],
            "per_event": per_event,
            "model_file": model_file,
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
            grade=grade,
            showers=showers.outputs["showers"],
        )
        promotion = promote(
            output=output,
            fingerprint=model.outputs["fingerprint"],
            verdict=verdict.outputs["request"],
            registry=found.outputs["registry"],
            model=model.outputs["model"],
        )
        tasks = [found, prepared, model, showers, *divided, verdict, promotion]
        equip(tasks, platform)
        for number, task in enumerate(divided, 1):
            task.set_display_name(f"Generate share {number} of {shares}")

    return calorimeter
