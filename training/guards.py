"""What stops a training that has failed: it would not mend itself, and every step more is wasted."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from preprocessing.errors import InputError
from training.engine import LossTable

_COIN = math.log(2.0)  # the cross-entropy of answering 1/2
_CERTAIN = 15.0  # close under -log 1e-7 = 16.1, where the loss is clipped and gives no gradient
_EMPTY_PERCENT = 100.0  # the energy-sum error of an empty shower, exactly


class Guards:
    """Watches the losses; a verdict takes `patience` calls in a row, so that a bad batch is not one."""

    def __init__(self, patience: int = 100) -> None:
        self._patience = patience
        self._in_a_row: dict[str, int] = {}

    def check(self, losses: npt.NDArray[np.float32], table: LossTable, *, step: int, last_good: str) -> None:
        """Raise InputError, which names `last_good`, where the training has failed at `step`."""
        if not np.isfinite(losses).all():
            names = ", ".join(
                f"{phase} {name}" for phase, row in table.items() for name, value in row.items()
                if name != "total" and not math.isfinite(value)
            )  # fmt: skip
            raise InputError(
                f"a loss is not a finite number at step {step} ({names}); lower --learning-rate, or give a warm-up; "
                f"last good checkpoint: {last_good}"
            )
        generators = [row for phase, row in table.items() if phase.startswith("generator")]
        discriminators = [row for phase, row in table.items() if phase.startswith("discriminator")]
        self._count(
            "the generator makes empty showers (error of the energy sum: exactly 100 %); lower --learning-rate",
            all(abs(row.get("ecal", 0.0) - _EMPTY_PERCENT) < 1e-3 for row in generators), step, last_good,
        )  # fmt: skip
        self._count(
            "the discriminator is dead: it answers 1/2 to every shower; lower --learning-rate",
            all(abs(row.get("generation", 0.0) - _COIN) < 1e-4 for row in discriminators), step, last_good,
        )  # fmt: skip
        self._count(
            "the generator gets no gradient: the discriminator is certain of every generated shower; lower "
            "--learning-rate",
            all(row.get("generation", 0.0) > _CERTAIN for row in generators), step, last_good,
        )  # fmt: skip

    def _count(self, failure: str, seen: bool, step: int, last_good: str) -> None:
        self._in_a_row[failure] = self._in_a_row.get(failure, 0) + 1 if seen else 0
        if self._in_a_row[failure] >= self._patience:
            raise InputError(f"{failure}, for {self._patience} steps up to {step}; last good checkpoint: {last_good}")
