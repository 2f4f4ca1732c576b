"""Step 6: an accepted model that is no worse than the incumbent goes to the registry; any other does not."""

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def promote(output: str, fingerprint: str, verdict: str, registry: str) -> str:
    """Read the verdict itself, and promote the model only if that says so.

    Args:
        output: Folder of the run, with the model, the showers that were judged, the verdict and the report.
        fingerprint: The model that train left there; another by now is an error.
        verdict: What the verdict that validate left there answers; another by now is an error.
        registry: Folder or gs:// address of the promoted models.

    Returns:
        What was done, and why.
    """
    from components.step import step

    with step():
        from pathlib import Path

        from calopipe.progress import say
        from calopipe.storage import location
        from training.folder import require_model
        from training.registry.candidate import Candidate
        from training.registry.registry import Registry

        run = Path(output)
        require_model(run / "model", fingerprint)
        candidate = Candidate(run / "model", run / "generated.h5", run, verdict, run / "incumbent.h5")
        message = Registry(location(registry)).promote(candidate)
        say(message)
        return message
