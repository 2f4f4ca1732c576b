"""Step 1 of a flow: from HDF5 files of simulations to a dataset of pairs of frames."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def preprocess_flow(
    patterns: list[str],
    output: str,
    split_files: list[str],
    pair_step: int,
    beam_options: list[str],
    on_bad_event: str,
    on_bad_file: str,
    data: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple(  # type: ignore[valid-type]
    "Preprocessed", [("files", list[str]), ("fingerprint", str), ("dataset", str), ("registry", str)]
):
    """Find the simulations that match `patterns`, and write OUTPUT/dataset, unless it is there.

    Returns:
        The files that could be read, the dataset's fingerprint, and the folders of dataset and registry.
    """
    from components.step import prepared, working

    with working(output, "preprocess"):
        from calopipe.events.splits import SplitRule
        from calopipe.events.tolerance import Tolerance
        from preprocessing.flow.manifest import PairSettings

        tolerance = Tolerance(on_bad_event=on_bad_event, on_bad_file=on_bad_file)
        settings, dataset = PairSettings(SplitRule.parse(split_files), pair_step), f"{output}/dataset"
        files, fingerprint = prepared(patterns, dataset, settings, tolerance, beam_options, data, metrics)
        return (files, fingerprint, dataset, f"{output}/registry")
