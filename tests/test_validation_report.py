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
from showers import RING_GEOMETRY, SMALL_GEOMETRY, make_ring_showers, make_showers, observed

from calopipe.showers.cells import Geometry, Layer
from calopipe.verdict import summary
from validation.judge.criteria import CORRELATED
from validation.measure.observables import SCALARS, Observables
from validation.measure.pictures import Picture
from validation.report import page as report
from validation.report import plots as drawing
from validation.report.curves import Curve, Frame, Summary, _edges, _in_bins, _label_edges, mean_in_bin, summarise
from validation.report.page import why_undecided
from validation.report.plots import Plot, draw_all, draw_pairs, draw_relative, lower_range

EVENTS = 240


@cache
def table(seed: int, events: int = EVENTS) -> Observables:
    return observed(make_showers(events=events, seed=seed))


@cache
def whole() -> Summary:
    return summarise(table(1), table(2), SMALL_GEOMETRY)


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
    if name == "response":
        assert len(edges) == 16  # the root of the showers
        values, ends = np.concatenate([table(seed).column(name) for seed in (1, 2)]), curve.frame.edges[[0, -1]]
        assert [(values < ends[0]).sum(), (values > ends[1]).sum()] == [3, 3]  # half a percent of 480


def test_response_and_resolution_against_energy() -> None:
    mean, width = (whole().curves[f"{name}_against_energy"] for name in ("response", "resolution"))
    response = table(1).column("response")
    place = np.digitize(table(1).energy_gev, mean.frame.edges[1:-1])
    for k in range(len(mean.frame.edges) - 1):
        inside = response[place == k]
        assert mean.reference[0][k] == pytest.approx(inside.mean())
        assert mean.reference[1][k] == pytest.approx(inside.std(ddof=1) / math.sqrt(len(inside)))
        assert width.reference[0][k] == pytest.approx(inside.std(ddof=1) / inside.mean())
        assert width.reference[1][k] == pytest.approx(width.reference[0][k] / math.sqrt(2 * len(inside)))
    factor = table(1).energy_gev.max() / table(1).energy_gev.min()
    assert whole().resolution["reference"]["reason"].startswith(f"The energies span a factor of {factor:.3g};")


def test_decades_of_energy_have_bins_equal_in_the_logarithm_as_many_as_the_smaller_set_fills() -> None:
    decades = replace(table(1), energy_gev=np.geomspace(1, 100, EVENTS))
    both = summarise(decades, table(2)[:120], SMALL_GEOMETRY)
    assert len(both.curves["response"].frame.edges) == 11
    frame = both.curves["response_against_energy"].frame
    assert (frame.log_x, both.curves["angle_against_angle"].frame.log_x) == (True, False)
    ends, third = frame.edges[[0, -1]], 100 ** (1 / 4)
    np.testing.assert_allclose(frame.edges, [ends[0], third, 100 / third, ends[1]])
    np.testing.assert_allclose(frame.centres, np.sqrt(frame.edges[1:] * frame.edges[:-1]))
    assert "Bins with 50 showers: 1;" in both.resolution["reference"]["reason"]  # 120 showers are for one bin


def test_rings_have_no_curve_of_the_angle() -> None:
    rings = observed(make_ring_showers(events=40), RING_GEOMETRY)
    assert "angle_against_angle" not in summarise(rings, rings, RING_GEOMETRY).curves


@pytest.mark.parametrize(
    ("events", "edges"),
    [
        (100_000, [100, 102, *np.linspace(114, 198, 8), 200]),
        (240, [100, *np.linspace(100 + 50 / 3, 200 - 50 / 3, 4), 200]),
        (50, [100, 125, 175, 200]),
    ],
)
def test_bins_of_a_label_are_narrow_at_the_ends_and_hold_twice_what_a_point_needs(
    events: int, edges: list[float]
) -> None:
    np.testing.assert_allclose(_label_edges(np.array([100.0, 200.0]), events, False), edges)
    logarithms = np.log(_label_edges(np.exp(np.array([100.0, 200.0]) / 50), events, True)) * 50
    np.testing.assert_allclose(logarithms, edges)


