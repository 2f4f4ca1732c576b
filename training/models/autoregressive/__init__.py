"""Showers from likelihoods: the totals of a shower first, then its cells, layer by layer.

    p(shower | E, theta) = p(totals | E, theta) x product over cells of p(cell | totals, the cells before it)

The cells come layer by layer, in each the even ones and then the odd ones.

The config is here. Eight modules lead from a batch to the losses. Each imports only modules above it in this list:

- `mesh`: the cells of the calorimeter, and which are around each;
- `frame`: a shower about its axis, its labels, and the sums over its layers;
- `densities`: of cells, and of how a layer's energy is shared between them;
- `totals_density`: of the totals;
- `totals`: what the totals of a shower are, how they are made normal, and where in its cell its axis is;
- `context`: what the totals promise of a layer, and what the cells drawn so far have spent of it, feature by feature;
- `cells`: what is known of a cell, and which cells a training step looks at;
- `model`: the losses, as the engine knows them.

Before training, `constants` computes numbers that the densities start from; `copula` computes a part of them.
`sampling/` draws showers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from calopipe.errors import InputError
from calopipe.labels import NO_LABELS, LabelRange
from calopipe.options import setting
from calopipe.showers.cells import Geometry
from training.models.config import CONFIGS, FitConfig, register

if TYPE_CHECKING:
    from training.models.autoregressive.model import Autoregressive


# How far the labels of a warm start may lie beyond either end of the earlier range: a part of the range, and rounding.
_BEYOND, _ROUNDING = 0.1, 1e-6


@register("autoregressive")
@dataclass(frozen=True, kw_only=True)
class AutoregressiveConfig(FitConfig):
    """The config. `width` is the width of the networks of the cells, and of the shares and counts of a colour."""

    # The loss chooses among evaluations. All of them have the same showers with the same noise: few showers are enough.
    least_evaluated: ClassVar[int] = 256
    takes_more_labels: ClassVar[bool] = True

    width: int = setting(64, help="of the networks of the model autoregressive", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.precision == "float64":
            raise InputError("--precision float64 is not for the model autoregressive")

    def begins_anew(self, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
        """See `FitConfig`. The weights go with constants of the earlier showers, which say nothing of other labels."""
        for name, scaled in (("energy_gev", math.log), ("theta_rad", math.cos), ("phi_rad", math.sin)):
            if name not in earlier or name not in now:
                continue
            (low, high), ends = (sorted(map(scaled, ranges[name])) for ranges in (earlier, now))
            beyond = _BEYOND * (high - low) + _ROUNDING
            if ends[0] < low - beyond or ends[1] > high + beyond:
                old, new = (f"{ranges[name][0]:.4g} to {ranges[name][1]:.4g}" for ranges in (earlier, now))
                return f"that is of {name} {old}, the dataset of {new}"
        return ""

    def build(self, geometry: Geometry, labels: LabelRange = NO_LABELS) -> Autoregressive:
        from training.models.autoregressive.model import Autoregressive  # noqa: PLC0415  TensorFlow

        return Autoregressive(geometry, width=self.width, labels=labels)


# The three named configs take about 4, 11 and 52 minutes of one core. The shortest has the largest learning rate, with
# which a short training learns more.
CONFIGS |= {
    name: AutoregressiveConfig(
        model="autoregressive",
        batch=32,
        epochs=1_000_000,
        steps=steps,
        learning_rate=rate,
        schedule="cosine",
        average=0.998,
        evaluation_steps=steps // 4,
    )
    for name, steps, rate in (("fast", 1_600, 8e-3), ("standard", 6_000, 3e-3), ("full", 30_000, 3e-3))
}
