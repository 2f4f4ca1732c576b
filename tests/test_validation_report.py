"""The page of the report and the summary of a verdict: what they show, and that the page is valid."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from showers import SMALL_GEOMETRY

from calopipe.showers.cells import Geometry, Layer
from calopipe.verdict import summary
from validation.report import page as report
from validation.report.page import why_undecided
from validation.report.plots import Plot


def criterion(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name, "key": "response", "bin": "100 to 200 GeV", "unit": "", "verdict": "pass", "value": 1.0,
        "interval": [0.995, 1.005], "strict_interval": [0.99, 1.01], "tolerance": [0.99, 1.01], "events": 1_000,
        "floor": {"value": 0.001, "scaled": True, "events": 500}, "events_needed": None, "worst": "",
    } | changed  # fmt: skip


def document(**more: Any) -> dict[str, Any]:
    files = [{"file": "<script>&.h5", "sha256": "ab" * 32, "events": 1_000}]
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
    """Collects each tag that is closed in the wrong order, and each attribute that would load or link something."""

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
    assert "&lt;script&gt;&amp;.h5" in page
    assert 'alt="A &amp; B"' in page


def page_of(**more: Any) -> str:
    """The words of the page of a document, without plots."""
    page = report.page(document(**more), [])
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("</head>")[2]).split())


def test_showers_below_a_cut_are_not_said_to_be_without_energy() -> None:
    for cut, told in ((0.2, "0.2 GeV or less"), (0.0, "no energy")):
        shown = page_of(empty={"reference": 3, "candidate": 4}, inputs=document()["inputs"] | {"cut_gev": cut})
        assert f"because their cells hold {told}: 4 of the candidate, 3 of Monte Carlo." in shown


def test_the_page_shows_each_part_of_the_document() -> None:
    undecided = criterion("A", verdict="inconclusive", interval=[1.02, 1.08], events_needed=2_345)
    more = {name: [{"file": f"{name}.h5", "sha256": "ab" * 32, "events": 9}] for name in ("incumbent", "training")}
    shown = page_of(**LIKENESS, criteria=[undecided], inputs=document()["inputs"] | more)
    for expected in (
        f"{OUTSIDE}: 0.99 to 1.01; about 2,300 showers would decide",
        "Incumbent incumbent.h5 9",
        "Training training.h5 9",
        "FPD x 1000 123.4 ± 4.2 2",
        "KPD x 1000 too few showers",
        "AUC on observables 0.71 0.7 to 0.72 0.002 1e-09",
        "Coverage, all showers 0.93 0.91 to 0.95 0.951",
        "1.23 % of the candidate's showers (95 % interval 0.7 % to 2 %, p 0.3) lie as near to one of 8,000 showers",
        "Against the incumbent: worse Difference 0.31 , 95 % interval 0.1 to 0.5",
        "Seed 7.",
        "nothing to draw",
    ):
        assert expected in shown
    assert shown.index("Much") < shown.index("A little") < shown.index("Alike")
    assert shown.index("Against the incumbent") < shown.index("Worst criteria")


def test_what_the_document_does_not_hold_is_left_out() -> None:
    words = "FPD|AUC|Coverage|Memorisation|incumbent"
    assert not re.search(words, page_of())
    assert not re.search(words, page_of(**dict.fromkeys(LIKENESS)))


def test_the_page_is_for_those_who_did_not_write_it() -> None:
    """The page states sizes with few digits, what to do, and who made the showers."""
    thick = Layer(9.571428571428571, 1.1234567, (2, 3), size_mm=(25.2, 18.0))
    geometry = Geometry.of_layers([thick, thick, Layer(7, 1, (1, 1), size_mm=(5, 5))], 1)
    files = [{"file": "g.h5", "sha256": "ab" * 32, "events": 9, "made_by": "autoregressive, 1,600 steps"}]
    inputs = document()["inputs"] | {"candidate": files, "geometry": geometry.to_json()}
    shown = page_of(inputs=inputs, verdict="rejected")
    assert (
        "Geometry: 2 layers of 2 x 3 cells of 25.2, 18 mm, 9.57143 mm and 1.123 X0 thick; "
        "1 layer of 1 x 1 cells of 5, 5 mm, 7 mm and 1 X0 thick; 1 in a file is 1 GeV." in shown
    )
    assert "Candidate: g.h5 (autoregressive, 1,600 steps)." in shown
    assert "What may help: more steps" in shown
    assert "What may help" not in page_of(verdict="accepted")


def test_the_distances_of_unpaired_halves_are_not_set_beside_paired_ones() -> None:
    """The test above has the figure of sets that are not paired."""
    shown = page_of(**LIKENESS, paired=True)
    assert "FPD x 1000 123.4 ± 4.2 2 (unpaired)" in shown
    assert "does not make it better than Monte Carlo" in shown
    assert "(unpaired)" not in page_of(**LIKENESS)


OUTSIDE = "outside, but the stricter interval is not"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"events_needed": 1_001}, "about 1,000 showers would decide"),
        ({"events_needed": 1_000}, ""),
        ({"events_needed": 11, "events": 9}, "about 11 showers would decide"),
        ({"events_needed": 1_000_000}, "more than 1,000,000 showers would decide"),
        ({"interval": [0.9, 0.95], "tolerance": [0.99, None]}, f"{OUTSIDE}: 0.99 to 1.01"),
        ({"interval": [0.9, 0.99]}, ""),
        ({"interval": [0.9, None]}, ""),
        ({"interval": [1.1, None], "strict_interval": [0.9, None]}, f"{OUTSIDE}: at least 0.9"),
        ({"interval": [1.005, 1.2]}, ""),
        ({"interval": [1.1, 1.2], "strict_interval": None}, OUTSIDE),
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
    grouped = [(" open", "150 to 200 GeV: 1 fail, 1 pass"), ("", "100 to 150 GeV: 1 pass")]
    assert re.findall(r"<details( open)?><summary>([^<]*GeV: [^<]*)<", page) == grouped


def test_the_summary_has_the_worst_criteria_all_hard_failures_and_how_alike_the_sets_are() -> None:
    failures = [{"name": "NaN", "detail": "in <a>_b | c & d"}]
    rows = [criterion(f"Criterion <{k}>", interval=[0.995, 1.0051]) for k in range(12)]
    told = document(
        criteria=rows, hard_failures=failures, paired=True, events={"reference": 1_000, "candidate": 3_000},
        grade={"name": "a|b"},
    )  # fmt: skip
    lines = summary(told | LIKENESS).splitlines()
    for line in (
        "- FPD x 1000: 123.4 (0 is perfect)",
        "- AUC of a classifier: observables 0.71 (0.5 is perfect)",
        "- Coverage, relative to Monte Carlo's own: 0.93 (1 is perfect)",
        "- Against the incumbent: **worse**; difference 0.31, 95 % interval 0.1 to 0.5, below zero is nearer",
    ):
        assert line in lines
    assert r"Grade a\|b; 3,000 showers against 1,000 of the reference, paired." in lines
    assert r"- **NaN**: in &lt;a&gt;\_b \| c &amp; d" in lines
    listed = [line for line in lines if line.startswith("| Criterion")]
    assert listed[0] == "| Criterion &lt;0&gt; | 100 to 200 GeV | 1 | 0.995 to 1.005 | 0.99 to 1.01 | pass |"
    assert len(listed) == 10
    assert "unpaired." in summary(document())
    assert "3,000 images against 1,000" in summary(told | {"samples": "images"})


@pytest.mark.parametrize(("value", "told"), [(0.0, True), (None, False)])
def test_a_figure_of_zero_is_told_and_one_that_is_not_known_is_not(value: float | None, told: bool) -> None:
    figure = {"value": value}
    figures = {"distances": {"fpd": figure}, "classifier": {"all": figure}, "neighbours": {"coverage": figure}}
    shown = summary(document(**figures))
    assert [name in shown for name in ("FPD", "AUC", "Coverage")] == [told] * 3
