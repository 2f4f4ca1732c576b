"""The three answers, the verdict, the grades, and the hard failures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import criteria_of, measurement, table
from scipy import stats
from verdicts import write_verdict

from calopipe.errors import InputError
from calopipe.grade import built_in_grades, load_grade, tolerances
from calopipe.verdict import overall, read_verdict
from validation.judge import criteria, faults
from validation.judge.answers import Criterion, judge, judge_all, scalars
from validation.statistics.estimates import Estimate


def answered(*estimates: Estimate, criteria: int = 1, **more: Any) -> Criterion:
    return judge(measurement(*estimates, **more), criteria)


@pytest.mark.parametrize(
    ("value", "error", "answer"),
    [
        (1.0, 0.01, "pass"),
        (1.08, 0.009, "pass"),
        (1.08, 0.02, "inconclusive"),  # the interval crosses the tolerance
        (1.15, 0.02, "inconclusive"),  # outside at 95 %, not at the level shared among fifty
        (1.20, 0.02, "fail"),
        (0.80, 0.02, "fail"),
        (1.0, math.nan, "inconclusive"),
        (1.1, 0.0, "pass"),  # the tolerance itself is inside
        (0.9, 0.0, "pass"),
    ],
)
def test_the_three_answers(value: float, error: float, answer: str) -> None:
    assert answered(Estimate(value, error, 1_000), criteria=50).verdict == answer


def test_many_estimates_pass_when_all_do_and_show_the_worst() -> None:
    good, bad, vague = Estimate(1.0, 0.01, 1_000), Estimate(0.7, 0.01, 1_000), Estimate(1.05, 0.05, 1_000)
    assert answered(good, good).verdict == "pass"
    failed = answered(good, bad, labels=("a", "b"))
    assert (failed.verdict, failed.value, failed.worst) == ("fail", 0.7, "b")
    assert (answered(good, vague).verdict, answered(good, vague).value) == ("inconclusive", 1.05)


def test_the_level_is_shared_among_the_criteria() -> None:
    """A criterion outside by three standard errors fails alone, but not as one of fifty: some are so by chance."""
    bad, good = Estimate(1.16, 0.02, 100_000), Estimate(1.0, 0.01, 100_000)
    assert answered(bad).verdict == "fail"
    first, *others = judge_all([measurement(bad), *[measurement(good)] * 49])
    assert (first.verdict, {other.verdict for other in others}) == ("inconclusive", {"pass"})


def test_a_criterion_of_which_nothing_could_be_measured_is_undecided() -> None:
    nothing = answered()
    assert (nothing.verdict, nothing.interval, nothing.worst) == ("inconclusive", None, "")
    assert math.isnan(nothing.value)


def test_the_number_of_events_that_would_decide_does() -> None:
    for value, answer in ((1.05, "pass"), (1.15, "fail")):
        needed = answered(Estimate(value, 0.05, 1_000), criteria=20).events_needed or 0
        for more, expected in ((1.02, answer), (0.98, "inconclusive")):
            error = 0.05 * math.sqrt(1_000 / (more * needed))
            assert answered(Estimate(value, error, needed), criteria=20).verdict == expected


def test_the_number_of_events_decides_all_estimates_or_one_that_is_outside() -> None:
    """To pass, the last of the estimates must be inside; to fail, the first must be outside."""
    alone = [
        [answered(Estimate(value, error, 1_000), criteria=10 * 2).events_needed or 0 for error in (0.05, 0.08)]
        for value in (1.05, 1.15)
    ]
    for value, number in ((1.05, max(alone[0])), (1.15, min(alone[1]))):
        both = answered(Estimate(value, 0.05, 1_000), Estimate(value, 0.08, 1_000), criteria=10)
        assert both.verdict == "inconclusive"
        assert both.events_needed == pytest.approx(number, rel=1e-3)
    assert alone[0][1] > 2 * alone[0][0]


def test_one_side_counts_and_how_far_out_is_signed_and_heeds_no_value_that_is_none() -> None:
    """In units of the tolerance of 0.1. The other side of a one-sided criterion is never outside."""
    low, none = Estimate(0.5, 0.01, 1_000), Estimate(math.nan, math.nan, 1_000)
    for side, excess, answer in ((0, 5.0, "fail"), (1, -5.0, "pass"), (-1, 5.0, "fail")):
        assert answered(low, side=side).verdict == answer
        assert answered(none, low, side=side).excess == pytest.approx(excess)
        assert answered(none, low, side=side).value == 0.5
    assert answered(none).excess == 0


def test_the_estimate_that_is_shown_reaches_farthest_not_lies_farthest() -> None:
    near, far = Estimate(1.02, 0.2, 1_000), Estimate(1.05, 0.03, 1_000)
    shown = answered(far, near, labels=("far", "near"))
    assert (shown.verdict, shown.worst, shown.value) == ("inconclusive", "near", 1.02)
    inside = Estimate(1.0, 0.03, 1_000)  # whose ends are both farther from the target than the nearer end of the other
    assert answered(far, inside, labels=("far", "inside")).worst == "far"
    few = [Estimate(value, 0.2, 5) for value in (1.02, 1.05, 0.99)]  # of which none has an interval
    assert answered(*few).value == 1.05


def test_no_number_of_events_is_named_that_there_is_or_where_one_estimate_has_none() -> None:
    vague, never = Estimate(0.05, 0.05, 1_000), Estimate(0.1, 0.05, 1_000)  # which lies on the tolerance
    needed = answered(vague, target=0.0).events_needed
    assert needed is not None
    assert answered(vague, never, target=0.0).events_needed is None
    assert answered(replace(vague, events=5), target=0.0).events_needed is None  # nor an interval
    assert answered(vague, target=0.0, most_events=needed).events_needed == needed
    assert answered(vague, target=0.0, most_events=needed - 1).events_needed is None


def test_the_document_of_a_criterion_has_both_intervals_and_the_events_of_its_smallest_bin() -> None:
    wide, narrow = Estimate(0.05, 0.02, 400), Estimate(0.0, 0.01, 300)
    document = answered(narrow, wide, criteria=20, target=0.0, side=1).to_json()
    assert (document["value"], document["events"], document["tolerance"]) == (0.05, 300, [None, 0.1])
    for name, chance in (("interval", 0.05), ("strict_interval", 0.05 / 40)):  # of 20 criteria with two estimates
        reach = 0.02 * stats.t.isf(chance / 2, 399)
        assert document[name] == pytest.approx([0.05 - reach, 0.05 + reach])
    assert answered(narrow, target=0.0, side=-1).to_json()["tolerance"] == [-0.1, None]


def test_the_worst_come_first_and_are_plotted_with_the_number_of_each_answer() -> None:
    values = (1.0, 1.3, 1.05, 1.5)
    order = judge_all([measurement(Estimate(value, 0.03, 1_000)) for value in values])
    assert [each.value for each in order] == [1.5, 1.3, 1.05, 1.0]
    assert [each.verdict for each in order] == ["fail", "fail", "inconclusive", "pass"]
    unknown = answered(Estimate(math.nan, math.nan, 1_000), key="coverage")
    counts = {"criteria_pass": 1.0, "criteria_fail": 2.0, "criteria_inconclusive": 2.0}
    assert scalars([*order, unknown]) == counts | {"response": 1.5}


def test_the_verdict_adds_up() -> None:
    assert overall(["pass", "pass"], [], []) == "accepted"
    assert overall(["pass", "inconclusive"], [], []) == "inconclusive"
    assert overall(["pass", "inconclusive", "fail"], [], []) == "rejected"
    assert overall(["pass"], [{"name": "x"}], []) == "rejected"
    assert overall([], [], []) == "inconclusive"
    assert overall(["pass"], [], [{"name": "x"}]) == "inconclusive"


def test_built_in_grades() -> None:
    assert built_in_grades() == ["gan", "precision"]
    strict, loose = load_grade("precision"), load_grade("gan")
    assert all(strict.tolerance[key] < loose.tolerance[key] for key in tolerances())


def test_a_criterion_without_a_tolerance_is_told() -> None:
    mean = criteria.Mean("Mean of nothing", "nothing", "response")
    mine = table(60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(criteria, "MEANS", (mean,))
        with pytest.raises(InputError, match=r"grades: no grade has tolerance\.nothing, which a criterion needs"):
            criteria_of(mine, mine)


def grade_text(**changed: object) -> str:
    values = dict.fromkeys(tolerances(), 0.1) | changed
    return "[tolerance]\n" + "\n".join(f"{key} = {json.dumps(v)}" for key, v in values.items() if v is not None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (grade_text(colour=1), "unknown key tolerance.colour"),
        (grade_text(hits=-1), r"tolerance.hits must be a positive number or inf, found -1"),
        (grade_text(hits=True), "tolerance.hits must be a positive number"),
        (grade_text(hits=None), "tolerance.hits must be a positive number or inf, it is missing"),
        ("level = 1\n" + grade_text(), "holds level, tolerance, expected the table"),
        ("", "holds nothing, expected the table"),
        ("[tolerance", "not valid TOML"),
    ],
)
def test_a_bad_grade_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"mine.toml: .*{message}"):
        load_grade(str(path))


def test_a_grade_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "precision.toml"
    path.write_text(grade_text(hits=0.5))
    assert load_grade(str(path)).tolerance["hits"] == 0.5
    assert load_grade(str(path)).name == "precision.toml"  # not to be taken for the built-in one
    with pytest.raises(InputError, match="--grade nonsense: neither a grade"):
        load_grade("nonsense")


def test_showers_that_do_not_follow_the_energy() -> None:
    mine = table(3_000)
    assert faults.no_rise_with_energy(mine, mine) == []
    falling = replace(mine, energy_gev=300 - mine.energy_gev)
    visible = mine.column("visible_gev")
    for share, faulty in ((0.08, True), (0.12, False)):  # of the slope, which is known to a hundredth
        flat = replace(mine, scalars=mine.scalars.copy())
        flat.column("visible_gev")[:] = visible.mean() + share * (visible - visible.mean())
        assert bool(faults.no_rise_with_energy(mine, flat)) == faulty
    few = table(20)
    noisy = replace(few, scalars=few.scalars.copy())
    noisy.column("visible_gev")[:] *= np.random.default_rng(1).uniform(0.3, 3, 20)  # whose slope is not known
    assert faults.no_rise_with_energy(mine, noisy) == []
    one_energy = replace(mine, energy_gev=np.full(3_000, 100.0))
    assert faults.no_rise_with_energy(one_energy, one_energy) == []
    assert faults.no_rise_with_energy(mine, falling[:9]) == []  # too few for a slope
    (fault,) = faults.no_rise_with_energy(mine, falling[:10])
    assert (fault["name"], fault["count"]) == ("Visible energy does not rise with E", 10)
    for name, rows in (("slope", falling[:10]), ("Monte Carlo", mine)):
        fit = stats.linregress(rows.energy_gev, rows.column("visible_gev"))
        assert f"{name} {fit.slope:.3g} ± {fit.stderr:.2g}" in fault["detail"]


def test_empty_showers_fail_when_significantly_more_than_in_monte_carlo() -> None:
    mine = table(200)
    some, many = (replace(mine, scalars=mine.scalars.copy()) for _ in range(2))
    some.column("hits")[:9] = 0
    many.column("hits")[:10] = 0
    # how often all that are empty would be of one set of two of 200 by chance
    assert math.comb(200, 9) / math.comb(400, 9) > 1e-3 > math.comb(200, 10) / math.comb(400, 10)
    assert faults.too_many_empty(mine, some) == []
    (fault,) = faults.too_many_empty(mine, many)
    assert fault["count"] == 10
    assert fault["detail"].startswith("10 of 200 showers")
    assert fault["detail"].endswith("in Monte Carlo 0 of 200")
    assert faults.too_many_empty(many, some) == []  # fewer are no fault


def test_the_same_shower_twice() -> None:
    once, other = np.arange(20, dtype=np.uint64), np.arange(100, 120, dtype=np.uint64)
    twice = np.concatenate([once, once[:3]])
    assert faults.repeated(once) == faults.copied(once, other, "x") == faults.bad_cells(0, "", 1_500) == []
    (repeated,) = faults.repeated(twice)
    (copied,) = faults.copied(twice[-4:], once[:10], "x")
    (bad,) = faults.bad_cells(2, "event 7 of a.h5", 1_500)
    assert [found["count"] for found in (repeated, copied, bad)] == [3, 3, 2]
    counted = [found["detail"].partition(" showers")[0] for found in (repeated, copied, bad)]
    assert counted == ["3 of 23", "3 of 4", "2 of 1,500"]
    assert bad["detail"].endswith("the first is event 7 of a.h5")


def test_repeated_showers_fail_where_monte_carlo_repeats_significantly_fewer() -> None:
    once = np.arange(1000, dtype=np.uint64)
    tens, twos = once // 10, once // 2  # 900 and 500 of them repeat another
    assert faults.repeated_more(tens, tens + 100) == faults.repeated_more(tens, twos) == []
    for reference, candidate, count in (
        (once, np.append(once, 7), 1),
        (twos, tens, 900),
        (tens, np.concatenate([once // 50, tens + 100]), 1880),
    ):
        assert faults.repeated_more(reference, candidate)[0]["count"] == count


def test_a_verdict_that_contradicts_itself_is_not_read(tmp_path: Path) -> None:
    write_verdict(tmp_path)
    path = tmp_path / "verdict.json"
    document = read_verdict(path)
    path.write_text(json.dumps(document | {"criteria": []}))
    with pytest.raises(InputError, match="says 'accepted' where its criteria say 'inconclusive'"):
        read_verdict(path)
    del document["hard_failures"]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="'hard_failures' is missing"):
        read_verdict(path)
