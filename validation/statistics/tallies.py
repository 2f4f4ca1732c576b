"""Sums over showers for the plots: means, shares and widths in bins, and products of observables."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import hist
import numpy as np

from validation.measure.observables import SCALARS, Array, Columns, Observables
from validation.statistics.decades import pulls
from validation.statistics.estimates import correlations, with_products

LEAST_IN_BIN = 20  # showers for a mean or width of those in a bin

Points = tuple[Array, Array]  # a value for each bin and its standard error over showers; NaN where unknown


class Tally(Protocol):
    def add(self, piece: Observables) -> None: ...
    def points(self) -> Points: ...


class Means:
    """The mean over showers of each column of `name` (N, bins)."""

    def __init__(self, name: str) -> None:
        self._name, self._events = name, 0
        self._sum = self._squares = np.zeros(1)

    def add(self, piece: Observables) -> None:
        values = getattr(piece, self._name).astype(np.float64)
        self._events += len(values)
        self._sum = self._sum + values.sum(axis=0)
        self._squares = self._squares + (values**2).sum(axis=0)

    def points(self) -> Points:
        mean = self._sum / self._events
        return mean, np.sqrt(np.maximum(self._squares / self._events - mean**2, 0) / self._events)


class Shares:
    """The share of the showers in each bin of the scalar `name`, the outer two open, with its binomial error."""

    def __init__(self, name: str, edges: Array) -> None:
        self._name, self._filled = name, hist.Hist(hist.axis.Variable(edges))

    def add(self, piece: Observables) -> None:
        self._filled.fill(_inside(piece.column(self._name), self._filled.axes[0].edges))

    def points(self) -> Points:
        counts = self._filled.values()
        share = counts / counts.sum()
        return share, np.sqrt(share * (1 - share) / counts.sum())


Answer = Callable[[Array, Array, Array, Array], Points]


class InBins:
    """`answer` of the edges, and of the number, mean and variance of `value` in bins of `label`, the outer two open."""

    def __init__(self, edges: Array, label: Columns, value: Columns, answer: Answer) -> None:
        self._edges, self._label, self._value, self._answer = edges, label, value, answer
        self._filled = hist.Hist(hist.axis.Variable(edges), storage=hist.storage.Mean())

    def add(self, piece: Observables) -> None:
        self._filled.fill(_inside(self._label(piece), self._edges), sample=self._value(piece))

    def points(self) -> Points:
        view = self._filled.view()
        known = view.count >= LEAST_IN_BIN
        count, mean, variance = (np.where(known, each, np.nan) for each in (view.count, view.value, view.variance))
        return self._answer(self._edges, count, mean, variance)


class Products:
    """Pearson's coefficients of the scalars `names`; see `standard_products`."""

    def __init__(self, names: Collection[str], sample: Observables) -> None:
        self._size, self._products = len(names), standard_products(names, sample)
        self._sum, self._events = np.zeros(1), 0

    def add(self, piece: Observables) -> None:
        self._sum = self._sum + self._products(piece).sum(axis=0)
        self._events += len(piece)

    def matrix(self) -> Array:
        matrix = np.eye(self._size)
        rows, columns = np.triu_indices(self._size, 1)
        matrix[rows, columns] = matrix[columns, rows] = correlations(self._sum / self._events, self._size)
        return matrix


def standard_products(names: Collection[str], sample: Observables) -> Columns:
    """What makes `with_products` of the scalars `names`, standardised by `sample` to keep sums of products exact."""
    columns, standard = [index for index, scalar in enumerate(SCALARS) if scalar.name in names], pulls(sample)
    return lambda table: with_products(standard(table)[:, columns])


def mean_in_bin(_edges: Array, count: Array, mean: Array, variance: Array) -> Points:
    return mean, np.sqrt(variance / count)


def mean_at_centre(edges: Array, count: Array, mean: Array, variance: Array) -> Points:
    return (edges[1:] + edges[:-1]) / 2 + mean, np.sqrt(variance / count)


def relative_width(_edges: Array, count: Array, mean: Array, variance: Array) -> Points:
    """sigma/mean; its error is that of a normal distribution whose mean is well known."""
    width = np.sqrt(variance) / mean
    return width, width / np.sqrt(2 * count)


def _inside(values: Array, edges: Array) -> Array:
    """`values` with those beyond the outer edges moved into the outer bins."""
    return values.clip(edges[0], np.nextafter(edges[-1], -np.inf))