def test_one_value_for_all_has_a_bin_about_it() -> None:
    np.testing.assert_allclose(_label_edges(np.full(9, 50.0), 9, False), [49.5, 50.5])
    np.testing.assert_allclose(_edges(np.full(9, 3.3), 100), np.linspace(2.8, 3.8, 11))
    np.testing.assert_allclose(_edges(np.full(9, 3.3) * (1 + 1e-12 * np.arange(9)), 100), np.linspace(2.8, 3.8, 11))
    assert _edges(np.full(9, 7.0), 100).tolist() == [5.5, 6.5, 7.5]
    assert [len(_edges(np.linspace(0, 1, 9) + 0.1, events)) - 1 for events in (4, 10_000)] == [5, 40]


def test_the_mean_angle_is_freed_of_the_spread_within_a_bin() -> None:
    true = np.degrees(table(1).theta_rad)
    exact = replace(table(1), scalars=table(1).scalars.copy())
    exact.column("angle_deg")[:] = true + 3
    curve = summarise(exact, exact, SMALL_GEOMETRY).curves["angle_against_angle"]
    centres = (curve.frame.edges[1:] + curve.frame.edges[:-1]) / 2
    np.testing.assert_allclose(curve.reference[0], centres + 3)
    np.testing.assert_allclose(curve.reference[1], 0, atol=1e-9)


def test_correlations_agree_with_numpy() -> None:
    names = [name for name in SCALARS if name in CORRELATED]
    columns = np.array([table(1).column(name) for name in names])
    np.testing.assert_allclose(whole().reference, np.corrcoef(columns), atol=1e-9)
    assert whole().labels == tuple(SCALARS[name] for name in names)


def test_every_bin_of_a_count_holds_as_many_whole_numbers() -> None:
    assert whole().curves["hits"].frame.edges[0] % 1 == 0.5
    np.testing.assert_allclose(_edges(np.arange(0, 101), 100), np.arange(-0.5, 100, 10))  # a tenth of 99, and no less


def test_a_bin_with_few_showers_has_no_point() -> None:
    bins = [180.0, 190.0, 200.0]
    for least, showers in ((True, 20), (False, 19)):
        label = np.repeat([185.0, 195.0], [showers, 30])
        points, _ = _in_bins(label, np.ones(len(label)), np.array(bins), mean_in_bin)
        assert np.isfinite(points).tolist() == [least, True]


def curve_of(reference: list[float], candidate: list[float], error: float = 0.01, **frame: Any) -> Curve:
    edges = np.arange(len(reference) + 1, dtype=np.float64)
    errors = np.full(len(reference), error)
    shown = Frame("", "", "x", "y", edges, **frame)
    return Curve(shown, (np.array(reference), errors), (np.array(candidate), errors))


def test_a_ratio_and_a_difference_have_the_errors_of_both_sets() -> None:
    for below, value, error in (("ratio", 1.5, 1.5 * math.hypot(0.1, 0.2)), ("difference", 1.0, math.hypot(0.2, 0.6))):
        frame = Frame("", "", "x", "y", np.array([1.0, 100.0]), below=below)  # type: ignore[arg-type]
        curve = Curve(frame, (np.array([2.0]), np.array([0.2])), (np.array([3.0]), np.array([0.6])))
        compared, errors = curve.relative()
        assert (compared[0], errors[0]) == pytest.approx((value, error))
        assert frame.centres == pytest.approx([50.5])


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
    (points,) = (drawn_points for drawn_points in axis.containers if hasattr(drawn_points, "has_yerr"))
    np.testing.assert_allclose(points.lines[0].get_ydata()[[0, 37]], [1.02, 1.1])
    assert curve.relative()[0][0] == pytest.approx(1.02)


