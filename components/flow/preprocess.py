"""Step 1 of a flow: HDF5 files of simulations to a dataset of pairs of frames."""

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
    from components.step import describe, step

    with step():
        from calopipe.events.splits import SplitRule
        from calopipe.events.tolerance import Tolerance
        from calopipe.progress import say
        from calopipe.storage import location
        from components.parameters import require_plain
        from preprocessing.dataset import news
        from preprocessing.flow.manifest import PairSettings
        from preprocessing.pipeline import preprocess

        tolerance = Tolerance(on_bad_event=on_bad_event, on_bad_file=on_bad_file)
        settings = PairSettings(SplitRule.parse(split_files), pair_step)
        inputs = settings.discover(patterns, tolerance)
        place = location(f"{output}/dataset")
        if since := news(inputs.files, place):
            say(since)
        manifest = preprocess(inputs, place, settings, beam_options, tolerance=tolerance)
        describe(data, f"{output}/dataset", made_from=" ".join(patterns), since_the_last_run=since, **manifest.facts())
        metrics.log_metric("pairs read", manifest.events["read"])
        metrics.log_metric("pairs written", manifest.events["written"])
        used = {source.sha256 for source in manifest.inputs}
        files = [str(file.path.absolute()) for file in inputs.files if file.sha256 in used]
        require_plain({"input": files})
        return (files, manifest.fingerprint, f"{output}/dataset", f"{output}/registry")
