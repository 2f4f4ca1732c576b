"""The plots of the report: curves against NumPy; pictures can be drawn of any showers."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from judging import table
from matplotlib.figure import Figure
from showers import RING_GEOMETRY, SMALL_GEOMETRY, make_ring_showers, observed

from validation.judge.criteria import CORRELATED
from validation.measure.observables import SCALARS
from validation.measure.pictures import Picture
from validation.report import plots as drawing
from validation.report.curves import Curve, Frame, Summary, _edges, _in_bins, _label_edges, mean_in_bin, summarise
from validation.report.plots import draw_all, draw_pairs, draw_relative, lower_range

EVENTS = 240


MINE, THEIRS = table(EVENTS, 1), table(EVENTS, 2)


@cache
def whole() -> Summary:
    return summarise(MINE, THEIRS, SMALL_GEOMETRY)


@pytest.mark.parametrize("name", ["layers", "along_x", "along_y", "radial", "spectrum"])
def test_profiles_are_means_over_showers(name: str) -> None:
    curve = whole().curves[name]
    for points, observables in ((curve.reference, MINE), (curve.candidate, THEIRS)):
        values = getattr(observables, name).astype(np.float64)
        np.testing.assert_allclose(points[0], values.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(points[1], values.std(axis=0) / math.sqrt(EVENTS), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["response", "hits", "depth_x0", "r90_mm", "second_y_mm2", "angle_deg"])
def test_distributions_are_histograms_with_open_ends(name: str) -> None:
    curve = whole().curves[name]
    edges = curve.frame.edges.copy()
    edges[0], edges[-1] = -np.inf, np.inf
    share = np.histogram(THEIRS.column(name), edges)[0] / EVENTS
    np.testing.assert_allclose(curve.candidate[0], share)
    np.testing.assert_allclose(curve.candidate[1], np.sqrt(share * (1 - share) / EVENTS))
    if name == "response":
        assert len(edges) == 16  # the root of the showers
        values, ends = np.concatenate([MINE.column(name), THEIRS.column(name)]), curve.frame.edges[[0, -1]]
        assert [(values < ends[0]).sum(), (values > ends[1]).sum()] == [3, 3]  # half a percent of 480


def test_response_and_resolution_against_energy() -> None:
    mean, width = (whole().curves[f"{name}_against_energy"] for name in ("response", "resolution"))
    response = MINE.column("response")
    place = np.digitize(MINE.energy_gev, mean.frame.edges[1:-1])
    for k in range(len(mean.frame.edges) - 1):
        inside = response[place == k]
        assert mean.reference[0][k] == pytest.approx(inside.mean())
        assert mean.reference[1][k] == pytest.approx(inside.std(ddof=1) / math.sqrt(len(inside)))
        assert width.reference[0][k] == pytest.approx(inside.std(ddof=1) / inside.mean())
        assert width.reference[1][k] == pytest.approx(width.reference[0][k] / math.sqrt(2 * len(inside)))
    factor = MINE.energy_gev.max() / MINE.energy_gev.min()
    assert whole().resolution["reference"]["reason"].startswith(f"The energies span a factor of {factor:.3g};")


def test_decades_of_energy_have_bins_equal_in_the_logarithm_as_many_as_the_smaller_set_fills() -> None:
    decades = replace(MINE, energy_gev=np.geomspace(1, 100, EVENTS))
    both = summarise(decades, THEIRS[:120], SMALL_GEOMETRY)
    assert len(both.curves["response"].frame.edges) == 11
    frame = both.curves["response_against_energy"].frame
    assert (frame.log_x, both.curves["angle_against_angle"].frame.log_x) == (True, False)
    ends, third = frame.edges[[0, -1]], 100 ** (1 / 4)
    np.testing.assert_allclose(frame.edges, [ends[0], third, 100 / third, ends[1]])
    np.testing.assert_allclose(frame.centres, np.sqrt(frame.edges[1:] * frame.edges[:-1]))
    assert (
        "Bins with 50 showers whose response varies: 1;" in both.resolution["reference"]["reason"]
    )  # 120 showers are for one bin


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


def test_one_value_for_all_has_bins_about_it_and_every_bin_of_a_count_as_many_whole_numbers() -> None:
    np.testing.assert_allclose(_label_edges(np.full(9, 50.0), 9, False), [49.5, 50.5])
    for alike in (np.full(9, 3.3), np.full(9, 3.3) * (1 + 1e-12 * np.arange(9))):
        np.testing.assert_allclose(_edges(alike, 100), np.linspace(2.8, 3.8, 11))
    assert _edges(np.full(9, 7.0), 100).tolist() == [5.5, 6.5, 7.5]
    np.testing.assert_allclose(_edges(np.arange(0, 101), 100), np.arange(-0.5, 100, 10))  # a tenth of 99, and no less
    assert [len(_edges(np.linspace(0, 1, 9) + 0.1, events)) - 1 for events in (4, 10_000)] == [5, 40]


def test_the_mean_angle_is_freed_of_the_spread_within_a_bin() -> None:
    true = np.degrees(MINE.theta_rad)
    exact = replace(MINE, scalars=MINE.scalars.copy())
    exact.column("angle_deg")[:] = true + 3
    curve = summarise(exact, exact, SMALL_GEOMETRY).curves["angle_against_angle"]
    centres = (curve.frame.edges[1:] + curve.frame.edges[:-1]) / 2
    np.testing.assert_allclose(curve.reference, [centres + 3, 0 * centres], atol=1e-9)


def test_correlations_agree_with_numpy() -> None:
    names = [name for name in SCALARS if name in CORRELATED]
    columns = np.array([MINE.column(name) for name in names])
    np.testing.assert_allclose(whole().reference, np.corrcoef(columns), atol=1e-9)
    assert whole().labels == tuple(SCALARS[name] for name in names)


def test_a_bin_of_fewer_than_twenty_showers_has_no_point() -> None:
    label = np.repeat([185.0, 195.0, 205.0], [19, 20, 30])
    points, _ = _in_bins(label, np.ones(len(label)), np.array([180.0, 190.0, 200.0, 210.0]), mean_in_bin)
    assert np.isfinite(points).tolist() == [False, True, True]


def curve_of(reference: list[float], candidate: list[float], error: float = 0.01, **frame: Any) -> Curve:
    edges = np.arange(len(reference) + 1, dtype=np.float64)
    errors = np.full(len(reference), error)
    shown = Frame("", "", "x", "y", edges, **frame)
    return Curve(shown, (np.array(reference), errors), (np.array(candidate), errors))


def test_a_ratio_and_a_difference_have_the_errors_of_both_sets() -> None:
    sides = (np.array([2.0]), np.array([0.2])), (np.array([3.0]), np.array([0.6]))
    ratio, difference = (curve_of([0.0], [0.0], below=below).frame for below in ("ratio", "difference"))
    assert np.ravel(Curve(ratio, *sides).relative()) == pytest.approx([1.5, 1.5 * math.hypot(0.1, 0.2)])
    assert np.ravel(Curve(difference, *sides).relative()) == pytest.approx([1.0, math.hypot(0.2, 0.6)])
    assert ratio.centres == pytest.approx([0.5])


def test_points_beyond_the_lower_panel_are_triangles_at_its_edge() -> None:
    curve = curve_of([1.0] * 40 + [0.001, 0.0, 0.0], [1.02] * 37 + [1.1, 5.0, 1.02, 0.0, 1.0, 0.0])
    axis = Figure().subplots()
    draw_relative(axis, curve)
    triangles = {line.get_marker(): line.get_xdata().tolist() for line in axis.lines if line.get_marker() in ("^", "v")}
    assert triangles == {"^": [37.5, 38.5, 41.5], "v": [40.5]}  # nothing of the last bin, where there is nothing
    assert axis.get_ylim() == pytest.approx(lower_range(curve))
    (points,) = (shown for shown in axis.containers if hasattr(shown, "has_yerr"))
    np.testing.assert_allclose(points.lines[0].get_ydata()[[0, 37]], [1.02, 1.1])


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
    """Two showers of one energy and angle; the candidate's are equal: few bins have a point, and none has an error."""
    mine = replace(MINE[:2], energy_gev=np.full(2, 100.0), theta_rad=np.full(2, 1.5))
    alike = mine[np.zeros(2, dtype=int)]
    found = summarise(mine, alike, SMALL_GEOMETRY)
    plots = [*draw_all(found), *draw_pairs([picture(100, 90)], [picture(120, 80)], SMALL_GEOMETRY)]
    assert len(plots) == len(found.curves) + 4  # and of correlations, and single showers
    assert all(plot.png.startswith(b"\x89PNG") for plot in plots)