def test_the_range_of_the_lower_panel() -> None:
    assert lower_range(curve_of([1.0] * 5, [1.0] * 5, error=0.0)) == pytest.approx((0.98, 1.02))
    assert lower_range(curve_of([1.0] * 5, [1.1] * 5, error=0.0)) == pytest.approx((0.88, 1.12))
    assert lower_range(curve_of([0.0] * 5, [1.0] * 5)) == (0.0, 2.0)
    angles = curve_of([90.0] * 5, [92.0] * 5, error=0.0, below="difference")
    assert lower_range(angles) == pytest.approx((-2.4, 2.4))
    assert lower_range(curve_of([1.0] * 5, [1.0] * 5, error=0.1))[1] == pytest.approx(1 + 1.2 * math.hypot(0.1, 0.1))
    spread = [1.05] * 11 + [1.2] * 8 + [1.9] * 2  # the last two are more than a tenth of none
    assert lower_range(curve_of([1.0] * 21, spread, error=0.0)) == pytest.approx((0.76, 1.24))
    assert lower_range(curve_of([1.0] * 21, [1.1] * 11 + [4.0] * 10, error=0.0)) == (0, 2)  # fewer than half
    for share, end in ((0.02, 1.6), (0.005, 1.12)):  # of the highest bin, at ratios of 1.5
        tail = curve_of([1.0] * 5 + [share] * 5, [1.1] * 5 + [1.5 * share] * 5, error=0.0)
        assert lower_range(tail)[1] == pytest.approx(end)


def drawn(curve: Curve, *scales: Any) -> Figure:
    figure = Figure()
    drawing._draw(figure, curve, scales, {})
    return figure


def test_a_curve_is_drawn_from_its_first_edge_to_its_last_and_a_spectrum_as_far_as_it_holds_anything() -> None:
    values: tuple[list[float], list[float]] = [4.0, 1.0, 0.0, 0.0], [1.0, 1.0, 2.0, 0.0]
    for trimmed, last in ((True, 3), (False, 4)):
        top, middle, below = drawn(curve_of(*values, trimmed=trimmed), "linear", "log").axes
        assert below.get_xlim() == (0, last)
        assert top.get_ylim()[0] == 0
        assert top.get_ylim()[1] > 1.2 * 4
        assert middle.get_ylim() == pytest.approx((1 / 3, 20))  # from a third of Monte Carlo's least
    handles, names = top.get_legend_handles_labels()
    steps, points = (dict(zip(names, handles, strict=True))[name] for name in ("Monte Carlo", "Candidate"))
    assert steps.get_data().values.tolist() == values[0]
    assert points.lines[0].get_ydata().tolist() == values[1]
    np.testing.assert_allclose(points.lines[2][0].get_segments()[0][:, 1], [0.99, 1.01])  # one standard deviation
    far = drawn(curve_of([10.0, 10.0], [10.0, 11.0]), "linear").axes[0].get_ylim()
    assert far == pytest.approx((9.7, 11.8))  # what is far from zero fills its panel


def test_each_coefficient_stands_below_and_beside_the_names_of_its_pair() -> None:
    matrix = np.array([[1.0, 0.25, -0.5], [0.25, 1.0, 0.75], [-0.5, 0.75, 1.0]])
    figure = Figure()
    drawing._correlations(figure, "", matrix, ("a", "b", "c"), 1.0)
    (axis,) = figure.axes
    columns, rows = ([name.get_text() for name in names] for names in (axis.get_xticklabels(), axis.get_yticklabels()))
    shown = {(columns[int(t.get_position()[0])], rows[int(t.get_position()[1])]): t.get_text() for t in axis.texts}
    assert shown == {("a", "b"): ".25", ("a", "c"): "-.50", ("b", "c"): ".75"}
    assert axis.images[0].get_clim() == (-1, 1)


def test_all_that_is_drawn_is_given_what_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    painted: list[dict[str, Any]] = []

    def noted(paint: Any, height: float) -> bytes:
        painted.append(paint.keywords)
        return b""

    monkeypatch.setattr(drawing, "png", noted)
    plots = list(draw_all(whole()))
    *curves, expected, given, difference = painted
    with_laws = [plot.title for plot, made in zip(plots, curves, strict=False) if made["laws"] is whole().resolution]
    assert with_laws == ["Resolution against energy"]
    assert expected["matrix"] is whole().reference
    assert given["matrix"] is whole().candidate
    np.testing.assert_allclose(difference["matrix"], whole().candidate - whole().reference)


