"""Step 2: HDF5 files to a dataset of TFRecord shards."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def preprocess(
    files: list[str],
    fingerprint: str,
    reading: dict,  # type: ignore[type-arg]  # kfp knows no other kind
    beam_options: list[str],
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
        reading: How they are read, as discover says.

    Returns:
        The files that could be read, and the dataset's fingerprint.
    """
    from components.step import describe, step

    with step():
        from calopipe.showers.selection import Reading
        from calopipe.storage import location
        from preprocessing.pipeline import preprocess
        from preprocessing.showers.manifest import Settings

        asked = Reading(**reading)
        settings, folder = Settings.of(asked), location(asked.dataset)
        inputs = settings.discover(files, asked, folder)
        inputs.require(fingerprint)
        manifest = preprocess(inputs, folder, settings, beam_options, tolerance=asked)
        made_from = showers.metadata.get("fingerprint", "")
        describe(data, asked.dataset, made_from=made_from, cut_gev=asked.cut_gev, **manifest.facts())
        metrics.log_metric("showers read", manifest.events["read"])
        metrics.log_metric("showers written", manifest.events["written"])
        for reason, count in manifest.events["dropped"].items():
            metrics.log_metric(f"dropped: {reason}", count)
        used = {source.sha256 for source in manifest.inputs}
        readable = [str(file.path.absolute()) for file in inputs.files if file.sha256 in used]
        return (readable, manifest.fingerprint)
