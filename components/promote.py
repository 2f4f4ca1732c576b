"""Step 6: an accepted model goes to the registry; any other does not, and the run says why."""

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def promote(model: str, fingerprint: str, generated: str, output: str, registry: str) -> str:
    """Read the verdict itself and promote the model only if it is accepted.

    Args:
        model: Folder of the model.
        fingerprint: The model that train left there; another by now is an error.
        generated: HDF5 file of the showers that were judged.
        output: Folder of verdict.json and report.html.
        registry: Folder of promoted models.

    Returns:
        What was done, and why.
    """
    from preprocessing.errors import one_line_errors

    with one_line_errors():
        from pathlib import Path

        from training.folder import require_model
        from training.registry import promote

        require_model(Path(model), fingerprint)
        message = promote(Path(model), Path(generated), Path(output), Path(registry))
        print(message)
        return message
