"""Step 2: HDF5 files to a dataset of TFRecord shards."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def preprocess(
    files: list[str],
    fingerprint: str,
    dataset: str,
    threshold_gev: float,
    cut_gev: float,
    split_files: list[str],
    geometry: str,
    beam_options: list[str],
    on_bad_event: str,
    on_bad_file: str,
    max_bad_events: float,
    max_bad_files: float,
    showers: dsl.Input[dsl.Dataset],
    data: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple(  # type: ignore[valid-type]
    "Preprocessed", [("files", list[str]), ("fingerprint", str)]
):
    """Write the dataset, unless it is there.

    Args:
        files: HDF5 files that discover found.
        fingerprint: The content that discover found in them; it is an error if they have another now.

    Returns:
        The files that could be read, and the dataset's fingerprint.
    """
    from components.step import describe, step

    with step():
        from calopipe.events.splits import SplitRule
        from calopipe.events.tolerance import Tolerance
        from calopipe.showers.selection import Selection
        from calopipe.storage import location
        from preprocessing.dataset import Settings
        from preprocessing.inputs import discover
        from preprocessing.pipeline import preprocess

        tolerance = Tolerance(on_bad_event, on_bad_file, max_bad_events, max_bad_files)
        folder = location(dataset)
        found = discover(files, geometry, tolerance=tolerance, memory=folder)
        found.require(fingerprint)
        selection = Selection(rule=SplitRule.parse(split_files), cut_gev=cut_gev, geometry=geometry)
        settings = Settings(selection, threshold_gev)
        manifest = preprocess(found, folder, settings, beam_options, tolerance=tolerance)
        made_from = showers.metadata.get("fingerprint", "")
        describe(data, dataset, made_from=made_from, cut_gev=cut_gev, **manifest.facts())
        metrics.log_metric("showers read", manifest.events["read"])
        metrics.log_metric("showers written", manifest.events["written"])
        for reason, count in manifest.events["dropped"].items():
            metrics.log_metric(f"dropped: {reason}", count)
        used = {source.sha256 for source in manifest.inputs}
        readable = [str(file.path.absolute()) for file in found.files if file.sha256 in used]
        return (readable, manifest.fingerprint)
