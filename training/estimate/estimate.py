"""Time, memory and cost of a training on devices of a catalogue, each with a range.

A step on n devices takes

    T(n) = max(T_compute + sum over collectives of [2 (n - 1) alpha + 2 (n - 1) / n S / B], T_input),

with a ring all-reduce of S bytes (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009) 117). Where hosts have
several devices there are two rings, of a host's devices and of the hosts, each with its own alpha and B. Nothing
overlaps: collectives block in `training.engine.step`. `docs/scaling.md` compares T(n) with published figures.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from training.estimate.catalogue import Catalogue, Kind
from training.models.config import FitConfig

Spread = npt.NDArray[np.float64]  # (3,): least, likely and most
LIKELY = 1  # the place of the likely value
_ALPHA = np.array([0.5, 1.0, 2.0])  # factors on the interconnect's alpha, which was fitted on one cluster
_EVALUATED_AT_ONCE = 32  # showers a replica, as in `training.run.evaluator`
_TRANSFER = 1.5  # the factor by which a rate may lie outside of the rates that other kinds achieve
_KEPT = np.array([0.5, 1.0, 2.0])  # factors on the activations: XLA computes some again, an allocator leaves gaps
_RUNTIME_GB = np.array([0.5, 1.0, 1.5])  # TensorFlow and the libraries of a device; a process on a CPU holds about 1.1
_DISK_BYTES_A_SECOND = 200e6  # a checkpoint, written and hashed


@dataclass(frozen=True)
class Work:
    """One step of `model` on one replica of `batch` showers, in `precision`.

    `flop` counts the operations for a shower in products and convolutions, in the plain forms of the layers; a
    multiplication with its addition counts as two. `evaluation_cost` is the time to evaluate a shower over the time to
    train on one. The others are bytes: `collectives`, of each exchange between replicas; `state`, of a checkpoint;
    `gradients`, of the phase with most of them; `activations`, kept between forward and backward pass of the phase that
    keeps most.
    """

    model: str
    precision: str
    batch: int
    flop: float
    evaluation_cost: float
    collectives: tuple[float, ...]
    state: float
    gradients: float
    activations: float


@dataclass(frozen=True)
class Pace:
    """Seconds for each shower of the training, and in addition for each step."""

    shower_s: Spread
    step_s: Spread


@dataclass(frozen=True)
class Estimate:
    """The estimate for a training on `devices` of `kind`. Dollars are None where the catalogue has no price.

    `efficiency` is the time of one device for all showers, over `devices` times the time of all devices. `basis` says
    where the rate comes from: a published or measured rate of this kind for the model, rates of other kinds for the
    model, or only bounds.
    """

    kind: str
    devices: int
    epoch_s: Spread
    total_s: Spread
    efficiency: Spread
    memory_gb: Spread
    on_demand: Spread | None
    spot: Spread | None
    basis: str


def exchange_seconds(sizes: Sequence[float], kind: Kind, devices: int, alpha: Spread | float = 1.0) -> Spread | float:
    """Seconds of the collectives of a step, of `sizes` bytes; `alpha` is a factor on the interconnect's alpha."""
    total: Spread | float = 0.0
    rings = ((kind.local, min(devices, kind.devices_a_host)), (kind.network, -(-devices // kind.devices_a_host)))
    for link, n in rings:
        for size in sizes:
            total += 2 * (n - 1) * alpha * link.alpha_s + 2 * (n - 1) / n * size / (1e9 * link.gb_a_second)
    return total


def step_seconds(
    work: Work, kind: Kind, devices: int, pace: Pace, *, input_rate: float, alpha: Spread | float = 1.0
) -> Spread:
    """Seconds of a step; a host's input pipeline reads `input_rate` showers a second."""
    computed = work.batch * pace.shower_s + pace.step_s
    read = work.batch * min(devices, kind.devices_a_host) / input_rate
    return np.maximum(computed + exchange_seconds(work.collectives, kind, devices, alpha), read)


def pace_of(work: Work, kind: Kind, catalogue: Catalogue) -> tuple[Pace, str]:
    """The pace of a training, and its basis."""
    if rate := kind.rate_of(work.model, work.precision):
        shower_s = work.flop / (1e12 * rate.tflops)
        factors = np.array([rate.spread[0], 1.0, rate.spread[1]])
        return Pace(shower_s * factors, rate.step_s * factors), "this kind's rate"
    if shares := _shares(work, kind, catalogue):
        shower, basis = _by_shares(work, kind, shares), "other kinds' rates"
    else:
        fastest = work.flop / (1e12 * kind.peak.of(work.precision))
        slowest = max(_processor_seconds(work, catalogue), fastest)
        shower, basis = np.array([fastest, math.sqrt(fastest * slowest), slowest]), "bounds: wide"
    return Pace(shower, np.zeros(3)), basis


def _shares(work: Work, kind: Kind, catalogue: Catalogue) -> dict[str, list[float]]:
    """The shares of their peak rates that kinds of the same platform achieve for the model, by precision."""
    shares: dict[str, list[float]] = {}
    for other in catalogue.kind.values():
        for rate in other.rate if other.platform == kind.platform else ():
            if rate.model == work.model:
                shares.setdefault(rate.precision, []).append(rate.tflops / other.peak.of(rate.precision))
    return shares


def _by_shares(work: Work, kind: Kind, shares: dict[str, list[float]]) -> Spread:
    """Seconds a shower if `kind` achieves such shares of its peak.

    A shorter precision for which no kind has a rate may be as fast as its peak promises, or no faster than float32:
    memory also limits it.
    """
    peak, alike = kind.peak.of(work.precision), shares.get(work.precision)
    if alike:
        tflops = [peak * max(alike) * _TRANSFER, peak * statistics.median(alike), peak * min(alike) / _TRANSFER]
    else:
        every = [share for of_precision in shares.values() for share in of_precision]
        fast = peak * max(every) * _TRANSFER
        slow = kind.peak.float32 * min(shares.get("float32", every)) / _TRANSFER
        tflops = [fast, math.sqrt(fast * slow), slow]
    return work.flop / (1e12 * np.array(tflops))


def _processor_seconds(work: Work, catalogue: Catalogue) -> float:
    """Seconds for a shower on the slowest processor of the catalogue; by rates for this model, if there are any."""
    rates = [rate for kind in catalogue.kind.values() if kind.platform == "cpu" for rate in kind.rate]
    alike = [rate for rate in rates if rate.model == work.model] or rates
    return max((work.flop / (1e12 * rate.tflops) * rate.spread[1] for rate in alike), default=0.0)


def steps_an_epoch(config: FitConfig, devices: int, train: int) -> int:
    """Whole batches of all `devices` in `train` showers. InputError: there is none."""
    steps = train // (config.batch * devices)
    if steps == 0:
        raise InputError(
            f"{devices} devices of batch {config.batch} take {config.batch * devices} showers a step, and there are "
            f"{train} in the train split; give a smaller --batch, fewer devices or more showers"
        )
    return steps


def estimate(
    work: Work, config: FitConfig, catalogue: Catalogue, name: str, devices: int, *, train: int, validation: int
) -> Estimate:
    """What a training of `config` on `train` showers needs on `devices` of the kind `name`."""
    kind = catalogue.kind[name]
    epoch_steps = steps_an_epoch(config, devices, train)
    steps, times = config.last_step(epoch_steps), config.evaluations(epoch_steps)
    epochs = steps / epoch_steps
    pace, basis = pace_of(work, kind, catalogue)

    def step(n: int) -> Spread:
        return step_seconds(work, kind, n, pace, input_rate=catalogue.input_showers_a_second, alpha=_ALPHA)

    def evaluation(n: int) -> Spread:
        every = config.evaluated_one_of(train=train, watched=validation, replicas=n, cost=work.evaluation_cost)
        batches = -(-validation // (every * n * _EVALUATED_AT_ONCE))
        seconds = pace.shower_s * work.evaluation_cost
        return batches * _EVALUATED_AT_ONCE * seconds + work.state / _DISK_BYTES_A_SECOND

    def epoch(n: int, steps: float) -> Spread:
        """Seconds of so many steps on n devices, and of the part of the evaluations that belongs to an epoch."""
        return steps * step(n) + times / epochs * evaluation(n)

    def dollars(an_hour: float | None) -> Spread | None:
        return None if an_hour is None else total * (an_hour * devices / 3600)

    total = np.sort(kind.start_s + steps * step(devices) + times * evaluation(devices))
    alone = train / config.batch  # steps of one device for all showers
    efficiency = epoch(1, alone) / (devices * epoch(devices, alone / devices))
    return Estimate(
        kind=name,
        devices=devices,
        epoch_s=np.sort(epoch(devices, epoch_steps)),
        total_s=total,
        efficiency=np.sort(efficiency),
        memory_gb=(work.state + work.gradients + _KEPT * work.activations) / 1e9 + _RUNTIME_GB,
        on_demand=dollars(kind.price.on_demand),
        spot=dollars(kind.price.spot),
        basis=basis,
    )
