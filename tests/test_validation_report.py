"""What the report shows: curves against NumPy, pictures that can be drawn of anything, and a page that is whole."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from showers import SMALL_GEOMETRY, make_showers

from calopipe.showers.cells import Geometry, Layer
from validation.judge.criteria import CORRELATED
from validation.measure.observables import SCALARS, Array, Observables, observe
from validation.measure.pictures import Picture
from validation.report import page as report
from validation.report.curves import Curve, Frame, Summary, summarise
from validation.report.plots import Plot, draw_all, draw_pairs, draw_relative, lower_range
from validation.report.summary import summary

EVENTS = 240


@cache
def table(seed: int, events: int = EVENTS) -> Observables:
    showers = make_showers(events=events, seed=seed)
    return observe(showers.cells, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY)


@cache
def whole() -> Summary:
    return summarise(table(1), table(2), SMALL_GEOMETRY)


def in_bins(values: Array, edges: Array) -> Any:
    return np.clip(np.digitize(values, edges) - 1, 0, len(edges) - 2)


@pytest.mark.parametrize("name", ["layers", "along_x", "along_y", "radial", "spectrum"])
def test_profiles_are_means_over_showers(name: str) -> None:
    for points, observables in ((whole().curves[name].reference, table(1)), (whole().curves[name].candidate, table(2))):
        values = getattr(observables, name).astype(np.float64)
        np.testing.assert_allclose(points[0], values.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(points[1], values.std(axis=0) / math.sqrt(EVENTS), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["response", "hits", "depth_x0", "r90_mm", "second_y_mm2", "angle_deg"])
def test_distributions_are_histograms_with_open_ends(name: str) -> None:
    curve = whole().curves[name]
    edges = curve.frame.edges.copy()
    edges[0], edges[-1] = -np.inf, np.inf
    share = np.histogram(table(2).column(name), edges)[0] / EVENTS
    np.testing.assert_allclose(curve.candidate[0], share)
    np.testing.assert_allclose(curve.candidate[1], np.sqrt(share * (1 - share) / EVENTS))
    assert share.sum() == pytest.approx(1)


def test_response_and_resolution_against_energy() -> None:
    mean, width = (whole().curves[f"{name}_against_energy"] for name in ("response", "resolution"))
    response = table(1).column("response")
    place = in_bins(table(1).energy_gev, mean.frame.edges)
    for k in range(len(mean.frame.edges) - 1):
        inside = response[place == k]
        assert mean.reference[0][k] == pytest.approx(inside.mean())
        assert mean.reference[1][k] == pytest.approx(inside.std(ddof=1) / math.sqrt(len(inside)))
        assert width.reference[0][k] == pytest.approx(inside.std(ddof=1) / inside.mean())


def test_the_mean_angle_is_freed_of_the_spread_within_a_bin() -> None:
    true = np.degrees(table(1).theta_rad)
    place = list(SCALARS).index(next(scalar for scalar in SCALARS if scalar.name == "angle_deg"))
    scalars = table(1).scalars.copy()
    scalars[:, place] = true + 3
    exact = replace(table(1), scalars=scalars)
    curve = summarise(exact, exact, SMALL_GEOMETRY).curves["angle_against_angle"]
    centres = (curve.frame.edges[1:] + curve.frame.edges[:-1]) / 2
    np.testing.assert_allclose(curve.reference[0], centres + 3)
    np.testing.assert_allclose(curve.reference[1], 0, atol=1e-9)


def test_correlations_agree_with_numpy() -> None:
    columns = [index for index, scalar in enumerate(SCALARS) if scalar.name in CORRELATED]
    np.testing.assert_allclose(whole().reference, np.corrcoef(table(1).scalars[:, columns].T), atol=1e-9)
    assert whole().labels == tuple(SCALARS[index].label for index in columns)


def test_every_bin_of_a_count_holds_as_many_whole_numbers() -> None:
    edges = whole().curves["hits"].frame.edges
    width = np.diff(edges)
    assert width[0] == width[0].round() > 0
    np.testing.assert_allclose(width, width[0])
    assert edges[0] % 1 == 0.5


def test_a_bin_with_few_showers_has_no_point() -> None:
    energy = np.where(np.arange(EVENTS) < 5, 100.0, table(1).energy_gev / 10 + 180)
    lonely = replace(table(1), energy_gev=energy)
    curve = summarise(lonely, lonely, SMALL_GEOMETRY).curves["response_against_energy"]
    assert np.isnan(curve.reference[0][0])
    assert np.isfinite(curve.reference[0][-1])


def curve_of(reference: list[float], candidate: list[float], error: float = 0.01, **frame: Any) -> Curve:
    edges = np.arange(len(reference) + 1, dtype=np.float64)
    errors = np.full(len(reference), error)
    shown = Frame("", "", "x", "y", edges, **frame)
    return Curve(shown, (np.array(reference), errors), (np.array(candidate), errors))


def test_points_beyond_the_lower_panel_are_triangles_at_its_edge() -> None:
    curve = curve_of([1.0] * 40 + [0.001, 0.0, 0.0], [1.02] * 37 + [1.1, 5.0, 1.02, 0.0, 1.0, 0.0])
    axis = Figure().subplots()
    draw_relative(axis, curve)
    triangles = {line.get_marker(): line.get_xdata().tolist() for line in axis.lines if line.get_marker() in ("^", "v")}
    assert triangles == {
        "^": [37.5, 38.5, 41.5],
        "v": [40.5],
    }  # nothing is said of the last bin, where there is nothing
    assert axis.get_ylim() == pytest.approx(lower_range(curve))
    assert curve.relative()[0][0] == pytest.approx(1.02)


def test_the_range_of_the_lower_panel() -> None:
    assert lower_range(curve_of([1.0] * 5, [1.0] * 5, error=0.0)) == pytest.approx((0.98, 1.02))
    assert lower_range(curve_of([1.0] * 5, [1.1] * 5, error=0.0)) == pytest.approx((0.88, 1.12))
    assert lower_range(curve_of([1.0] * 5, [3.0] * 5, error=0.0)) == pytest.approx((0.0, 3.4))
    assert lower_range(curve_of([0.0] * 5, [1.0] * 5)) == (0.0, 2.0)
    angles = curve_of([90.0] * 5, [92.0] * 5, error=0.0, below="difference")
    assert lower_range(angles) == pytest.approx((-2.4, 2.4))


def test_anything_can_be_drawn() -> None:
    """Two showers of one energy and angle, the candidate's alike: hardly a bin has a point, and none has an error."""
    mine = replace(table(3)[:2], energy_gev=np.full(2, 100.0), theta_rad=np.full(2, 1.5))
    alike = mine[np.zeros(2, dtype=int)]
    found = summarise(mine, alike, SMALL_GEOMETRY)
    plots = list(draw_all(found, {}))
    assert len(plots) == len(found.curves) + 3  # and of correlations
    assert all(plot.png.startswith(b"\x89PNG") for plot in plots)


