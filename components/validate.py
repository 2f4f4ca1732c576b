"""Step 4: compares generated showers with Monte Carlo, and writes a verdict and a report."""

from typing import Any, NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def validate(
    files: list[str],
    reading: dict,  # type: ignore[type-arg]  # kfp knows no other kind
    output: str,
    fingerprint: str,
    incumbent: str,
    grade: str,
    seed: int,
    challenge: bool,
    showers: dsl.Input[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple(  # type: ignore[valid-type]
    "Validated", [("verdict", str), ("request", str)]
):
    """Compare the test split with the generated showers, unless the verdict is there: OUTPUT/verdict.json, report.html.

    Args:
        files: HDF5 files of Monte Carlo showers.
        reading: How they are read, as preprocess says.
        fingerprint: SHA-256 of the generated showers.
        incumbent: SHA-256 of the incumbent's showers; empty without an incumbent.
        challenge: Whether to add CaloChallenge's numbers. Its classifiers are trained here: OUTPUT/classifier.json.

    Returns:
        accepted, rejected or inconclusive, and the verdict's `request`, which identifies it.
    """
    from components.step import hand_on, working

    with working(output, "validate", "*.json", "report.html", ".classifier.json.parts/**") as run:
        from calopipe.showers.selection import Reading
        from calopipe.storage import location, require_file
        from validation.calochallenge.numbers import Documents
        from validation.compare import validate

        generated, rival = (location(f"{output}/{name}.h5") for name in ("generated", "incumbent"))
        require_file(generated, fingerprint)
        if incumbent:
            require_file(rival, incumbent)
        reference = [location(file) for file in files]
        chosen: dict[str, Any] = {"selection": Reading(**reading).selection("test"), "seed": seed}
        documents = None
        if challenge:
            from training.calochallenge.discriminate import discriminate  # loads TensorFlow

            discriminate(reference, [generated], run / "classifier.json", **chosen)
            documents = Documents.read(run / "classifier.json", run / "timing.json")
        verdict = validate(
            reference,
            [generated],
            run,
            incumbent=[rival] if incumbent else [],
            training=reference,
            grade=grade,
            challenge=documents,
            **chosen,
        )
        return hand_on(verdict, showers, run, report, summary, metrics)
