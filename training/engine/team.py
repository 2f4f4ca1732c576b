"""The workers of a training, which compute together and stop together; the first of them writes."""

from __future__ import annotations

import tensorflow as tf

from training.engine.exchange import total_over_replicas
from training.nodes.workers import Cluster


class Team:
    """The workers of `cluster` under `strategy`, or this process, which is `alone`. The `chief` writes and decides.

    `total`, `agree` and `wait` are collectives: all workers call them, in one order.
    """

    def __init__(self, strategy: tf.distribute.Strategy, cluster: Cluster | None = None) -> None:
        self.strategy = strategy
        self.alone = cluster is None or cluster.size == 1
        self.chief = cluster is None or cluster.chief
        self._total = tf.function(lambda value: strategy.run(total_over_replicas, args=(value,)), autograph=False)

    def total(self, value: float) -> float:
        """The sum of `value` over all replicas, those of one worker giving the same."""
        totals = self.strategy.experimental_local_results(self._total(tf.constant(float(value))))
        return float(totals[0].numpy())

    def agree(self, said: bool) -> bool:
        """Whether any worker `said` so."""
        return said if self.alone else self.total(said) > 0

    def wait(self) -> None:
        """Return once all workers are here."""
        if not self.alone:
            self.total(0.0)
