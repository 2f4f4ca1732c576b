"""The course of a training: how many steps it has, and when and by how many showers its model is evaluated.

No TensorFlow in here: an estimate asks for the same.
"""

from __future__ import annotations

from training.models.config import FitConfig


def last_step(config: FitConfig, steps_an_epoch: int) -> int:
    """How many steps a training has that does not end early."""
    whole = config.epochs * steps_an_epoch
    return min(whole, config.steps or whole)


def is_evaluated(config: FitConfig, step: int, steps_an_epoch: int) -> bool:
    """Whether the model is evaluated at the end of the epoch that `step` ends; 0 is before the training."""
    every = config.evaluation_steps
    before = step - steps_an_epoch
    return every == 0 or step // every > before // every or step == last_step(config, steps_an_epoch)


def evaluations(config: FitConfig, steps_an_epoch: int) -> int:
    """How often that is in a whole training."""
    last = last_step(config, steps_an_epoch)
    return sum(is_evaluated(config, step, steps_an_epoch) for step in [*range(0, last, steps_an_epoch), last])


def evaluated_one_of(config: FitConfig, *, train: int, watched: int, replicas: int, cost: float) -> int:
    """One of how many showers of the split that watches, `watched` in all, is evaluated.

    With so many, an evaluation takes about `evaluation_share` of the time from one to the next, in which `train`
    showers are trained on, or `evaluation_steps` steps. `cost` is a `training.models.base.Model.evaluation_cost`.
    """
    if not config.evaluation_share:
        return 1
    trained = max(train, config.evaluation_steps * config.batch * replicas)
    affordable = max(config.least_evaluated, int(config.evaluation_share * trained / cost))
    return max(1, -(-watched // affordable))
