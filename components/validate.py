"""Step 5: Monte Carlo against generated showers; a verdict and a report."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def validate(
    files: list[str],
    dataset: str,
    split_files: list[str],
    geometry: str,
    cut_gev: float,
    on_bad_event: str,
    output: str,
    fingerprint: str,
    incumbent: str,
    grade: str,
    seed: int,
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple(  # type: ignore[valid-type]
    "Validated", [("verdict", str), ("request", str)]
):
    """Compare the test split with the generated showers, or leave a verdict that stands.

    Args:
        files: HDF5 files of Monte Carlo showers.
        dataset: Folder or gs:// address of their dataset, which remembers their hashes.
        split_files: Whole files given to a split, SPLIT=PATTERN each.
        geometry: Geometry that the files do not state, NAME=VALUE,...; empty for none.
        cut_gev: Showers of the files that deposit no more are left out.
        on_bad_event: stop, or skip corrupt events.
        output: Folder of the run, for verdict.json and report.html.
        fingerprint: SHA-256 of the generated showers there.
        incumbent: SHA-256 of the incumbent's showers there; empty without an incumbent.
        grade: Name of the acceptance criteria, or a TOML file of them.
        seed: Of the resampling.

    Returns:
        accepted, rejected or inconclusive, and what the verdict answers, by which it is known.
    """
    from components.step import step

    with step():
        import shutil
        from pathlib import Path

        from calopipe.showers.selection import Selection
        from calopipe.showers.splits import SplitRule
        from calopipe.storage import location, require_file
        from validation.compare import validate
        from validation.report.summary import summary as markdown

        generated, rival = Path(output) / "generated.h5", Path(output) / "incumbent.h5"
        require_file(generated, fingerprint)
        if incumbent:
            require_file(rival, incumbent)
        selection = Selection(
            split="test",
            rule=SplitRule.parse(split_files),
            cut_gev=cut_gev,
            bad_event=on_bad_event,
            geometry=geometry,
            memory=location(dataset),
        )
        verdict = validate(
            [location(file) for file in files],
            [generated],
            Path(output),
            incumbent=[rival] if incumbent else [],
            training=[location(file) for file in files],
            selection=selection,
            grade=grade,
            seed=seed,
        )
        shutil.copyfile(Path(output) / "report.html", report.path)
        Path(summary.path).write_text(markdown(verdict))
        for name, value in verdict["scalars"].items():
            if value is not None:
                metrics.log_metric(name, value)
        return (verdict["verdict"], verdict["request"])
