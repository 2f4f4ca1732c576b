"""Step 3: showers of the new model, and of the model in use, with the labels of the test split."""

from typing import Any, NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def generate(
    output: str,
    fingerprint: str,
    incumbent: str,
    files: list[str],
    reading: dict,  # type: ignore[type-arg]  # kfp knows no other kind
    per_event: int,
    seed: int,
    challenge: bool,
    model_file: str,
    model: dsl.Input[dsl.Model],
    showers: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    share: str = "",
) -> NamedTuple(  # type: ignore[valid-type]
    "Generated", [("fingerprint", str), ("incumbent", str)]
):
    """Generate OUTPUT/generated.h5 and, with an incumbent, OUTPUT/incumbent.h5; showers that are there are kept.

    Args:
        fingerprint: The model that train wrote; it is an error if another is there now.
        incumbent: The incumbent's model that train copied; empty without one.
        model_file: The user's file that states the model, as train was given it; no other runs.
        files: HDF5 files whose test split gives the energies and angles.
        reading: How they are read, as preprocess says.
        challenge: Whether to write OUTPUT/timing.json, too: the time of a shower in batches of 1, 100 and 10,000.
        share: I/N makes the share I, from 0, of N pods, and no file; the step without one joins what they made.

    Returns:
        SHA-256 of the file, and of the incumbent's, which is empty without one; both are empty of a share.
    """
    from components.step import describe, require_models, working

    with working(output, f"generate{share}".replace("/", "-"), "model/*", "incumbent/*", "*", ".*.parts/*") as run:
        from calopipe.events.tolerance import SKIP
        from calopipe.showers.selection import Reading
        from calopipe.storage import location, sha256_of_file
        from training.calochallenge.timing import time_generation
        from training.generation.conditions import Conditions
        from training.generation.generate import EXTRAPOLATE, generate
        from training.generation.part_files import Share

        require_models(run, model_file, model=fingerprint, incumbent=incumbent)
        conditions = Conditions([location(file) for file in files], Reading(**reading).selection("test"))
        part = Share.parse(share) if share else None
        settings: dict[str, Any] = {"per_event": per_event, "seed": seed, "share": part}
        made, rivals = run / "generated.h5", run / "incumbent.h5"
        if incumbent:
            generate(run / "incumbent", conditions, rivals, outside=EXTRAPOLATE, **settings)
        # last, so that the step's last message is about it
        count = generate(run / "model", conditions, made, outside=SKIP, measured=metrics.log_metric, **settings)
        if challenge and not share:
            time_generation(run / "model", conditions, run / "timing.json")
        sha256 = "" if share else sha256_of_file(made)
        facts = {"share": share} if share else {"sha256": sha256, "showers": count}
        made_from = model.metadata.get("fingerprint", fingerprint)
        describe(showers, f"{output}/generated.h5", made_from=made_from, seed=seed, **facts)
        return (sha256, sha256_of_file(rivals) if incumbent and not share else "")
