"""The whole stage: sets compared, faults planted, the command line, bad input."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from showers import SAMPLE, SMALL_GEOMETRY, make_file, make_showers, write_file

from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.grade import load_grade, tolerances
from calopipe.showers.cells import FloatArray, Showers
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from calopipe.verdict import Comparison, overall, read_verdict
from validation.__main__ import main
from validation.challenge.numbers import Asked
from validation.compare import validate
from validation.judge.answers import Measurement, judge_all
from validation.judge.criteria import measure_criteria
from validation.measure.observables import Observables, observe
from validation.measure.table import Tables
from validation.statistics.binning import Binning, bins, histogram_bins


@cache
def geant4() -> Observables:
    """Observables of the Geant4 sample in the repository, a thousand showers at most."""
    tables = []
    for path in sorted(SAMPLE.glob("*.h5"))[:2]:
        file = open_showers(path)
        showers = file.read()
        tables.append(observe(showers.cells, showers.energy_gev, showers.theta_rad, file.geometry))
    return Observables.joined(tables)


def measured(
    reference: Observables, candidate: Observables, *, per_event: int = 0, grade: str = "precision"
) -> list[Measurement]:
    binning = Binning.of(reference, min(len(reference), len(candidate)))
    rng = np.random.default_rng(0)
    tables = Tables(reference, candidate, per_event)
    return measure_criteria(tables, binning=binning, grade=load_grade(grade), rng=rng)


def verdict_of(reference: Observables, candidate: Observables, *, per_event: int = 0, grade: str = "precision") -> str:
    found = measured(reference, candidate, per_event=per_event, grade=grade)
    return overall([criterion.verdict for criterion in judge_all(found)], [], [])


@pytest.mark.parametrize("events", [12, 40, 250, 500])
def test_halves_of_the_same_monte_carlo_are_never_rejected(events: int) -> None:
    rng = np.random.default_rng(events)
    for _ in range(8):
        order = rng.permutation(len(geant4()))
        reference, candidate = geant4()[order[:events]], geant4()[order[events : 2 * events]]
        assert verdict_of(reference, candidate) == "inconclusive"


def test_every_tolerance_is_that_of_a_criterion() -> None:
    found = measured(geant4()[:300], geant4()[300:600])
    assert {measurement.key for measurement in found} == set(tolerances())


def distorted(showers: Showers, how: Callable[[FloatArray], FloatArray]) -> Observables:
    return observe(how(showers.cells), showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY)


def fewer_hits(cells: FloatArray) -> FloatArray:
    kept = cells * (np.random.default_rng(0).random(cells.shape) > 0.1)
    return (kept * (cells.sum(axis=(1, 2, 3)) / kept.sum(axis=(1, 2, 3)))[:, None, None, None]).astype(np.float32)


def smeared(cells: FloatArray) -> FloatArray:
    factor = np.random.default_rng(0).normal(1, 0.05, (len(cells), 1, 1, 1))
    return (cells * factor).astype(np.float32)


@pytest.mark.parametrize(
    ("fault", "criterion"),
    [
        (lambda cells: cells * np.float32(1.1), "Mean response"),
        (lambda cells: np.roll(cells, 1, axis=3), "Mean shower depth"),
        (fewer_hits, "Mean number of hits"),
        (smeared, "Resolution sigma/E"),
        (lambda cells: np.roll(cells, 1, axis=2), "S: Profile along y"),
    ],
    ids=["energy scale", "one layer", "cells dropped", "resolution", "one cell"],
)
def test_a_planted_fault_is_rejected_by_the_criterion_that_names_it(
    fault: Callable[[FloatArray], FloatArray], criterion: str
) -> None:
    reference = distorted(make_showers(events=1_000, seed=1), lambda cells: cells)
    candidate = distorted(make_showers(events=1_000, seed=2), fault)
    found = measured(reference, candidate)
    failed = {each.measurement.name for each in judge_all(found) if each.verdict == "fail"}
    assert criterion in failed


def test_labels_that_differ_a_little_do_not_shift_the_means() -> None:
    reference = distorted(make_showers(events=2_000, seed=1), lambda cells: cells)
    candidate = distorted(make_showers(events=2_000, seed=2), lambda cells: cells)
    candidate = candidate[candidate.energy_gev > 115]  # moves the mean energy, and so the hits, by 5 %
    found = measured(reference, candidate)
    (hits,) = (each for each in judge_all(found) if each.measurement.name == "Mean number of hits")
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
    def fixed(seed: int) -> Observables:
        cells = make_showers(events=150, seed=seed).cells
        return observe(cells, np.full(150, 100.0), np.full(150, 1.5), SMALL_GEOMETRY)

    assert verdict_of(fixed(0), fixed(1)) == "inconclusive"


def test_the_document_and_the_report(tmp_path: Path) -> None:
    """One run, all that it leaves: paired, and the second time nothing is done."""
    reference = make_file(tmp_path / "mc.h5", events=60)
    labels = make_showers(events=60)
    cells = make_showers(events=180, seed=9).cells
    cells[0, 0, 0, 0] = np.nan
    repeated = {name: np.repeat(getattr(labels, name), 3) for name in ("energy_gev", "theta_rad", "mtheta_rad")}
    candidate = write_file(tmp_path / "<script>&.h5", Showers(cells, **repeated))
    output = tmp_path / "out"
    document = validate([reference], [candidate], output)
    assert (document["paired"], document["per_event"]) == (True, 3)
    assert document["events"] == {"reference": 60, "candidate": 180}
    assert document["classifier"].keys() == {"observables", "cells"}  # no finer ones unless asked for
    assert document["verdict"] == "rejected"
    assert document["hard_failures"][0]["name"] == "NaN or negative cells"
    assert all(each["floor"]["scaled"] for each in document["criteria"] if each["key"] != "coverage")
    assert read_verdict(output / "verdict.json") == json.loads((output / "verdict.json").read_text())

    page = (output / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;&amp;.h5" in page
    assert not re.search(r'(?:src|href)=(?!"data:)', page)
    assert page.count("data:image/png") == 22
    assert document["inputs"]["reference"][0]["sha256"] in page
    assert (output / "overview.png").read_bytes().startswith(b"\x89PNG")

    before = {path.name: path.stat().st_mtime_ns for path in output.iterdir()}
    assert validate([reference], [candidate], output) == json.loads((output / "verdict.json").read_text())
    assert {path.name: path.stat().st_mtime_ns for path in output.iterdir()} == before


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
        {"training_split": "validation"}, {"grade": "gan"}, {"seed": 2}, {"challenge": Asked()},
        {"challenge": Asked(timing={"device": "CPU"})}, *({"selection": selection} for selection in selections),
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
    assert "nothing to draw" in (tmp_path / "out" / "report.html").read_text()


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "validation", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=SAMPLE.parent.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference, candidate = (make_file(tmp_path / f"{seed}.h5", events=50, seed=seed) for seed in (1, 2))
    arguments = ("--reference", reference, "--candidate", candidate, "--output", tmp_path / "out", "--grade", "gan")
    done = command(*arguments, "--require", "accepted")
    assert done.returncode == 3, done.stderr
    assert "report.html" in done.stdout
    verdict = read_verdict(tmp_path / "out" / "verdict.json")
    assert (verdict["verdict"], verdict["paired"]) == ("inconclusive", False)
    main([str(argument) for argument in arguments])
    assert "verdict stands" in capsys.readouterr().out


def test_the_command_line_tells_of_bad_input_in_one_line(tmp_path: Path) -> None:
    done = command("--reference", tmp_path / "none.h5", "--candidate", tmp_path / "none.h5", "--output", tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(r"error: .*none.h5: no such file.*\n", done.stderr)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"energy": np.full(40, 900.0)}, "40 of 40 showers have energy outside .* such as 900"),
        ({"theta": np.full(40, 0.3)}, "have theta outside"),
        ({"geometry": None}, "geometry|layer_pitch_mm|cell_mm"),
    ],
)
def test_sets_that_cannot_be_compared(tmp_path: Path, change: dict[str, object], message: str) -> None:
    reference = make_file(tmp_path / "mc.h5", events=40)
    candidate = write_file(tmp_path / "other.h5", make_showers(events=40, seed=1), **change)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        validate([reference], [candidate], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_split_and_a_reference_with_bad_cells(tmp_path: Path) -> None:
    reference = make_file(tmp_path / "mc.h5", events=40)
    candidate = make_file(tmp_path / "fake.h5", events=40, seed=1)
    with pytest.raises(InputError, match="--split test: none of the 40 showers"):
        validate(
            [reference], [candidate], tmp_path / "out", selection=Selection("test", SplitRule((("train", "mc*"),)))
        )
    showers = make_showers(events=40)
    showers.cells[7, 1, 1, 1] = -2
    bad = write_file(tmp_path / "bad.h5", showers)
    with pytest.raises(InputError, match="event 7: ECAL holds -2"):
        validate([bad], [candidate], tmp_path / "out")
