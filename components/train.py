"""Step 2: trains a model on the dataset, starting from the weights of the model in use."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train(
    dataset: str,
    fingerprint: str,
    output: str,
    registry: str,
    config: str,
    model_file: str,
    epochs: int,
    steps: int,
    settings: dict,  # type: ignore[type-arg]  # kfp knows no other kind
    strategy: str,
    warm_start: str,
    seed: int,
    job: dict,  # type: ignore[type-arg]
    data: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple(  # type: ignore[valid-type]
    "Trained", [("fingerprint", str), ("incumbent", str)]
):
    """Train to OUTPUT/model, continue a training that stopped, or keep a model that is there.

    The incumbent's model is copied to OUTPUT/incumbent.

    Args:
        fingerprint: The dataset that preprocess wrote; it is an error if another is there now.
        model_file: A user's file that states the model, as `training.models.source` packs it; empty without one.
        job: How to train on several nodes, by a TrainJob; empty to train in this step.

    Returns:
        The fingerprints of the model and of the incumbent that it has to beat, the latter empty without one.
    """
    from components.step import describe, offered, working

    with working(output, "train", "model/**", "incumbent/*") as run, offered(model_file, run):
        from calopipe.storage import location
        from preprocessing.dataset import require_dataset
        from training.configs import named_config, with_settings
        from training.registry.registry import Registry
        from training.registry.retraining import fit_here, fit_on_nodes, retrain

        require_dataset(location(dataset), fingerprint)
        named = named_config(config, epochs=epochs or None, steps=steps or None, strategy=strategy, seed=seed)
        card, incumbent = retrain(
            location(dataset),
            run / "model",
            with_settings(named, settings),
            Registry(location(registry)),
            origin=warm_start,
            copy=run / "incumbent",
            fit=fit_on_nodes(config, **job) if job else fit_here,
        )
        against = incumbent.model if incumbent else ""
        made_from = data.metadata.get("fingerprint", fingerprint)
        describe(model, f"{output}/model", made_from=made_from, config=config, incumbent=against, **card.facts())
        metrics.log_metric("steps", card.trained["steps"])
        for name, value in card.losses.items():
            metrics.log_metric(f"validation {name}", value)
        return (card.fingerprint(), incumbent.fingerprint if incumbent else "")
