"""What stops a training that has failed: it would not mend itself, and every step more is wasted."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from training.engine.step import LossTable

_COIN = math.log(2.0)  # the cross-entropy of answering 1/2
_NEAR = 5e-3  # the bias of a dead network still moves with the optimizer, by some 1e-3 in the loss
_CONSTANT = 1e-6  # the variance over showers of answers that are alike to a thousandth
_CERTAIN = 15.0  # close under -log 1e-7 = 16.1, where the loss is clipped and gives no gradient
_EMPTY_PERCENT = 100.0  # the energy-sum error of an empty shower, exactly


_DEAD = "the discriminator is dead: it answers 1/2 to every shower"


class Guards:
    """Watches the losses; a verdict takes `patience` looks in a row, so that a bad batch is not one."""

    def __init__(self, patience: int = 100) -> None:
        self._patience = patience
        self._in_a_row: dict[str, int] = {}
        self._totals: list[float] = []  # of the generator, while the discriminator seems dead

    def check(
        self, losses: npt.NDArray[np.float32], table: LossTable, *, step: int, last_good: Callable[[], str]
    ) -> None:
        """Raise InputError, which names `last_good`, where the training has failed at `step`."""
        if not np.isfinite(losses).all():
            names = ", ".join(
                f"{phase} {name}" for phase, row in table.items() for name, value in row.items()
                if name != "total" and not math.isfinite(value)
            )  # fmt: skip
            raise InputError(
                f"a loss is not a finite number at step {step} ({names}); lower --learning-rate, or give a warm-up; "
                f"last good checkpoint: {last_good()}"
            )
        generators = [row for phase, row in table.items() if phase.startswith("generator")]
        discriminators = [row for phase, row in table.items() if phase.startswith("discriminator")]
        seen = {
            "the generator makes empty showers (error of the energy sum: exactly 100 %)": [
                abs(row.get("ecal", 0.0) - _EMPTY_PERCENT) < 1e-3 for row in generators
            ],
            _DEAD: [
                abs(row.get("generation", 0.0) - _COIN) < _NEAR and row.get("spread", math.inf) < _CONSTANT
                for row in discriminators
            ],
            "the generator gets no gradient: the discriminator is certain of every generated shower": [
                row.get("generation", 0.0) > _CERTAIN for row in generators
            ],
        }
        for failure, rows in seen.items():
            self._in_a_row[failure] = self._in_a_row.get(failure, 0) + 1 if rows and all(rows) else 0
            if failure == _DEAD and self._improves(self._in_a_row[failure], sum(row["total"] for row in generators)):
                self._in_a_row[failure] = 0
            if self._in_a_row[failure] >= self._patience:
                raise InputError(
                    f"{failure}, in {self._patience} looks up to step {step}; lower --learning-rate; last good "
                    f"checkpoint: {last_good()}"
                )

    def _improves(self, looks: int, total: float) -> bool:
        """Whether the generator's `total` fell, by more than its noise, over the `looks` in a row of which it is one.

        Asked at each look, and answered at the last that is waited for.
        """
        self._totals = [*self._totals, total] if looks > 1 else [total]
        if looks < self._patience:
            return False
        early, late = np.array_split(np.array(self._totals), 2)
        noise = math.hypot(early.std() / math.sqrt(early.size), late.std() / math.sqrt(max(late.size, 1)))
        return late.size > 0 and float(early.mean() - late.mean()) > 2 * noise