def picture(energy_gev: float, theta_deg: float) -> Picture:
    nx, ny, nz = SMALL_GEOMETRY.shape
    return Picture(energy_gev, math.radians(theta_deg), np.ones((ny, nz)), np.ones((nx, ny)))


def test_the_first_showers_of_both_sets_are_drawn() -> None:
    (plot,) = draw_pairs([picture(100, 90)], [picture(120, 80), picture(110, 70)], SMALL_GEOMETRY)
    assert (plot.group, plot.title) == ("Single showers", "100 GeV, 90 degrees")
    assert plot.png.startswith(b"\x89PNG")


def criterion(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name, "key": "response", "bin": "100 to 200 GeV", "unit": "", "verdict": "pass", "value": 1.0,
        "interval": [0.995, 1.005], "strict_interval": [0.99, 1.01], "tolerance": [0.99, 1.01], "events": 1_000,
        "floor": {"value": 0.001, "scaled": True, "events": 500}, "events_needed": None, "worst": "",
    } | changed  # fmt: skip


def document(**more: Any) -> dict[str, Any]:
    files = [{"file": "<mc>.h5", "sha256": "ab" * 32, "events": 1_000}]
    return {
        "verdict": "inconclusive", "grade": {"name": "precision", "tolerance": {"response": 0.01}}, "paired": False,
        "per_event": 0, "events": {"reference": 1_000, "candidate": 1_000}, "empty": {"reference": 0, "candidate": 0},
        "hard_failures": [], "cautions": [], "criteria": [criterion("Mean response")],
        "scalars": {"criteria_pass": 1.0, "criteria_fail": 0.0, "criteria_inconclusive": 0.0},
        "metric": {
            "value": None, "position": None, "profile": None, "angle": None, "events_needed": 500,
            "bins": [{"energy_gev": 110.0, "theta_deg": 62.0, "reference": 3, "candidate": 4, "value": None}],
        },
        "inputs": {
            "reference": files, "candidate": files, "incumbent": [], "training": [], "split": "test", "cut_gev": 0.2,
            "bad_event": "stop", "seed": 7, "versions": {"numpy": "2.4"},
            "code_version": "0.2.0+abc", "geometry": SMALL_GEOMETRY.to_json(),
        },
        "request": "fe" * 32,
    } | more  # fmt: skip


