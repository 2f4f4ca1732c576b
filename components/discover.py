"""Step 1: find the input files, check what can be checked cheaply, and name their content."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def discover(patterns: list[str], geometry: str) -> NamedTuple(  # type: ignore[valid-type]
    "Discovered", [("files", list[str]), ("fingerprint", str)]
):
    """Find and check the HDF5 files that the patterns name.

    Args:
        patterns: Paths or globs of HDF5 files, as the steps see them.
        geometry: Geometry that the files do not state, NAME=VALUE,...; empty for none.

    Returns:
        The files, each content once, and a fingerprint of their content.
    """
    from preprocessing.errors import one_line_errors

    with one_line_errors():
        from preprocessing.pipeline import content_fingerprint
        from preprocessing.pipeline import discover as find

        found = find(patterns, geometry)
        print(f"{len(found)} files, {sum(file.events for file in found)} showers")
        return ([str(file.path.absolute()) for file in found], content_fingerprint(found))