def test_showers_in_rings_have_no_curve_against_the_angle_and_an_overview_without_angles() -> None:
    rings = observed(make_ring_showers(events=40), RING_GEOMETRY)
    found = summarise(rings, rings, RING_GEOMETRY)
    assert "angle_against_angle" not in found.curves
    del found.curves["angle_deg"]
    assert drawing.overview(found).startswith(b"\x89PNG")


def picture(energy_gev: float, theta_deg: float) -> Picture:
    nx, ny, nz = SMALL_GEOMETRY.shape
    return Picture(energy_gev, math.radians(theta_deg), np.ones((ny, nz)), np.ones((nx, ny)))


def test_single_showers_stand_under_their_names_with_colours_down_to_a_ten_thousandth() -> None:
    faint, bright = picture(100, 90), picture(120, 80)
    front = 1.0 + np.arange(bright.front.size).reshape(bright.front.shape)
    faint, bright = replace(faint, side=9e-4 * faint.side), replace(bright, side=10 * bright.side, front=front)
    figure = Figure()
    drawing._display(figure, (faint, bright), SMALL_GEOMETRY)
    aside = replace(bright, front=np.zeros_like(bright.front))  # all its energy is beyond the front view
    drawing._display(Figure(), (aside, aside), SMALL_GEOMETRY)
    left, right = figure.axes[:2]
    assert left.get_title(loc="left") == "Monte Carlo\n100 GeV, 90°"
    meshes = [axis.collections[0] for axis in (left, right)]
    np.testing.assert_array_equal(figure.axes[3].collections[0].get_array(), front.T)  # x across
    assert [mesh.get_clim() for mesh in meshes] == [pytest.approx((1e-3, 10))] * 2
    assert [bool(np.ma.getmaskarray(mesh.get_array()).all()) for mesh in meshes] == [True, False]
