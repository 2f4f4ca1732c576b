"""Step 6: an accepted model goes to the registry; any other does not, and the run says why."""

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def promote(verdict: str, model: str, generated: str, output: str, registry: str) -> str:
    """Read the verdict itself and promote the model only if it is accepted.

    Args:
        verdict: What validate found; it decides nothing here, and makes this step wait for that one.
        model: Folder of the model.
        generated: HDF5 file of the showers that were judged.
        output: Folder of verdict.json and report.html.
        registry: Folder of promoted models.

    Returns:
        What was done, and why.
    """
    from preprocessing.errors import one_line_errors

    with one_line_errors():
        from pathlib import Path

        from training.registry import promote

        message = promote(Path(model), Path(generated), Path(output), Path(registry))
        print(f"{verdict}: {message}")
        return message
