"""Step 4 of a flow: the roll-outs beside the solver's simulations, a verdict and a report."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def validate_flow(
    files: list[str],
    output: str,
    fingerprint: str,
    grade: str,
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

    Returns:
        The verdict and its `request`, which identifies it.
    """
    from components.step import step

    with step():
        import shutil
        from pathlib import Path

        from calopipe.errors import InputError
        from calopipe.storage import location
        from training.rollout.held_out import rollouts
        from validation.flow.compare import validate
        from validation.report.summary import summary as markdown

        made, found = rollouts(Path(output) / "rollouts")
        if found != fingerprint:
            raise InputError(f"{output}/rollouts: not the roll-outs just made; does another run write there?")
        verdict = validate([location(file) for file in files], made, Path(output), grade=grade)
        shutil.copyfile(Path(output) / "report.html", report.path)
        Path(summary.path).write_text(markdown(verdict))
        for name, value in verdict["scalars"].items():
            if value is not None:
                metrics.log_metric(name, value)
        return (verdict["verdict"], verdict["request"])
