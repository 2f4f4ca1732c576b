"""Step 4 of a flow: compares the roll-outs with the solver's simulations, and writes a verdict and a report."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def validate_flow(
    files: list[str],
    output: str,
    fingerprint: str,
    grade: str,
    floor: list[str],
    rollouts: dsl.Input[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
) -> NamedTuple(  # type: ignore[valid-type]
    "Validated", [("verdict", str), ("request", str)]
):
    """Compare OUTPUT/rollouts with the simulations that they were started from.

    Args:
        files: HDF5 files of simulations.
        fingerprint: The roll-outs that were made; it is an error if others are there now.
        floor: The same flows by another solver, or at another resolution.

    Returns:
        The verdict and its `request`, which identifies it.
    """
    from components.step import hand_on, working

    with working(output, "validate", "rollouts/*.h5", "verdict.json", "report.html") as run:
        from calopipe.errors import InputError
        from calopipe.storage import expand, location
        from training.rollout.held_out import rollouts as rollouts_in
        from validation.flow.compare import validate

        made, actual = rollouts_in(run / "rollouts")
        if actual != fingerprint:
            raise InputError(f"{output}/rollouts: not the roll-outs just made; does another run write there?")
        floors = expand(floor) if floor else ()
        verdict = validate([location(file) for file in files], made, run, floor=floors, grade=grade)
        return hand_on(verdict, rollouts, run, report, summary, metrics)
