"""Pairing, empty showers, and challengers: what of two sets is compared with what."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judging import criteria_of, table
from showers import SMALL_GEOMETRY, make_file, make_showers, observed, write_file

from calopipe.grade import load_grade
from calopipe.showers.cells import Showers
from calopipe.showers.hits import Hits
from calopipe.showers.metric import REFERENCE_BINS
from validation.compare import Judgement, validate, without_empty
from validation.judge import similarity
from validation.judge.answers import judge_all
from validation.judge.challenger import against_incumbent
from validation.judge.criteria import measure_criteria
from validation.measure.observables import Observables
from validation.measure.pairing import pairing
from validation.measure.sets import Measured, Rows, Table, Tables
from validation.statistics import binning as bins_of_labels
from validation.statistics.binning import Binning
from validation.statistics.expected import corrected_for_labels


def measured(showers: Showers, cut_gev: float = 0.2) -> Measured:
    hits = Hits.of(showers.cells)
    table = Table([observed(showers)])
    table.empty |= hits.sums() <= cut_gev / SMALL_GEOMETRY.file_unit_gev
    return Measured(table, hits.digests(), 0, "", ())


def judged(reference: Measured, candidate: Measured, *, events: int = 0, per_event: int = 0) -> Judgement:
    """The judgement, in bins for `events` events, or for the number of the candidate's."""
    grade, compared = load_grade("gan"), without_empty(reference.table, candidate.table, per_event)
    binning = Binning.of(reference.table, events or len(candidate.table), SMALL_GEOMETRY, grade)
    return Judgement.of(reference, candidate, compared, binning=binning, grade=grade, seed=0)


def repeated(showers: Showers, times: int) -> Showers:
    return Showers(*(np.repeat(values, times, axis=0) for values in showers.arrays.values()))


def paired(reference: Table, candidate: Showers) -> tuple[int, Rows]:
    return pairing(reference, measured(candidate).table, Path("candidate.h5"))


def test_a_candidate_is_paired_with_all_showers_or_with_those_that_hold_energy() -> None:
    made = make_showers(events=60)
    made.cells[5], made.cells[9] = 0, made.cells[9] * np.float32(1e-3)
    table = measured(made).table
    assert table.empty.sum() == 2
    kept = Showers(*(values[~table.empty] for values in made.arrays.values()))

    per_event, rows = paired(table, repeated(made, 2))
    assert (per_event, len(rows)) == (2, 60)
    per_event, rows = paired(table, repeated(kept, 3))
    assert (per_event, len(rows)) == (3, 58)
    assert not rows.empty.any()


def test_labels_up_to_rounding_are_paired_and_one_that_differs_is_told(caplog: pytest.LogCaptureFixture) -> None:
    made = make_showers(events=60)
    table = measured(made).table
    rounded = np.radians(np.degrees(made.theta_rad)).astype(np.float32)
    assert paired(table, replace(made, theta_rad=rounded))[0] == 1
    assert caplog.messages == []
    made.energy_gev[7] += 1
    assert paired(table, made)[0] == 0
    assert "of 60 showers, 1 have not the energy and angle of their partner, the first of these is 7" in caplog.text


def test_partners_stay_together_at_the_edge_of_a_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three bins of angle begins with an event; rounding moves its partners' angle into the first bin."""
    monkeypatch.setattr(bins_of_labels, "_LEAST_PER_ANGLE_BIN", 20)
    monkeypatch.setattr(bins_of_labels, "_REACH", 0.01)  # so that few showers have several bins
    made = make_showers(events=60)
    made.theta_rad[:] = np.linspace(1.1, 1.5, 60)
    made.theta_rad[20] = np.nextafter(made.theta_rad[19], np.float32(2))
    many = repeated(made, 2)
    many.theta_rad[40:42] = made.theta_rad[19]
    found = judged(measured(made), measured(many), events=60, per_event=2)
    assert len([each for each in found.measurements if each.key == "angle_deg"]) == 3


def test_a_beam_of_one_energy_and_angle_has_no_partners() -> None:
    made = make_showers(events=60)
    made.energy_gev[:], made.theta_rad[:] = 100, 1.5
    assert paired(measured(made).table, repeated(made, 3))[0] == 0
    made.theta_rad[::2] = 1.4  # and of one energy at two angles has
    assert paired(measured(made).table, repeated(made, 3))[0] == 3


