"""Step 3: a dataset to a trained model."""

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train(
    dataset: str,
    fingerprint: str,
    model: str,
    config: str,
    epochs: int,
    steps: int,
    strategy: str,
    seed: int,
    metrics: dsl.Output[dsl.Metrics],
) -> str:
    """Train, go on with a training that stopped, or leave a model that stands.

    Args:
        dataset: Folder or gs:// address of the dataset.
        fingerprint: The dataset that preprocess left there; another by now is an error.
        model: Folder of the model. One of another dataset or config is replaced.
        config: Name of the training config.
        epochs: Passes over the train split; 0 for the config's.
        steps: End after so many steps; 0 for no such end.
        strategy: Name of the distribution strategy.
        seed: Of weights, order and noise.

    Returns:
        The model's fingerprint.
    """
    from preprocessing.errors import one_line_errors

    with one_line_errors():
        from pathlib import Path

        from preprocessing.dataset import require_dataset
        from preprocessing.storage import location
        from training.configs import named_config
        from training.fit import fit
        from training.workers import Cluster

        require_dataset(location(dataset), fingerprint)
        chosen = named_config(config, epochs=epochs or None, steps=steps, strategy=strategy, seed=seed)
        card = fit(location(dataset), Path(model), chosen, overwrite=True, cluster=Cluster.here((), None))
        metrics.log_metric("steps", card.trained["steps"])
        for name, value in card.losses.items():
            metrics.log_metric(f"validation {name}", value)
        return card.fingerprint()
