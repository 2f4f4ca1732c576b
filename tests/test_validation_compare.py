"""The whole stage: sets compared, faults planted, the command line, bad input."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import faults
import numpy as np
import pytest
from judging import criteria_of, failed, geant4, table, validated
from showers import (
    RING_GEOMETRY,
    make_file,
    make_ring_showers,
    make_showers,
    observed,
    upright,
    write_file,
    write_whole,
)

from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.grade import tolerances
from calopipe.showers.cells import REFERENCE_GEOMETRY, Showers
from calopipe.showers.selection import Selection
from calopipe.verdict import Comparison, overall, read_verdict, require_own_verdict
from validation.calochallenge.numbers import Documents
from validation.compare import validate
from validation.measure.observables import Observables
from validation.report.plots import png
from validation.statistics.binning import bins, histogram_bins

pytestmark = pytest.mark.usefixtures("undrawn")


@cache
def sample() -> Observables:
    """Observables of a thousand showers of Geant4."""
    return Observables.joined([observed(geant4(number), REFERENCE_GEOMETRY) for number in (0, 1)])


def verdict_of(reference: Observables, candidate: Observables) -> str:
    found = criteria_of(reference, candidate, grade="precision")
    return overall([criterion.verdict for criterion in found.values()], [], [])


@pytest.mark.parametrize("events", [12, 40, 500])
def test_halves_of_the_same_monte_carlo_are_never_rejected(events: int) -> None:
    rng = np.random.default_rng(events)
    for _ in range(4):
        order = rng.permutation(len(sample()))
        reference, candidate = sample()[order[:events]], sample()[order[events : 2 * events]]
        assert verdict_of(reference, candidate) == "inconclusive"


def test_every_tolerance_is_that_of_a_criterion() -> None:
    found = criteria_of(sample()[:300], sample()[300:600])
    assert {criterion.measurement.key for criterion in found.values()} == set(tolerances())


def one_cell(showers: Showers, _: np.random.Generator) -> Showers:
    return replace(showers, cells=np.roll(showers.cells, 1, axis=2))


@pytest.mark.parametrize(
    ("fault", "criterion"),
    [
        (faults.energy_scale, "Mean response"),
        (faults.one_layer, "Mean shower depth"),
        (faults.cells_dropped, "Mean number of hits"),
        (faults.resolution, "Resolution sigma/E"),
        (one_cell, "S: Profile along y"),
    ],
)
def test_a_planted_fault_is_rejected_by_the_criterion_that_names_it(fault: faults.Planted, criterion: str) -> None:
    candidate = observed(fault(make_showers(events=1_000, seed=2), np.random.default_rng(0)))
    assert criterion in failed(criteria_of(table(1_000, seed=1), candidate, grade="precision"))


@pytest.mark.parametrize(
    ("fault", "criterion", "worst", "others"),
    [
        (faults.smeared_hits, "Cells by energy", "109 keV to 133 keV", ("Overlap", "S: Overlap")),  # below the edge
        (
            faults.energy_in_rings, "Energy in rings about the axis", "0.5 to 0.75 cells",
            ("Hottest cell kept", "Cells by energy"),
        ),
    ],
)  # fmt: skip
def test_a_fault_in_real_showers_is_rejected_by_its_criterion_and_few_others(
    fault: faults.Planted, criterion: str, worst: str, others: tuple[str, ...]
) -> None:
    """Separation powers of cell energies and of profiles do not reject it, as they are hardly sensitive to it."""
    candidate = observed(fault(geant4(1), np.random.default_rng(1)), REFERENCE_GEOMETRY)
    found = criteria_of(sample()[:500], candidate, grade="precision")
    assert (found[criterion].verdict, found[criterion].worst) == ("fail", worst)
    assert failed(found) <= {name for name in found if name.startswith((criterion, *others))}


def test_the_command_line_judges_files_of_rings(tmp_path: Path) -> None:
    paths = [
        write_whole(tmp_path / f"{seed}.h5", make_ring_showers(events=700, seed=seed), RING_GEOMETRY) for seed in (1, 2)
    ]
    document = validated(*paths, tmp_path / "out", "--grade", "gan")
    assert document["verdict"] != "rejected"
    assert set(document["resolution"]["candidate"]["terms"]) == {"a", "b", "c"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Response and resolution against energy" in page
    assert "stochastic" in page


def test_labels_that_differ_a_little_do_not_shift_the_means() -> None:
    reference, candidate = table(2_000, seed=1), table(2_000, seed=2)
    candidate = candidate[candidate.energy_gev > 115]  # moves the mean energy, and so the hits, by 5 %
    hits = criteria_of(reference, candidate, grade="precision")["Mean number of hits"]
    assert hits.value == pytest.approx(1, abs=0.01)


def test_every_bin_holds_its_share() -> None:
    values = np.random.default_rng(0).uniform(100, 200, 1_001)
    chosen = bins(values, 4, "GeV")
    assert sum(each.holds(values).sum() for each in chosen) == 1_001
    assert all(245 <= each.holds(values).sum() <= 255 for each in chosen)
    assert [each.label for each in bins(np.full(5, 100.0), 4, "GeV")] == ["100 GeV"]
    few = np.repeat([50.0, 100.0, 200.0], [1, 9_000, 5_000])
    assert [(each.label, each.holds(few).sum()) for each in bins(few, 2, "GeV")] == [
        ("50 to 100 GeV", 9_001),
        ("200 GeV", 5_000),
    ]
    nearer = bins(np.repeat([50.0, 100.0, 200.0], [4, 5, 1]), 2, "GeV")
    assert [(held.label, held.low, held.high) for held in nearer] == [
        ("50 GeV", -math.inf, 75.0),
        ("100 to 200 GeV", 75.0, math.inf),
    ]
    assert bins(np.array([1.2344, 20.0]), 1, "GeV")[0].label == "1.234 to 20 GeV"
    halfway = bins(np.array([1.0, 2.0, 3.0]), 2, "GeV")  # between two cuts the upper one
    assert [held.label for held in halfway] == ["1 to 2 GeV", "3 GeV"]
    assert histogram_bins((10, 10), 0.002) == 5
    assert 5 < histogram_bins((7_000, 7_000), 0.002) < histogram_bins((7_000, 7_000), 0.01) == 50


def test_a_beam_of_one_energy_and_angle_can_be_compared() -> None:
    sets = [observed(upright(make_showers(events=150, seed=seed).cells)) for seed in (0, 1)]
    assert verdict_of(*sets) == "inconclusive"


def test_the_document_and_the_report(tmp_path: Path) -> None:
    """The whole output of one paired run. The second time nothing is done."""
    reference = make_file(tmp_path / "mc.h5", events=60)
    labels = make_showers(events=60)
    cells = make_showers(events=180, seed=9).cells
    cells[0, 0, 0, 0] = np.nan
    repeated = {name: np.repeat(getattr(labels, name), 3) for name in ("energy_gev", "theta_rad", "mtheta_rad")}
    candidate = write_file(tmp_path / "made.h5", Showers(cells, **repeated))
    output = tmp_path / "out"
    document = validate([reference], [candidate], output)
    assert (document["paired"], document["per_event"]) == (True, 3)
    assert document["events"] == {"reference": 60, "candidate": 180}
    assert document["classifier"].keys() == {"observables", "cells"}  # no finer ones unless asked for
    assert (document["verdict"], document["grade"]["name"]) == ("rejected", "precision")
    assert document["hard_failures"][0]["name"] == "NaN or negative cells"
    assert all(each["floor"]["scaled"] for each in document["criteria"] if each["key"] != "coverage")
    assert read_verdict(output / "verdict.json") == json.loads((output / "verdict.json").read_text())

    page = (output / "report.html").read_text()
    assert page.count("data:image/png") == 22
    assert document["inputs"]["reference"][0]["sha256"] in page
    assert (output / "overview.png").read_bytes().startswith(b"\x89PNG")

    before = {path.name: path.stat().st_mtime_ns for path in output.iterdir()}
    assert validate([reference], [candidate], output) == json.loads((output / "verdict.json").read_text())
    assert {path.name: path.stat().st_mtime_ns for path in output.iterdir()} == before


def test_a_picture_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    own = png(lambda _: None, 1.0)  # as a comparison leaves it that is killed before its verdict
    (tmp_path / "overview.png").write_bytes(own)
    require_own_verdict(tmp_path)
    (tmp_path / "overview.png").write_bytes(own.replace(b"calopipe", b"Software"))
    with pytest.raises(InputError, match=r"overview\.png: exists, and calopipe did not write it"):
        require_own_verdict(tmp_path)


def test_a_request_heeds_all_that_is_asked_for_and_not_where_files_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    monkeypatch.setattr(Comparison, "standing", lambda asked: requests.append(asked.request) or {})
    mc, made, third = (make_file(tmp_path / f"{seed}.h5", events=40, seed=seed) for seed in (1, 2, 3))
    (tmp_path / "elsewhere").mkdir()
    moved, renamed = (shutil.copyfile(mc, tmp_path / name) for name in ("elsewhere/1.h5", "renamed.h5"))

    def request(reference: Path = mc, candidate: Path = made, **more: Any) -> str:
        validate([reference], [candidate], tmp_path / "out", **more)
        return requests[-1]

    assert request(moved) == request()
    selections = (
        Selection("train"), Selection(cut_gev=0.1), Selection(bad_event="skip"),
        Selection(rule=SplitRule.parse(["test=1.h5"])), Selection(geometry="file_unit_gev=0.01"),
    )  # fmt: skip
    asked: list[dict[str, Any]] = [
        {}, {"reference": renamed}, {"candidate": third}, {"incumbent": [third]}, {"training": [third]},
        {"training_split": "validation"}, {"grade": "gan"}, {"seed": 2}, {"challenge": Documents()},
        {"challenge": Documents(timing={"device": "CPU"})}, *({"selection": selection} for selection in selections),
    ]  # fmt: skip
    assert len({request(**options) for options in asked}) == len(asked)


def test_nothing_but_empty_showers_is_rejected_and_reported(tmp_path: Path) -> None:
    reference = make_file(tmp_path / "mc.h5", events=30)
    showers = make_showers(events=30)
    candidate = write_file(tmp_path / "empty.h5", showers, ECAL=np.zeros_like(showers.cells))
    document = validate([reference], [candidate], tmp_path / "out")
    assert document["verdict"] == "rejected"
    assert "Empty showers" in [each["name"] for each in document["hard_failures"]]
    assert document["criteria"] == []
    assert document["empty"] == {"reference": 0, "candidate": 30}
    assert "nothing to draw" in (tmp_path / "out" / "report.html").read_text()
