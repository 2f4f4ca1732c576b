"""The sections of the verdict that compare two sets as a whole."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
from showers import SMALL_GEOMETRY, make_showers

from validation.judge.similarity import memorised, similarity
from validation.measure.observables import Observables, features, observe
from validation.measure.reader import Digests, Measured
from validation.measure.table import Samples, Table
from validation.statistics.distances import distances


@cache
def table(seed: int, events: int = 400, narrower: float = 1.0) -> Observables:
    showers = make_showers(events=events, seed=seed)
    return observe(showers.cells**narrower, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY)


def test_alike_and_unlike_sets_stand_on_either_side_of_every_floor() -> None:
    alike, unlike = (
        similarity(Samples(table(1), candidate, 0), rng=np.random.default_rng(1))
        for candidate in (table(2), table(2, narrower=1.1))
    )
    json.dumps([alike, unlike], allow_nan=False)
    for name, found in alike["distances"].items():
        assert abs(found["value"]) < 2 * abs(found["own"]) < unlike["distances"][name]["value"]
    mine, theirs = features(table(1)), features(table(2))
    centre = mine.mean(axis=0)  # so that no constant in a feature counts
    assert alike["distances"] == distances(mine - centre, theirs - centre)
    for columns in ("observables", "cells"):
        low, high = alike["classifier"][columns]["interval"]
        assert low <= 0.5 <= high
        assert abs(alike["classifier"][columns]["floor"]["value"] - 0.5) < 0.12  # of halves that share no shower
        assert unlike["classifier"][columns]["interval"][0] > 0.6
    low, high = alike["neighbours"]["coverage"]["interval"] or (0, 2)
    assert low < 1 < high
    assert unlike["neighbours"]["coverage"]["value"] < 0.9


def test_too_few_showers_have_no_figures_and_no_errors() -> None:
    few, none = table(1)[:4], table(1)[:0]
    for candidate in (few, none):
        found = similarity(Samples(few, candidate, 0), rng=np.random.default_rng(0))
        assert found["distances"]["fpd"]["value"] is None
        assert found["classifier"]["cells"]["value"] is None
        assert found["neighbours"]["coverage"]["value"] is None


def learned(table: Observables) -> Measured:
    return Measured(Table([table]), hashes(table), 0, "", ())


def hashes(table: Observables) -> Digests:
    """Of rows, standing in for those of cells."""
    return np.array([hash(row.tobytes()) for row in table.scalars]).astype(np.uint64)


def test_a_candidate_that_repeats_its_training_showers_is_a_caution() -> None:
    training, reference = table(3), table(4)

    def against(candidate: Observables, reference: Observables = reference) -> tuple[dict[str, Any], list[str]]:
        some = Samples(reference, candidate, 0)
        section, cautions = memorised(
            learned(training), hashes(reference), hashes(candidate), some, rng=np.random.default_rng(0)
        )
        json.dumps(section, allow_nan=False)
        return section, [caution["name"] for caution in cautions]

    fresh, cautions = against(table(5))
    assert cautions == []
    assert fresh["training"] == 400
    cells = make_showers(events=400, seed=3).cells[:40]
    noise = np.random.default_rng(0).normal(1, 0.01, cells.shape)
    nearly = observe(
        (cells * noise).astype(np.float32), training.energy_gev[:40], training.theta_rad[:40], SMALL_GEOMETRY
    )
    found, cautions = against(Observables.joined([table(5)[:360], nearly]))
    assert cautions == ["Training showers repeated"]
    assert 0.08 < found["share"] < 0.15
    assert "Showers of the training set" in against(Observables.joined([table(5)[:399], training[:1]]))[1]
    assert against(table(5), training)[1] == ["Monte Carlo that is in the training set"]
