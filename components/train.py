"""Step 3: a dataset to a trained model, which begins with the weights of the one in use."""

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
    epochs: int,
    steps: int,
    settings: dict,  # type: ignore[type-arg]  # kfp knows no other kind
    strategy: str,
    warm_start: str,
    seed: int,
    job: dict,  # type: ignore[type-arg]
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple(  # type: ignore[valid-type]
    "Trained", [("fingerprint", str), ("incumbent", str)]
):
    """Train, go on with a training that stopped, or leave a model that stands.

    Args:
        dataset: Folder or gs:// address of the dataset.
        fingerprint: The dataset that preprocess left there; another by now is an error.
        output: Folder of the run: the model comes to OUTPUT/model, a copy of the incumbent to OUTPUT/incumbent.
        registry: Folder or gs:// address of the promoted models.
        config: Name of the training config.
        epochs: Passes over the train split; 0 for the config's.
        steps: End after so many steps; 0 for the config's, or as epochs say if those are given.
        settings: Values in place of the config's own.
        strategy: Name of the distribution strategy.
        warm_start: incumbent, to begin with its weights, or none.
        seed: Of weights, order and noise.
        job: How to train on several nodes, by a TrainJob; empty to train in this step.

    Returns:
        The fingerprints of the model and of the incumbent that it has to beat, the latter empty without one.
    """
    from components.step import step

    with step():
        from pathlib import Path

        from calopipe.storage import location
        from preprocessing.dataset import require_dataset
        from training.configs import named_config, with_settings
        from training.registry.registry import Registry
        from training.registry.retraining import fit_here, fit_on_nodes, retrain

        require_dataset(location(dataset), fingerprint)
        named = named_config(config, epochs=epochs or None, steps=steps or None, strategy=strategy, seed=seed)
        card, incumbent = retrain(
            location(dataset),
            Path(output) / "model",
            with_settings(named, settings),
            Registry(location(registry)),
            origin=warm_start,
            incumbent_folder=Path(output) / "incumbent",
            fit=fit_on_nodes(config, **job) if job else fit_here,
        )
        metrics.log_metric("steps", card.trained["steps"])
        for name, value in card.losses.items():
            metrics.log_metric(f"validation {name}", value)
        return (card.fingerprint(), incumbent.fingerprint if incumbent else "")
