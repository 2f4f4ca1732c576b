"""The sections of the verdict that compare two sets as a whole."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from judging import table
from showers import make_showers, observed

from validation.judge import faults
from validation.judge.similarity import memorised, similarity
from validation.measure.observables import FEATURES, Observables, features
from validation.measure.sets import Digests, Measured, Samples, Table
from validation.statistics.distances import distances
from validation.statistics.estimates import Estimate
from validation.statistics.neighbours import Neighbourhood


def test_alike_and_unlike_sets_stand_on_either_side_of_every_floor() -> None:
    made = make_showers(events=400, seed=2)
    narrower = observed(replace(made, cells=made.cells**1.1))
    alike, unlike = (
        similarity(Samples(table(400, 1), candidate, 0), rng=np.random.default_rng(1))
        for candidate in (table(400, 2), narrower)
    )
    json.dumps([alike, unlike], allow_nan=False)
    for name, found in alike["distances"].items():
        assert abs(found["value"]) < 2 * abs(found["own"]) < unlike["distances"][name]["value"]
    mine, theirs = features(table(400, 1)), features(table(400, 2))
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


@pytest.mark.parametrize(("lowest", "more"), [(50.0, 0), (20.0, 1)])
def test_the_classifier_is_given_the_energies_of_a_wide_beam_and_the_partners(
    monkeypatch: pytest.MonkeyPatch, lowest: float, more: int
) -> None:
    reference = replace(table(400, 1)[:60], energy_gev=np.geomspace(lowest, 100, 60))
    candidate = table(400, 2)[:120]
    asked: list[tuple[Any, Any, int]] = []

    def classify(negative: Any, positive: Any, *, per_event: int, rng: Any) -> dict[str, Any]:
        asked.append((negative, positive, per_event))
        values = (0.6, [0.55, 0.65], 0.01) if per_event else (0.5, [0.4, 0.6], 1.0)
        return dict(zip(("value", "interval", "p_value"), values, strict=True))

    of_coverage: list[int] = []
    near = Neighbourhood(Estimate(0.9, 0.01, 60), Estimate(0.8, 0.01, 60), 0.7, 0.6, 0.1)
    monkeypatch.setattr("validation.judge.similarity.auc", classify)
    monkeypatch.setattr(
        "validation.judge.similarity.coverage", lambda *_, **more: of_coverage.append(more["per_event"]) or near
    )
    document = similarity(Samples(reference, candidate, 2), rng=np.random.default_rng(0))
    rings = 2 * reference.ring_energy.shape[1]
    widths = [len(FEATURES) + rings + more] * 2 + [reference.coarse.shape[1] + more] * 2
    assert [(side.shape[1], per_event) for side, _, per_event in asked] == list(zip(widths, (2, 0, 2, 0), strict=True))
    halves = np.concatenate(asked[1][:2])
    np.testing.assert_array_equal(np.sort(halves, axis=0), np.sort(asked[0][0], axis=0))
    if more:
        np.testing.assert_allclose(asked[0][0][:, -1], np.log(reference.energy_gev))
    of_cells = asked[2][1][:, : reference.coarse.shape[1]]
    np.testing.assert_allclose(of_cells, np.sqrt(candidate.coarse / candidate.energy_gev[:, None]), rtol=1e-6)
    shares = asked[0][1][:, len(FEATURES) : len(FEATURES) + rings]
    of_energy, of_cells = np.split(shares, 2, axis=1)
    np.testing.assert_allclose(of_energy.sum(axis=1), 1)
    np.testing.assert_allclose(of_cells, candidate.ring_cells / candidate.ring_cells.sum(axis=1, keepdims=True))
    assert document["classifier"]["cells"] == {
        "value": 0.6, "interval": [0.55, 0.65], "p_value": 0.01, "floor": {"value": 0.5, "scaled": False},
    }  # fmt: skip
    of_neighbours = document["neighbours"]
    assert [(of_neighbours[name]["value"], of_neighbours[name]["own"]) for name in ("coverage", "density")] == [
        (0.9, 0.7),
        (0.8, 0.6),
    ]
    assert of_neighbours["density"]["interval"] == pytest.approx([0.8 - 0.02, 0.8 + 0.02], abs=1e-3)
    assert of_coverage == [2]


def hashes(table: Observables) -> Digests:
    """Hashes of rows, in place of hashes of cells."""
    return np.array([hash(row.tobytes()) for row in table.scalars]).astype(np.uint64)


def test_a_candidate_that_repeats_its_training_showers_is_a_caution() -> None:
    training, reference = replace(table(400, 3), scalars=table(400, 3).scalars.copy()), table(400, 4)
    training.column("hits")[7] = 0  # an empty shower is no training

    def against(candidate: Observables, reference: Observables = reference) -> tuple[dict[str, Any], faults.Findings]:
        some, learned = Samples(reference, candidate, 0), Measured(Table([training]), hashes(training), 0, "", ())
        section, cautions = memorised(learned, hashes(reference), hashes(candidate), some, rng=np.random.default_rng(0))
        json.dumps(section, allow_nan=False)
        return section, cautions

    fresh, cautions = against(table(400, 5))
    assert cautions == []
    assert fresh["training"] == 399
    learned_from = make_showers(events=400, seed=3)[:40]
    noise = np.random.default_rng(0).normal(1, 0.01, learned_from.cells.shape)
    nearly = observed(replace(learned_from, cells=(learned_from.cells * noise).astype(np.float32)))
    found, (caution,) = against(Observables.joined([table(400, 5)[:360], nearly]))
    assert 0.08 < found["share"] < 0.15
    assert (caution["name"], caution["count"]) == ("Training showers repeated", 400 * found["share"])
    assert f"{100 * found['share']:.1f} % of the candidate's" in caution["detail"]
    copied = Observables.joined([table(400, 5)[:399], training[:1]])
    (caution,) = against(copied)[1]
    assert caution["name"] == "Showers of the training set"
    (caution,) = against(table(400, 5), training)[1]
    assert caution["name"] == "Monte Carlo that is in the training set"
