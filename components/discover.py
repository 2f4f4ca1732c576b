"""Step 1: find the input files, check what can be checked cheaply, and name their content."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def discover(
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
    showers: dsl.Output[dsl.Dataset],
) -> NamedTuple(  # type: ignore[valid-type]
    "Discovered",
    [("files", list[str]), ("fingerprint", str), ("dataset", str), ("registry", str), ("reading", dict)],
):
    """Find and check the HDF5 files that match `patterns`, the pipeline's input.

    Returns:
        The files, a fingerprint of the content of those that can be used, the folders of dataset and registry, and how
        the files are read (`calopipe.showers.selection`), which the other steps are given.
    """
    from components.step import describe, working

    with working(output, "discover"):
        from calopipe.progress import say
        from calopipe.showers.selection import Reading
        from calopipe.storage import expand, location
        from components.parameters import require_plain
        from preprocessing.dataset import news
        from preprocessing.showers.manifest import Settings
        from training.registry.registry import Registry

        promoted = registry or f"{output}/registry"
        Registry(location(promoted)).require_usable()  # hours before a model is to come there
        folder = dataset or f"{output}/dataset"
        reading = Reading(
            dataset=folder,
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
        inputs = Settings.of(reading).discover(patterns, reading, location(folder))
        if since := news(inputs.files, location(folder)):
            say(since)
        events = sum(file.events for file in inputs.files)
        say(f"{len(inputs.files)} files, {events} showers")
        files = [str(path.absolute()) for path in expand(patterns)]  # all: the manifest records which are left out
        require_plain({"input": files})
        facts = {
            "fingerprint": inputs.fingerprint(),
            "files": len(files),
            "showers": events,
            "since_the_last_run": since,
        }
        describe(showers, " ".join(patterns), **facts)
        return (files, inputs.fingerprint(), folder, promoted, vars(reading))