FLOOR = {"value": 0.002, "scaled": True}
LIKENESS: dict[str, Any] = {
    "distances": {
        "fpd": {"value": 0.1234, "uncertainty": 0.0042, "own": 0.002},
        "kpd": {"value": None, "uncertainty": None, "own": None},
    },
    "classifier": {"observables": {"value": 0.71, "interval": [0.7, 0.72], "p_value": 1e-9, "floor": FLOOR}},
    "neighbours": {"coverage": {"value": 0.93, "interval": [0.91, 0.95], "own": 0.951}},
    "memorisation": {
        "share": 0.0123, "interval": [0.007, 0.02], "expected": 0.01, "p_value": 0.3, "median_distance_ratio": 0.991,
        "training": 8_000,
    },
    "incumbent": {
        "outcome": "worse", "difference": 0.31, "interval": [0.1, 0.5], "verdict": "inconclusive",
        "criteria": [
            {
                "name": name, "bin": "b", "challenger": 1.0, "incumbent": 1.0, "difference": difference,
                "interval": [0.0, 1.0], "outcome": outcome,
            }
            for name, difference, outcome in (
                ("Alike", 9.0, "no significant difference"), ("A little", -0.1, "better"), ("Much", 0.5, "worse")
            )
        ],
    },
}  # fmt: skip