def test_a_candidate_that_knows_a_part_of_the_energies_is_paired_with_that_part(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The part ends at an energy that is within a hundredth of the next one. Two of 60 showers are empty."""
    made = make_showers(events=60)
    made.cells[[5, 9]] = 0
    table = measured(made).table
    energy = np.sort(made.energy_gev[~table.empty])
    last = 20 + int(np.argmin(np.diff(energy[20:40])))
    assert energy[last + 1] < 1.01 * energy[last]
    kept = Showers(*(values[~table.empty & (made.energy_gev <= energy[last])] for values in made.arrays.values()))
    per_event, rows = paired(table, repeated(kept, 2))
    assert (per_event, len(rows)) == (2, last + 1)
    assert (
        f"{58 - len(rows)} showers of Monte Carlo left out: candidate.h5 has none of their labels"
        in capsys.readouterr().out
    )
    kept.energy_gev[np.argsort(kept.energy_gev)[5]] *= np.float32(1 + 1e-4)
    assert paired(table, kept)[0] == 0


def test_an_event_goes_with_all_its_partners_where_one_is_empty() -> None:
    made = make_showers(events=40)
    many = repeated(make_showers(events=40, seed=1), 3)
    many.cells[7] = 0  # of event 2
    compared = without_empty(measured(made).table, measured(many).table, 3)
    expected = np.delete(np.arange(40), 2)
    np.testing.assert_array_equal(compared.reference.energy_gev, made.energy_gev[expected])
    np.testing.assert_array_equal(compared.candidate.energy_gev, np.repeat(many.energy_gev[::3][expected], 3))


def test_the_metric_takes_showers_from_all_of_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are more showers than it takes, it takes equally many of each file; files are in the order of energy."""
    showers = table(2_000)
    showers = showers[np.argsort(showers.energy_gev)]
    all_of_them = similarity._profiles(showers)
    monkeypatch.setattr(similarity, "_METRIC_SHOWERS", 12)
    some = similarity._profiles(showers)
    for chosen in REFERENCE_BINS:
        mine, theirs = (each.energy_gev[chosen.holds(each.energy_gev, each.theta_rad)] for each in (all_of_them, some))
        if len(mine) > 24:
            assert len(theirs) == 12
            assert np.mean(theirs) == pytest.approx(np.mean(mine), abs=np.ptp(mine) / 5)
            assert theirs.max() > np.quantile(mine, 0.8)


def test_candidates_of_different_sizes_are_compared_by_every_criterion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bins come from Monte Carlo and the smallest set, not from each candidate."""
    monkeypatch.setattr(bins_of_labels, "_EVENTS_PER_ENERGY_BIN", 200)  # so that small sets have several
    monkeypatch.setattr(bins_of_labels, "_LEAST_PER_ANGLE_BIN", 100)
    reference = measured(make_showers(events=800, seed=1))
    worse = make_showers(events=800, seed=2)
    worse.cells[:] *= np.float32(1.1)
    challenger, incumbent = measured(worse), measured(make_showers(events=400, seed=3))
    binning = Binning.of(reference.table, 400, SMALL_GEOMETRY, load_grade("gan"))
    assert (len(binning.energy), len(binning.angle)) == (2, 4)
    ours, theirs = (judged(reference, each, events=400) for each in (challenger, incumbent))
    found = against_incumbent(ours.measurements, theirs.measurements)
    assert len(ours.criteria) == len(theirs.criteria) > 50
    assert len(found["criteria"]) == len(ours.criteria) - 2  # coverage, which so few showers cannot tell
    assert found["outcome"] == "worse"


def test_a_response_that_is_wrong_at_both_ends_of_the_energies_fails_where_one_bin_has_all_criteria(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bins_of_labels, "_EVENTS_PER_ENERGY_BIN", 200)
    reference, tilted = make_showers(events=1_000, seed=1), make_showers(events=1_000, seed=2)
    slope = 0.1 * (tilted.energy_gev / tilted.energy_gev.mean() - 1)
    tilted.cells[:] *= (1 + slope).astype(np.float32)[:, None, None, None]
    grade, tables = load_grade("precision"), [measured(showers).table for showers in (reference, tilted)]
    binning = Binning.of(tables[0], 1_000, SMALL_GEOMETRY, grade)
    assert (len(binning.energy), len(binning.means)) == (1, 4)
    found = judge_all(measure_criteria(Tables(*tables, 0), binning=binning, grade=grade, rng=np.random.default_rng(0)))
    responses = {each.measurement.bin: each for each in found if each.measurement.name == "Mean response"}
    whole, *parts = (responses[each.label].verdict for each in (*binning.energy, *binning.means))
    assert (whole, parts[0], parts[-1]) == ("pass", "fail", "fail")
    assert [each.measurement.name for each in found].count("Resolution sigma/E") == 1
    assert Binning.of(tables[0], 1_000, SMALL_GEOMETRY, load_grade("gan")).means == ()


def test_showers_that_a_candidate_repeats_are_a_failure_and_copies_of_the_reference_a_caution() -> None:
    made, other = make_showers(events=50), make_showers(events=40, seed=1)
    other.cells[3], other.cells[7:9] = other.cells[4], made.cells[:2]
    candidate = replace(measured(other), bad=1, first_bad="event 3 of a.h5")
    found = judged(measured(made), candidate)
    (bad, failure), (caution,) = found.hard_failures, found.cautions
    assert bad["detail"].startswith("1 of 40 showers")
    assert (failure["name"], failure["count"]) == ("The same shower twice", 1)
    assert failure["detail"].startswith("1 of 40 showers")
    assert (caution["name"], caution["count"]) == ("Showers of the reference", 2)
    assert found.verdict == "rejected"


def test_the_metric_is_given_the_profiles_of_either_set_in_each_bin() -> None:
    sides = {"reference": table(300, 300), "candidate": table(200, 200)}
    described = similarity.figure_of_merit(Tables(*sides.values(), 0))["bins"]
    for name, side in sides.items():
        held = [chosen.holds(side.energy_gev, side.theta_rad) for chosen in REFERENCE_BINS]
        assert [row[name] for row in described] == [mask.sum() for mask in held]
        rows = np.concatenate([np.flatnonzero(mask) for mask in held])
        profiles = similarity._profiles(side)
        for along, values in zip(profiles.along, (side.along_x, side.along_y, side.layers), strict=True):
            np.testing.assert_array_equal(along, values[rows])
        np.testing.assert_array_equal(profiles.angle_rad, side.index_angle_rad[rows])


def test_a_floor_is_the_scatter_of_sets_of_one_truth_that_are_as_large() -> None:
    """As large as the standard error. For many numbers it is that of the largest: for 45, about 2.5 times as large."""
    ratios = {}
    for criterion in (judged.measurement for judged in criteria_of(table(120, 120), table(600, 600)).values()):
        floor = criterion.floor
        assert floor["events"] == (120 if criterion.key == "coverage" else 60)
        assert floor["scaled"] == (criterion.key != "coverage")
        if floor["value"] and len(criterion.estimates) in (1, 45):
            errors = [
                estimate.null[1] if estimate.null else estimate.standard_error for estimate in criterion.estimates
            ]
            ratios[criterion.name] = floor["value"] / np.median(errors)
    assert 1.5 < ratios.pop("Largest difference of correlations") < 3.5
    assert len(ratios) > 30
    assert 0.6 < min(ratios.values()) < max(ratios.values()) < 1.5


def test_a_set_against_itself_is_at_every_target_that_the_grade_has() -> None:
    """One layer holds less than a hundredth of the energy, and another layer holds none."""
    rows = table(120)
    rows = replace(rows, layers=rows.layers * np.array([1, 1, 1, 1e-3, 0], np.float32))
    grade = load_grade("gan")
    asked = replace(grade, tolerance=grade.tolerance | {"hits": math.inf})
    found = criteria_of(rows, rows, per_event=1, grade=asked)
    criteria = {name: judged.measurement for name, judged in found.items()}
    for criterion in criteria.values():
        if criterion.side == 0:
            values = [estimate.value for estimate in criterion.estimates]
            assert values == pytest.approx([criterion.target] * len(values))
    for key, names in (
        ("layer_energy", {f"Mean energy, layer {layer}" for layer in range(3)}),
        ("layer_energy_tail", {"Mean energy, tail, layer 3"}),
        ("hits", set()),
    ):
        assert {name for name, criterion in criteria.items() if criterion.key == key} == names
    assert (criteria["Mean shower depth"].unit, criteria["Mean measured angle"].unit) == ("X0", "degrees")
    covered = criteria["Coverage, relative to Monte Carlo's own"]
    assert (covered.side, covered.most_events) == (-1, 10_000)  # of more only a sample is looked at


@pytest.mark.parametrize("events", [99, 100])
@pytest.mark.parametrize(("highest", "degree"), [(40.0, 4), (20.0, 2)])
def test_what_labels_add_to_a_mean_is_taken_out_up_to_its_degree(highest: float, degree: int, events: int) -> None:
    """Effects of second degree, and of fourth in log E for a wide beam, if fitted to enough showers: every third one.

    The mean over all showers does not change.
    """
    made = make_showers(events=3 * events)
    rows = observed(replace(made, energy_gev=np.geomspace(10, highest, 3 * events)))
    some = rows[::3]

    def surface(table: Observables, power: int = degree) -> np.ndarray:
        log_e, theta = np.log(table.energy_gev), table.theta_rad
        return np.column_stack([log_e**power, log_e * theta - theta**2])

    corrected = corrected_for_labels(surface, some, rows)(rows)
    np.testing.assert_allclose(corrected.mean(axis=0), surface(rows).mean(axis=0))
    if events < 100:
        np.testing.assert_allclose(corrected, surface(rows))
        return
    np.testing.assert_allclose(corrected.std(axis=0), 0, atol=1e-8)
    higher = corrected_for_labels(lambda table: surface(table, degree + 1), some, rows)(rows)
    assert higher[:, 0].std() > 1e-5


def cautioned(reference: Showers, candidate: Showers) -> list[str]:
    return [caution["name"] for caution in judged(measured(reference), measured(candidate)).cautions]


def test_repeated_monte_carlo_is_a_caution() -> None:
    reference, candidate = repeated(make_showers(events=50), 2), make_showers(events=50, seed=1)
    assert cautioned(reference, candidate) == ["The same shower twice in Monte Carlo"]
    as_often = measured(repeated(make_showers(events=50, seed=1), 2))  # by nature, as Monte Carlo does
    assert judged(measured(reference), as_often).hard_failures == []


@pytest.mark.parametrize(("small", "cautions"), [(25, []), (26, ["Most of Monte Carlo is empty"])])
def test_showers_too_small_to_be_seen_are_a_caution_if_they_are_most(small: int, cautions: list[str]) -> None:
    """Cells of a gas hold keV: most showers of such a file have no hit, and showers without a hit do not count."""
    showers = make_showers(events=50)
    showers.cells[:small] *= np.float32(1e-6)
    assert cautioned(showers, make_showers(events=50, seed=1)) == cautions


@pytest.mark.usefixtures("undrawn")
def test_the_document_of_a_challenger_with_its_training_showers(tmp_path: Path) -> None:
    reference, candidate, incumbent, training = (
        make_file(tmp_path / f"{seed}.h5", events=250, seed=seed) for seed in range(4)
    )
    worse = make_showers(events=250, seed=2)
    worse.cells[:] *= np.float32(1.2)
    worse.cells[3], worse.cells[5] = worse.cells[4], make_showers(events=250).cells[0]
    write_file(incumbent, worse)
    document = validate(
        [reference], [candidate], tmp_path / "out",
        incumbent=[incumbent], training=[training, candidate], training_split="all",
    )  # fmt: skip
    assert document["scalars"]["auc_cells"] == document["classifier"]["cells"]["value"]
    assert document["scalars"]["fpd"] == document["distances"]["fpd"]["value"]
    compared = document["incumbent"]  # it holds a shower twice, and one of the reference
    assert (compared["outcome"], compared["verdict"], compared["difference"] < 0) == ("better", "rejected", True)
    assert [caution["name"] for caution in compared["cautions"]] == ["Showers of the reference"]
    assert document["memorisation"]["training"] == 500
    assert "Showers of the training set" in [caution["name"] for caution in document["cautions"]]
    for name, paths in (("incumbent", [incumbent]), ("training", [training, candidate])):
        assert [file["file"] for file in document["inputs"][name]] == list(map(str, paths))
    page = (tmp_path / "out/report.html").read_text()
    assert all(part in page for part in ("Against the incumbent", "Memorisation", "AUC on cells"))
    assert json.loads((tmp_path / "out/verdict.json").read_text())["scalars"].keys() >= {"fpd", "auc_cells", "coverage"}
