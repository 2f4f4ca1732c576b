"""Step 1: find the input files, check what can be checked cheaply, and name their content."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def discover(
    patterns: list[str],
    geometry: str,
    on_bad_event: str,
    on_bad_file: str,
    max_bad_files: float,
    dataset: str,
    registry: str,
    output: str,
    showers: dsl.Output[dsl.Dataset],
    on_doubt: str = "stop",
) -> NamedTuple(  # type: ignore[valid-type]
    "Discovered", [("files", list[str]), ("fingerprint", str), ("dataset", str), ("registry", str)]
):
    """Find and check the HDF5 files that match `patterns`, the pipeline's input.

    Returns:
        The files, a fingerprint of the content of those that can be used, and the folders of dataset and registry.
    """
    from components.step import describe, working

    with working(output, "discover"):
        from calopipe.progress import say
        from calopipe.showers.flaws import Tolerance
        from calopipe.storage import expand, location
        from components.parameters import require_plain
        from preprocessing.dataset import news
        from preprocessing.inputs import discover as find
        from training.registry.registry import Registry

        promoted = registry or f"{output}/registry"
        Registry(location(promoted)).require_usable()  # hours before a model is to come there
        tolerance = Tolerance(on_bad_event, on_bad_file, max_bad_files=max_bad_files, doubt=on_doubt)
        folder = dataset or f"{output}/dataset"
        found = find(patterns, geometry, tolerance=tolerance, memory=location(folder))
        if since := news(found.files, location(folder)):
            say(since)
        events = sum(file.events for file in found.files)
        say(f"{len(found.files)} files, {events} showers")
        files = [str(path.absolute()) for path in expand(patterns)]  # all: the manifest records which are left out
        require_plain({"input": files})
        facts = {
            "fingerprint": found.fingerprint(),
            "files": len(files),
            "showers": events,
            "since_the_last_run": since,
        }
        describe(showers, " ".join(patterns), **facts)
        return (files, found.fingerprint(), folder, promoted)