class _Balance(HTMLParser):
    """Notes each tag that is closed out of turn, and each attribute that would fetch or lead somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "link", "br"):
            self.open.append(tag)
        outside = [value for name, value in attrs if name in ("src", "href") and not (value or "").startswith("data:")]
        self.wrong += [tag] * (tag in ("script", "link", "a", "iframe", "form")) + [str(each) for each in outside]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"/{tag}")


@pytest.mark.parametrize("more", [{}, LIKENESS])
def test_the_page_is_whole_and_asks_for_nothing(more: dict[str, Any]) -> None:
    page = report.page(document(**more), [Plot("Profiles", "A & B", b"\x89PNG")])
    checked = _Balance()
    checked.feed(page)
    assert (checked.open, checked.wrong) == ([], [])
    assert not re.search(r"url\(|@import|https?:", page)
    assert "&lt;mc&gt;.h5" in page
    assert 'alt="A &amp; B"' in page


def text(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("</head>")[2]).split())


def test_showers_below_a_cut_are_not_said_to_be_without_energy() -> None:
    found = document(empty={"reference": 3, "candidate": 4})
    for cut, told in ((0.2, "With 0.2 GeV or less in their cells"), (0.0, "Without energy")):
        shown = text(report.page(found | {"inputs": found["inputs"] | {"cut_gev": cut}}, []))
        assert f"{told}, and left out of what follows: 4 and 3" in shown
        assert ("Without energy" in shown) == (cut == 0)


def test_the_page_shows_each_part_of_the_document() -> None:
    shown = text(report.page(document(**LIKENESS), []))
    for expected in (
        "FPD x 1000 123.4 ± 4.2 2",
        "KPD x 1000 too few showers",
        "AUC on observables 0.71 0.7 to 0.72 0.002 1e-09",
        "Coverage, all showers 0.93 0.91 to 0.95 0.951",
        "1.23 % (95 % interval 0.7 % to 2 %, p 0.3) lie nearer to one of 8,000 showers",
        "Against the incumbent: worse Difference 0.31 , 95 % interval 0.1 to 0.5",
        "arXiv 2410.21611",
        "separation power",
        "Seed 7.",
        "nothing to draw",
    ):
        assert expected in shown
    assert shown.index("Much") < shown.index("A little") < shown.index("Alike")
    assert shown.index("Against the incumbent") < shown.index("Worst criteria")


def test_what_the_document_does_not_hold_is_left_out() -> None:
    missing: dict[str, Any] = dict.fromkeys(LIKENESS)
    for shown in (text(report.page(document(), [])), text(report.page(document(**missing), []))):
        for word in ("FPD", "AUC", "Coverage", "Memorisation", "incumbent"):
            assert word not in shown


def test_an_undecided_row_says_what_keeps_it_so() -> None:
    outside = criterion(
        "A", verdict="inconclusive", value=1.05, interval=[1.02, 1.08], strict_interval=[1.001, 1.099],
        events_needed=2_345,
    )  # fmt: skip
    one_sided = outside | {"tolerance": [None, 1.01]}
    many = outside | {"events_needed": 11_345_678}
    assert "; more than 1,000,000 showers would decide" in text(report.page(document(criteria=[many]), []))
    crossing = outside | {"interval": [1.0, 1.1], "events_needed": 900}  # fewer than there are
    shown = text(report.page(document(criteria=[outside]), []))
    assert "outside, but the stricter interval is not: 1.001 to 1.099; about 2,300 showers would decide" in shown
    assert "1.001 to 1.099" in text(report.page(document(criteria=[one_sided]), []))
    assert "1.001 to 1.099" not in text(report.page(document(criteria=[crossing]), []))
    assert "would decide," in text(report.page(document(criteria=[crossing]), []))  # how to read the table
    assert "showers would decide" not in text(report.page(document(criteria=[crossing]), []))


def test_the_page_is_for_those_who_did_not_write_it() -> None:
    """Sizes in words with few digits, no names that only this program has, what to do, and who made the showers."""
    thick = Layer(9.571428571428571, 1.1234567, (2, 3), size_mm=(25.2, 18.0))
    geometry = Geometry.of_layers([thick, thick, Layer(7, 1, (1, 1), size_mm=(5, 5))], 1)
    files = [{"file": "g.h5", "sha256": "ab" * 32, "events": 9, "made_by": "autoregressive, 1,600 steps"}]
    inputs = document()["inputs"] | {"candidate": files, "geometry": geometry.to_json()}
    page = report.page(document(inputs=inputs, verdict="rejected"), [])
    shown = text(page)
    assert (
        "Geometry: 2 layers of 2 x 3 cells of 25.2, 18 mm, 9.57143 mm and 1.123 X0 thick; "
        "1 layer of 1 x 1 cells of 5, 5 mm, 7 mm and 1 X0 thick; 1 in a file is 1 GeV." in shown
    )
    assert "Candidate: g.h5 (autoregressive, 1,600 steps)." in shown
    assert "What may help: more steps" in shown
    assert "summed (P + E + A): not computed, for want of showers." in shown
    assert "(scaled)" not in shown
    assert "What may help" not in text(report.page(document(verdict="accepted"), []))


def test_the_distances_of_unpaired_halves_are_not_set_beside_paired_ones() -> None:
    own = "FPD x 1000 123.4 ± 4.2 2"
    shown = {paired: text(report.page(document(**LIKENESS, paired=paired), [])) for paired in (False, True)}
    assert f"{own} (unpaired)" in shown[True]
    assert "does not make it better than Monte Carlo" in shown[True]
    assert own in shown[False]
    assert "(unpaired)" not in shown[False]


def test_criteria_are_grouped_by_their_bin() -> None:
    criteria = [
        criterion("Bad", verdict="fail", bin="150 to 200 GeV"),
        criterion("Good", bin="100 to 150 GeV"),
        criterion("Fine", bin="150 to 200 GeV"),
    ]
    page = report.page(document(criteria=criteria), [])
    assert re.findall(r"<details( open)?><summary>([^<]*GeV: [^<]*)<", page) == [
        (" open", "150 to 200 GeV: 1 fail, 1 pass"),
        ("", "100 to 150 GeV: 1 pass"),
    ]


def test_the_summary_tells_how_alike_the_sets_are() -> None:
    lines = summary(document(**LIKENESS)).splitlines()
    assert "- FPD x 1000: 123.4 (0 is perfect)" in lines
    assert "- AUC of a classifier: observables 0.71 (0.5 is perfect)" in lines
    assert "- Coverage, relative to Monte Carlo's own: 0.93 (1 is perfect)" in lines
    assert (
        "- Against the incumbent: **worse**; difference 0.31, 95 % interval 0.1 to 0.5, below zero is nearer" in lines
    )
    assert "FPD" not in summary(document())
