"""Step 5: an accepted model that is no worse than the incumbent goes to the registry."""

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def promote(
    output: str,
    fingerprint: str,
    verdict: str,
    registry: str,
    model: dsl.Input[dsl.Model],
    judged: dsl.Output[dsl.Model],
) -> str:
    """Read the verdict itself, and promote the model only if that says so.

    Args:
        fingerprint: The model that train wrote; it is an error if another is there now.
        verdict: The `request` of the verdict that validate wrote; it is an error if another is there now.

    Returns:
        What was done, and why.
    """
    from components.step import describe, working

    with working(output, "promote", "model/*", "*.h5", "*.json", "report.html") as run:
        from calopipe.progress import say
        from calopipe.storage import location
        from calopipe.verdict import VERDICT_FILE, read_verdict
        from training.model_folder import read_card, require_model
        from training.registry.candidate import Candidate
        from training.registry.registry import Registry

        require_model(run / "model", fingerprint)
        candidate = Candidate(run / "model", run / "generated.h5", run, verdict, run / "incumbent.h5")
        promoted = Registry(location(registry))
        message = promoted.promote(candidate)
        say(message)
        used = promoted.current()
        describe(
            judged,
            model.metadata.get("location", f"{output}/model"),
            verdict=read_verdict(run / VERDICT_FILE)["verdict"],
            outcome=message,
            in_use=used.model if used else "",
            registry=registry,
            **read_card(run / "model").facts(),
        )
        return message
