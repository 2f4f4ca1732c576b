"""The guards: each failure is named, a healthy training is left alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calopipe.errors import InputError
from training.models.gan.model import GUARDS
from training.run.loop import Guards

Table = dict[str, dict[str, float]]


def _table(
    *,
    real: float = 0.4,
    fake: float = 0.5,
    fooled: float = 1.2,
    ecal: float = 30.0,
    spread: float = 0.0,
    total: float = 1,
) -> Table:
    return {
        "discriminator_real": {"total": 1.0, "generation": real, "ecal": 0.0, "spread": spread},
        "discriminator_fake": {"total": 1.0, "generation": fake, "ecal": ecal, "spread": spread},
        "generator_first": {"total": total, "generation": fooled, "ecal": ecal},
        "generator_second": {"total": total, "generation": fooled, "ecal": ecal},
    }


def _check(guards: Guards, table: Table, step: int = 1) -> None:
    losses = np.array([value for row in table.values() for name, value in row.items() if name != "total"])
    guards.check(losses, table, step=step, last_good=lambda: "step-000000007.npz")


def test_a_loss_that_is_not_finite_stops_at_once() -> None:
    with pytest.raises(InputError, match=r"step 9 \(discriminator_real generation\).*checkpoint: step-000000007\.npz"):
        _check(Guards(GUARDS), _table(real=math.nan), step=9)
    with pytest.raises(InputError, match="generator_first ecal, generator_second ecal"):
        _check(Guards(GUARDS), _table(ecal=math.inf))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (_table(ecal=100.0), "the generator makes empty showers"),
        (_table(real=math.log(2) + 2e-3, fake=math.log(2) - 1e-3), "the discriminator is dead"),
        (_table(fooled=16.1), "the generator gets no gradient"),
    ],
)
def test_a_failure_stops_once_it_lasts(table: Table, told: str) -> None:
    guards = Guards(GUARDS, patience=3)
    _check(guards, table)
    _check(guards, table)
    _check(guards, _table())  # recovered: the count begins anew
    _check(guards, table)
    _check(guards, table)
    with pytest.raises(InputError, match=f"{told}.*in 3 checks up to step 6; .*last good checkpoint: step-000000007"):
        _check(guards, table, step=6)


_COIN = {"real": math.log(2), "fake": math.log(2)}


def test_a_discriminator_that_is_undecided_and_sees_differences_is_not_dead() -> None:
    """Answers of .48 to .52 have a loss within 2e-4 of a coin's, and a variance of 1e-4."""
    guards = Guards(GUARDS, patience=2)
    for _ in range(5):
        _check(guards, _table(**_COIN, spread=1e-4))


def test_a_discriminator_is_dead_once_the_generator_no_longer_improves() -> None:
    guards, noise = Guards(GUARDS, patience=20), np.random.default_rng(1)
    for step in range(100):
        _check(guards, _table(**_COIN, total=10 - 0.05 * step + noise.normal(0, 0.1)))

    def stand_still() -> None:
        for _ in range(60):
            _check(guards, _table(**_COIN, total=5 + noise.normal(0, 0.1)))

    with pytest.raises(InputError, match=r"the discriminator is dead.*in 20 checks"):
        stand_still()


@pytest.mark.parametrize("table", [_table(), _table(ecal=99.9), _table(real=0.68, fake=0.7), _table(ecal=3500.0)])
def test_a_training_that_only_looks_ill_goes_on(table: Table) -> None:
    guards = Guards(GUARDS, patience=1)
    for _ in range(5):
        _check(guards, table)
