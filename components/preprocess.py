"""Step 1: finds and checks HDF5 files, and makes a dataset of TFRecord shards."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def preprocess(
    patterns: list[str],
    output: str,
    dataset: str,
    registry: str,
    split_files: list[str],
    geometry: str,
    threshold_gev: float,
    cut_gev: float,
    on_bad_event: str,
    on_bad_file: str,
    max_bad_events: float,
    max_bad_files: float,
    on_doubt: str,
    beam_options: list[str],
    data: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple(  # type: ignore[valid-type]
    "Preprocessed",
    [("files", list[str]), ("fingerprint", str), ("dataset", str), ("registry", str), ("reading", dict)],
):
    """Find the HDF5 files that match `patterns`, the pipeline's input, and write the dataset, unless it is there.

    Returns:
        The files that could be read, the dataset's fingerprint, the folders of dataset and registry, and how the files
        are read (`calopipe.showers.selection`), which the other steps are given.
    """
    from components.step import prepared, working

    with working(output, "preprocess"):
        from calopipe.showers.selection import Reading
        from calopipe.storage import location
        from preprocessing.showers.manifest import Settings
        from training.registry.registry import Registry

        promoted = registry or f"{output}/registry"
        Registry(location(promoted)).require_usable()  # checked now, hours before a model is promoted
        reading = Reading(
            dataset=dataset or f"{output}/dataset",
            split_files=tuple(split_files),
            geometry=geometry,
            threshold_gev=threshold_gev,
            cut_gev=cut_gev,
            on_bad_event=on_bad_event,
            on_bad_file=on_bad_file,
            max_bad_events=max_bad_events,
            max_bad_files=max_bad_files,
            on_doubt=on_doubt,
        )
        files, fingerprint = prepared(
            patterns, reading.dataset, Settings.of(reading), reading, beam_options, data, metrics, cut_gev=cut_gev
        )
        return (files, fingerprint, reading.dataset, promoted, vars(reading))