def test_anything_can_be_drawn() -> None:
    """Two showers of one energy and angle, the candidate's alike: hardly a bin has a point, and none has an error.

    And curves of rings, which have no angle.
    """
    mine = replace(table(3)[:2], energy_gev=np.full(2, 100.0), theta_rad=np.full(2, 1.5))
    alike = mine[np.zeros(2, dtype=int)]
    found = summarise(mine, alike, SMALL_GEOMETRY)
    plots = [*draw_all(found), *draw_pairs([picture(100, 90)], [picture(120, 80)], SMALL_GEOMETRY)]
    assert len(plots) == len(found.curves) + 4  # and of correlations, and single showers
    assert all(plot.png.startswith(b"\x89PNG") for plot in plots)
    drawing.overview(replace(whole(), curves={name: c for name, c in whole().curves.items() if "angle" not in name}))


def picture(energy_gev: float, theta_deg: float) -> Picture:
    nx, ny, nz = SMALL_GEOMETRY.shape
    return Picture(energy_gev, math.radians(theta_deg), np.ones((ny, nz)), np.ones((nx, ny)))


def test_single_showers_stand_under_their_names_with_colours_down_to_a_ten_thousandth() -> None:
    faint = replace(picture(100, 90), side=np.full_like(picture(1, 1).side, 9e-4))
    front = 1.0 + np.arange(picture(1, 1).front.size).reshape(picture(1, 1).front.shape)
    bright = replace(picture(120, 80), side=10 * picture(1, 1).side, front=front)
    figure = Figure()
    drawing._display(figure, (faint, bright), SMALL_GEOMETRY)
    left, right = figure.axes[:2]
    assert left.get_title(loc="left") == "Monte Carlo\n100 GeV, 90°"
    meshes = [axis.collections[0] for axis in (left, right)]
    np.testing.assert_array_equal(figure.axes[3].collections[0].get_array(), front.T)  # x across
    assert [mesh.get_clim() for mesh in meshes] == [pytest.approx((1e-3, 10))] * 2
    assert [bool(np.ma.getmaskarray(mesh.get_array()).all()) for mesh in meshes] == [True, False]


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
                ("Alike", 9.0, "no significant difference"), ("A little", 0.1, "worse"), ("Much", -0.5, "better")
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
    undecided = criterion("A", verdict="inconclusive", interval=[1.02, 1.08], events_needed=2_345)
    more = {name: [{"file": f"{name}.h5", "sha256": "ab" * 32, "events": 9}] for name in ("incumbent", "training")}
    given = LIKENESS | {"criteria": [undecided], "inputs": document()["inputs"] | more}
    shown = text(report.page(document(**given), []))
    for expected in (
        "outside, but the stricter interval is not: 0.99 to 1.01; about 2,300 showers would decide",
        "Incumbent incumbent.h5 9",
        "Training training.h5 9",
        "FPD x 1000 123.4 ± 4.2 2",
        "KPD x 1000 too few showers",
        "AUC on observables 0.71 0.7 to 0.72 0.002 1e-09",
        "Coverage, all showers 0.93 0.91 to 0.95 0.951",
        "1.23 % (95 % interval 0.7 % to 2 %, p 0.3) lie nearer to one of 8,000 showers",
        "Against the incumbent: worse Difference 0.31 , 95 % interval 0.1 to 0.5",
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


def test_the_page_is_for_those_who_did_not_write_it() -> None:
    """Sizes in words with few digits, what to do, and who made the showers."""
    thick = Layer(9.571428571428571, 1.1234567, (2, 3), size_mm=(25.2, 18.0))
    geometry = Geometry.of_layers([thick, thick, Layer(7, 1, (1, 1), size_mm=(5, 5))], 1)
    files = [{"file": "g.h5", "sha256": "ab" * 32, "events": 9, "made_by": "autoregressive, 1,600 steps"}]
    inputs = document()["inputs"] | {"candidate": files, "geometry": geometry.to_json()}
    shown = text(report.page(document(inputs=inputs, verdict="rejected"), []))
    assert (
        "Geometry: 2 layers of 2 x 3 cells of 25.2, 18 mm, 9.57143 mm and 1.123 X0 thick; "
        "1 layer of 1 x 1 cells of 5, 5 mm, 7 mm and 1 X0 thick; 1 in a file is 1 GeV." in shown
    )
    assert "Candidate: g.h5 (autoregressive, 1,600 steps)." in shown
    assert "What may help: more steps" in shown
    assert "What may help" not in text(report.page(document(verdict="accepted"), []))


def test_the_distances_of_unpaired_halves_are_not_set_beside_paired_ones() -> None:
    own = "FPD x 1000 123.4 ± 4.2 2"
    shown = {paired: text(report.page(document(**LIKENESS, paired=paired), [])) for paired in (False, True)}
    assert f"{own} (unpaired)" in shown[True]
    assert "does not make it better than Monte Carlo" in shown[True]
    assert own in shown[False]
    assert "(unpaired)" not in shown[False]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"events_needed": 1_001}, "about 1,000 showers would decide"),
        ({"events_needed": 1_000}, ""),
        ({"events_needed": 11, "events": 9}, "about 11 showers would decide"),
        ({"events_needed": 1_000_000}, "more than 1,000,000 showers would decide"),
        (
            {"interval": [0.9, 0.95], "tolerance": [0.99, None]},
            "outside, but the stricter interval is not: 0.99 to 1.01",
        ),
        ({"interval": [0.9, 0.99]}, ""),
        ({"interval": [0.9, None]}, ""),
        (
            {"interval": [1.1, None], "strict_interval": [0.9, None]},
            "outside, but the stricter interval is not: at least 0.9",
        ),
        ({"interval": [1.005, 1.2]}, ""),
        ({"interval": [1.1, 1.2], "strict_interval": None}, "outside, but the stricter interval is not"),
        ({"interval": [1.1, 1.2], "verdict": "fail"}, ""),
        ({"interval": None}, ""),
    ],
)
def test_why_a_row_is_undecided(changed: dict[str, Any], reason: str) -> None:
    assert why_undecided(criterion("A", **{"verdict": "inconclusive"} | changed), "showers") == reason


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


