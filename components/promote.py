"""Step 6: an accepted model that is no worse than the incumbent goes to the registry."""

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def promote(output: str, fingerprint: str, verdict: str, registry: str) -> str:
    """Read the verdict itself, and promote the model only if that says so.

    Args:
        fingerprint: The model that train wrote; it is an error if another is there now.
        verdict: The `request` of the verdict that validate wrote; it is an error if another is there now.

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
