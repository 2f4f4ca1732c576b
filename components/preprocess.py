"""Step 2: HDF5 files to a dataset of TFRecord shards."""

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
    metrics: dsl.Output[dsl.Metrics],
) -> str:
    """Write the dataset, or leave it where it stands.

    Args:
        files: HDF5 files that discover found.
        fingerprint: The content that discover found in them; another by now is an error.
        dataset: Folder of the dataset.
        threshold_gev: Cells below it are set to zero.
        cut_gev: Showers that deposit no more are dropped.
        split_files: Whole files given to a split, SPLIT=PATTERN each.
        geometry: Geometry that the files do not state, NAME=VALUE,...; empty for none.
        beam_options: Options for Apache Beam, --NAME=VALUE each; empty runs in the step's own process.

    Returns:
        The dataset's fingerprint.
    """
    from preprocessing.errors import one_line_errors

    with one_line_errors():
        from pathlib import Path

        from preprocessing.dataset import Settings
        from preprocessing.pipeline import discover, preprocess, require_content
        from preprocessing.splits import SplitRule

        found = discover(files, geometry)
        require_content(found, fingerprint)
        settings = Settings(threshold_gev, cut_gev, split_rule=SplitRule.parse(split_files), geometry=geometry)
        manifest = preprocess(found, Path(dataset), settings, beam_options)
        metrics.log_metric("showers read", manifest.events["read"])
        metrics.log_metric("showers written", manifest.events["written"])
        for reason, count in manifest.events["dropped"].items():
            metrics.log_metric(f"dropped: {reason}", count)
        return manifest.fingerprint