def test_the_summary_has_the_worst_criteria_all_hard_failures_and_how_alike_the_sets_are() -> None:
    failures = [{"name": "NaN", "detail": "in <a>_b | c & d"}]
    rows = [criterion(f"Criterion {k}", interval=[0.995, 1.0051]) for k in range(12)]
    told = document(criteria=rows, hard_failures=failures, paired=True, events={"reference": 1_000, "candidate": 3_000})
    lines = summary(told | LIKENESS).splitlines()
    for line in (
        "- FPD x 1000: 123.4 (0 is perfect)",
        "- AUC of a classifier: observables 0.71 (0.5 is perfect)",
        "- Coverage, relative to Monte Carlo's own: 0.93 (1 is perfect)",
        "- Against the incumbent: **worse**; difference 0.31, 95 % interval 0.1 to 0.5, below zero is nearer",
    ):
        assert line in lines
    assert "Grade precision; 3,000 showers against 1,000 of the reference, paired." in lines
    assert r"- **NaN**: in &lt;a&gt;\_b \| c &amp; d" in lines
    listed = [line for line in lines if line.startswith("| Criterion")]
    assert listed[0] == "| Criterion 0 | 100 to 200 GeV | 1 | 0.995 to 1.005 | 0.99 to 1.01 | pass |"
    assert len(listed) == 10
    assert "unpaired." in summary(document())
    assert "3,000 images against 1,000" in summary(told | {"samples": "images"})


@pytest.mark.parametrize(("value", "told"), [(0.0, True), (None, False)])
def test_a_figure_of_zero_is_told_and_one_that_is_not_known_is_not(value: float | None, told: bool) -> None:
    figure = {"value": value}
    figures = {"distances": {"fpd": figure}, "classifier": {"all": figure}, "neighbours": {"coverage": figure}}
    shown = summary(document(**figures))
    assert [name in shown for name in ("FPD", "AUC", "Coverage")] == [told] * 3
