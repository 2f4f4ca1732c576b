"""What is wrong with two sets of files: one line that says so, or a defined answer."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import opened
from showers import SMALL_GEOMETRY, make_file, make_showers, write_file

from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.grade import load_grade
from calopipe.showers.cells import Geometry
from calopipe.showers.selection import Selection
from calopipe.verdict import Comparison, _code_version
from validation import compare
from validation.__main__ import main
from validation.compare import validate
from validation.measure.pairing import require_comparable
from validation.measure.sets import COUNT, ShowerSet
from validation.statistics import binning as bins_of_labels

pytestmark = pytest.mark.usefixtures("undrawn")

EVENTS = 60


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return make_file(tmp_path / "mc.h5", events=EVENTS)


def judged(reference: Path, candidate: Path) -> dict[str, Any]:
    return validate([reference], [candidate], reference.parent / "out")


@pytest.mark.parametrize("events", [23, 97])
def test_sets_of_other_lengths_are_unpaired(reference: Path, events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bins_of_labels, "_LEAST_PER_ANGLE_BIN", 20)
    monkeypatch.setattr(bins_of_labels, "_REACH", 0.01)  # so that few showers have several bins
    found = judged(reference, make_file(reference.parent / "other.h5", events=events, seed=1))
    assert (found["paired"], found["per_event"], found["events"]["candidate"]) == (False, 0, events)
    angles = [criterion for criterion in found["criteria"] if criterion["name"] == "Mean measured angle"]
    assert len(angles) == min(EVENTS, events) // 20  # bins that the smaller set fills


@pytest.mark.parametrize(
    ("geometry", "message"),
    [
        (replace(SMALL_GEOMETRY, shape=(15, 17, 5)), r"shape is \(15, 17, 5\), in the reference .* \(17, 17, 5\)"),
        (replace(SMALL_GEOMETRY, file_unit_gev=1.0), "file_unit_gev is 1.0, in the reference .* it is 0.02"),
        (None, "or give the --geometry, which the reference does not state"),
    ],
)
def test_another_detector_or_unit_or_none(reference: Path, geometry: Geometry | None, message: str) -> None:
    made = make_showers(events=EVENTS, seed=1, geometry=geometry or SMALL_GEOMETRY)
    other = write_file(reference.parent / "other.h5", made, geometry=geometry)
    with pytest.raises(InputError, match=message):
        judged(*((reference, other) if geometry else (other, reference)))
    assert not (reference.parent / "out").exists()


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"energy": np.linspace(194, 198, EVENTS)}, "its energy is distributed unlike the reference's"),
        ({"theta": np.full(EVENTS, 1.5)}, r"theta is distributed unlike .* \(means 85\.94 and [89]\d.* degrees"),
    ],
)
def test_labels_of_another_beam(reference: Path, replaced: dict[str, Any], message: str) -> None:
    other = write_file(reference.parent / "other.h5", make_showers(events=EVENTS, seed=1), **replaced)
    with pytest.raises(InputError, match=message):
        judged(reference, other)


def test_a_verdict_stands_for_its_request_as_long_as_its_report_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison = Comparison(tmp_path, load_grade("gan"), {"seed": 1})
    document = comparison.write(
        {"verdict": "inconclusive", "paired": False, "events": {}, "criteria": [], "hard_failures": [], "cautions": []},
        lambda whole: f"<p>{whole['verdict']}</p>",
    )
    report = tmp_path / "report.html"
    assert report.read_text() == "<p>inconclusive</p>"
    assert comparison.standing() == document
    assert replace(comparison, inputs={"seed": 2}).standing() is None
    assert replace(comparison, grade=load_grade("precision")).standing() is None
    with monkeypatch.context() as patch:
        patch.setattr("calopipe.verdict._code_version", lambda: "another")
        assert comparison.standing() is None
    report.write_text("<p>accepted</p>")
    assert comparison.standing() is None
    report.unlink()
    assert comparison.standing() is None


def test_the_code_that_a_verdict_depends_on_is_of_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calopipe.verdict.__file__", str(tmp_path / "calopipe" / "verdict.py"))
    versions = [_code_version()]
    for name in ("validation/a.py", "validation/b/c.css", "validation/d.toml", "calopipe/e.py", "calopipe/f/g.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
        versions.append(_code_version())
    assert len(set(versions)) == len(versions)
    (tmp_path / "calopipe/h.md").write_text("x")
    assert _code_version() == versions[-1]


def _document(verdict: str, criteria: int) -> dict[str, Any]:
    row = {"bin": "all", "verdict": "pass", "value": 1.0, "interval": [0.9, 1.25], "tolerance": [None, 1.5]}
    return {
        "verdict": verdict,
        "hard_failures": [{"name": "Empty showers", "detail": "3 of 9"}],
        "cautions": [{"name": "Copies", "detail": "1 of 9"}],
        "criteria": [row | {"name": f"number {k}"} for k in range(criteria)],
        "incumbent": {"outcome": "better", "difference": -0.5, "interval": [-0.75, -0.25]},
    }


def test_each_option_of_the_command_line_is_passed_on(reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(compare, "validate", lambda **given: asked.append(given) or _document("x", 1))
    names = ("reference", "candidate", "incumbent", "training")
    files = [write_file(reference.parent / f"{name}.h5", make_showers(events=2)) for name in names]
    given = [text for name, file in zip(names, files, strict=True) for text in (f"--{name}", str(file))]
    output = reference.parent / "out"
    main([*given, "--output", str(output), "--training-split", "test", "--grade", "gan", "--seed", "7",
          "--split", "validation", "--cut-gev", "0.25", "--on-bad-event", "skip", "--geometry", "cell_mm=3",
          "--split-file", "test=a.h5", "--dataset", str(reference.parent)])  # fmt: skip
    (more,) = asked
    assert [list(more[name]) for name in names] == [[file] for file in files]
    selection = Selection(
        "validation", SplitRule.parse(["test=a.h5"]), 0.25, "skip", "cell_mm=3", memory=reference.parent
    )
    assert {name: more[name] for name in ("training_split", "grade", "seed", "selection", "challenge")} == {
        "training_split": "test", "grade": "gan", "seed": 7, "selection": selection, "challenge": None,
    }  # fmt: skip


@pytest.mark.parametrize(("verdict", "code"), [("accepted", None), ("rejected", 3), ("inconclusive", 3)])
def test_the_command_line_shows_the_worst_criteria_and_requires_a_verdict(
    reference: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verdict: str, code: int | None
) -> None:
    monkeypatch.setattr(compare, "validate", lambda *_, **__: _document(verdict, 7))
    asked = ["--reference", str(reference), "--candidate", str(reference), "--output", str(reference.parent / "out")]
    with pytest.raises(InputError, match="--floor"):  # which is for flows alone
        main([*asked, "--floor", str(reference)])
    main(asked)
    shown = capsys.readouterr().out
    assert [f"number {k} [all]: 1, interval 0.9 to 1.25, tolerance at most 1.5" in shown for k in range(7)] == [
        *[True] * 5, False, False,
    ]  # fmt: skip
    for text in (
        "hard failure  Empty showers: 3 of 9", "caution  Copies: 1 of 9", "and 2 more criteria",
        "the incumbent: better (difference -0.5, interval -0.75 to -0.25;", f"verdict: {reference.parent}/out/verdict.",
    ):  # fmt: skip
        assert text in shown
    with pytest.raises(SystemExit, match=str(code)) if code else nullcontext():
        main([*asked, "--require", "accepted"])


def _shower_set(path: Path, energy: Any, phi: Any = None) -> ShowerSet:
    """A set of one repeated shower, at 1.5 rad."""
    labels = np.asarray(energy, np.float32)
    made = make_showers(events=1)[np.zeros(len(labels), int)]
    azimuth = {} if phi is None else {"phi": np.asarray(phi, np.float32)}
    write_file(path, made, energy=labels, theta=np.full(len(labels), 1.5, np.float32), **azimuth)
    return opened(path)


@pytest.mark.parametrize("low", [100.0, 10.0])
def test_labels_may_lie_beyond_the_reference_by_what_its_number_of_showers_leaves_open(
    tmp_path: Path, low: float
) -> None:
    """By the share 1/50 + 10/N of the range for N showers; the range is in log E if the beam is wide."""
    energies = np.geomspace if low < 50 else np.linspace
    span = np.array([low, 200.0])
    axis = np.log(span) if low < 50 else span
    reference = _shower_set(tmp_path / "mc.h5", energies(low, 200, 100))
    for side, sign, share in ((0, -1, 0.11), (0, -1, 0.13), (1, 1, 0.11), (1, 1, 0.13)):
        end = axis[side] + sign * share * np.ptp(axis)
        beyond = float(np.exp(end) if low < 50 else end)
        told = pytest.raises(InputError, match=rf"1 of 3 showers have energy outside .* such as {beyond:.4g}")
        with told if share > 0.12 else nullcontext():
            require_comparable(reference, _shower_set(tmp_path / f"{side}{share}.h5", [150.0, beyond, 150.0]))


def test_an_azimuth_beyond_the_reference_is_told_in_degrees(tmp_path: Path) -> None:
    energy = np.full(100, 150.0)
    reference = _shower_set(tmp_path / "mc.h5", energy, np.linspace(-0.5, 0.5, 100))
    with pytest.raises(InputError, match=r"phi outside the reference's -28\.65 to 28\.65 degrees, such as 57\.3"):
        require_comparable(reference, _shower_set(tmp_path / "a.h5", energy, np.full(100, 1.0)))


def test_showers_that_were_generated_above_the_same_cut_are_compared(tmp_path: Path) -> None:
    _shower_set(tmp_path / "a.h5", [100.0, 110.0])
    reference = opened(tmp_path / "a.h5", cut_gev=0.2)
    for cut_gev, told in ((0.2, False), (0.3, True), (0.0, False)):
        generated = replace(reference, files=(replace(reference.files[0], cut_gev=cut_gev),))
        message = r"above 0\.3 GeV, compared are those above 0\.2; give --cut-gev 0\.3"
        with pytest.raises(InputError, match=message) if told else nullcontext():
            require_comparable(reference, generated)


def test_which_sets_are_read_whole_and_which_by_their_split(tmp_path: Path) -> None:
    """The reference by the given split and bad events, the training set by its own split, the others whole."""
    names = ("reference", "candidate", "incumbent", "training")
    files = {name: [make_file(tmp_path / f"{name}.h5", events=3, seed=len(name))] for name in names}
    asked = Selection("validation", cut_gev=0.5, bad_event="skip", memory=tmp_path)
    sets = compare._opened(files, asked, "test")
    for name, split, bad_event in (
        ("reference", "validation", "skip"), ("candidate", "all", COUNT), ("incumbent", "all", COUNT),
        ("training", "test", "skip"),
    ):  # fmt: skip
        selection = sets[name].selection
        assert (selection.split, selection.bad_event, selection.cut_gev) == (split, bad_event, 0.5)
        assert sets[name].files[0].path == files[name][0]
    other = make_file(tmp_path / "other.h5", events=3, geometry=replace(SMALL_GEOMETRY, cell_mm=5.1))
    for name in names[1:]:
        with pytest.raises(InputError, match=r"other\.h5: cell_mm is 5\.1"):
            compare._opened(files | {name: [other]}, asked, "test")


@pytest.mark.parametrize(("events", "candidate", "incumbent", "training"), [(45, 45, 45, 100), (300, 1, 400, 9)])
def test_few_showers_leave_figures_out_and_no_number_that_is_none(
    tmp_path: Path, events: int, candidate: int, incumbent: int, training: int
) -> None:
    sizes = (events, candidate, incumbent, training)
    paths = [make_file(tmp_path / f"{seed}.h5", events=size, seed=seed) for seed, size in enumerate(sizes)]
    found = validate(
        paths[:1], paths[1:2], tmp_path / "out", incumbent=paths[2:3], training=paths[3:], training_split="all"
    )
    json.dumps(found, allow_nan=False)
    assert None not in found["scalars"].values()
    assert (found["verdict"], found["incumbent"]["outcome"]) == ("inconclusive", "no significant difference")
