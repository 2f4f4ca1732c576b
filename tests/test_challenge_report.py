"""CaloChallenge's numbers of whole sets, against a computation on all showers at once; the table; input documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from judging import opened
from showers import RINGS, make_file, make_rings

from calopipe import storage
from calopipe.errors import InputError
from calopipe.showers.calochallenge import CLASSIFIER, TIMING
from calopipe.showers.calochallenge.highlevel import high_level
from calopipe.showers.detectors import detectors
from calopipe.showers.files import open_showers
from validation.__main__ import _documents, parser
from validation.calochallenge.histograms import Histograms, separations
from validation.calochallenge.numbers import Documents, _mean, features, numbers
from validation.calochallenge.published import published
from validation.measure.sets import COUNT
from validation.report.page import _these
from validation.report.page import challenge as section
from validation.statistics.distances import kpd


def test_whole_sets_in_pieces_give_what_all_showers_at_once_do(tmp_path: Path) -> None:
    paths = [
        make_rings(tmp_path / f"{seed}.h5", events=131, seed=seed, width_mm=10.0 + 15 * (seed // 2))
        for seed in range(4)
    ]
    found = numbers(opened(*paths[:2]), opened(*paths[2:]), Documents())
    sides, whole_cells = [], []
    for pair in (paths[:2], paths[2:]):
        files = [open_showers(path) for path in pair]
        cells = np.concatenate([file.cells(0, file.events) for file in files])
        whole_cells.append(cells * RINGS.file_unit_gev * 1e3)
        sides.append(high_level(cells, np.concatenate([file.energy_gev for file in files]), RINGS))
    assert found["showers"] == {"reference": 262, "candidate": 262}
    assert len(found["separations"]["x"]["each"]) == 3  # the first layer has no angles
    assert len(found["separations"]["layer"]["each"]) == 4
    halves = [(sides[0][first::2], whole_cells[0][first::2]) for first in (0, 1)]
    for which, pair in {"each": [*zip(sides, whole_cells, strict=True)], "own": halves}.items():
        filled = [Histograms(RINGS, sides[0].layer_mev.max(axis=0), whole_cells[0].max()) for _ in pair]
        for histogram, (side, cells) in zip(filled, pair, strict=True):
            histogram.add(side, cells)
        for name, values in separations(*filled).items():
            assert found["separations"][name][which] == pytest.approx(values if which == "each" else np.mean(values))
    assert (_mean([np.nan, 1.0, 3.0]), _mean([np.nan])) == (2, None)  # of layers that have histograms
    for powers in found["separations"].values():
        assert (powers["value"], powers["largest"]) == pytest.approx((np.mean(powers["each"]), max(powers["each"])))
    whole, _ = kpd(*(side.vector() for side in sides))
    assert found["kpd"]["value"] == pytest.approx(whole)
    assert found["separations"]["y_width"]["own"] < found["separations"]["y_width"]["value"]  # the candidate is wider
    assert "No published values" in section(found)


def test_published_values_are_for_the_size_of_the_smaller_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validation.calochallenge.numbers.published", lambda _, showers: showers)
    rings = [opened(make_rings(tmp_path / f"{events}.h5", events=events, seed=1)) for events in (20, 30)]
    squares = [opened(make_file(tmp_path / f"square{events}.h5", events=events)) for events in (20, 30)]
    for few, many in (rings, squares):
        assert [numbers(*pair, Documents())["published"] for pair in ((few, many), (many, few))] == [20, 20]


def test_bad_cells_of_a_candidate_and_showers_below_the_cut_are_left_out(tmp_path: Path) -> None:
    path = make_rings(tmp_path / "bad.h5", events=20, seed=1)
    with h5py.File(path, "r+") as file:
        values = file["showers"][:]
        deposits = values.sum(axis=1) * 1e-3  # in GeV
        values[0, :2] = [np.nan, -5.0]
        file["showers"][:] = values
    cut_gev = float(np.median(deposits[1:])) + 1e-6
    for cut, kept in ((0.0, deposits >= 0), (cut_gev, deposits > cut_gev)):
        showers = opened(path, cut_gev=cut, bad_event=COUNT)
        ((high, cells_mev),) = features(showers)
        assert np.isfinite(cells_mev).all()
        assert cells_mev.min() == 0
        for sums in (cells_mev.sum(axis=1), high.total_mev):
            assert len(sums) == kept.sum()
            np.testing.assert_allclose(sums[-8:] * 1e-3, deposits[kept][-8:], rtol=1e-5)


def test_too_few_showers_have_no_distance(tmp_path: Path) -> None:
    path = make_rings(tmp_path / "few.h5", events=60, seed=1)
    found = numbers(opened(path), opened(path), Documents())
    assert found["fpd"] is None
    assert found["separations"]["layer"]["value"] == 0  # a set against itself
    assert "FPD x 1000" not in section(found)


def _page(given: dict[str, Any], **found: Any) -> str:
    empty = {"separations": {}} | dict.fromkeys(("skipped", "fpd", "kpd", "classifier", "timing"))
    return section({**empty, **found, "published": given})


def test_published_values_say_when_they_may_be_compared() -> None:
    electrons = detectors()["calochallenge-2"]
    assert published(electrons, 100_000)["against"] == published(electrons, 200_000)["against"] == []
    few = published(electrons, 2_000)
    assert few["against"] == ["the smaller set has 2,000 showers, not 100,000"]
    page = _page(few)
    assert "Not to be compared here: the smaller set has 2,000 showers" in page
    assert "arXiv 2410.21611" in page
    assert published(RINGS, 100_000)["against"][0].startswith("the cells are not those")


@pytest.mark.parametrize("name", ["1-photons", "1-pions", "2", "3"])
def test_published_values_are_plausible(name: str) -> None:
    """Geant4 against itself comes first, and no model's FPD is below it; a transposed column would show."""
    found = published(detectors()[f"calochallenge-{name}"], 1)
    geant4, *models = found["rows"]
    assert geant4["model"] == "Geant4 against itself"
    assert len(models) >= 12
    json.dumps(found, allow_nan=False)  # as the verdict is written
    for each in models:
        assert each["fpd_x_1000"] > geant4["fpd_x_1000"]
        assert abs(each["kpd_x_1000"]) < each["fpd_x_1000"]
        assert all(0.5 < each[auc] <= 1 for auc in ("auc_low", "auc_high"))
        assert len(each["processor_ms"]) == len(each["accelerator_ms"]) == 3


def test_the_showers_stand_beside_published_values() -> None:
    given = published(detectors()["calochallenge-2"], 2_000)
    row = next(each for each in given["rows"] if each["model"] == "conv. L2LFlows")
    assert row["processor_ms"] == [1970, 121, 89.3]
    times = [{"batch": batch, "ms_per_shower": ms} for batch, ms in ((1, 1234.4), (100, 56.25), (10_000, 7.5))]
    page = _page(
        given,
        fpd={"value": 0.0437, "uncertainty": 0.001, "own": 0.04},
        kpd={"value": 1.25e-4, "uncertainty": 1e-5, "own": 1e-5},
        classifier={"classifiers": {"high": {"auc": 0.5625, "jsd": 0.01, "tested": 1200}}},
        timing={"device": "a processor", "cores": 2, "accelerator": False, "times": times},
    )
    these, *others = re.findall(r"<tr><td.*?</tr>", page.partition("Published values")[2], re.DOTALL)
    cells = [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", row)] for row in (these, others[1])]
    assert cells[0][1:] == ["43.7", "0.125", "none", "0.5625", "1,234; 56.25; 7.5", "none"]
    assert cells[1] == ["CaloDREAM", "24.6", "0.0231", "0.531", "0.521", "16,900; 5,050; 5,730", "4,850; 74.3; none"]


@pytest.mark.parametrize("said", [{"accelerator": True}, {"accelerator": False}, {}])
def test_times_are_those_of_a_processor_unless_said_to_be_of_an_accelerator(said: dict[str, bool]) -> None:
    timing = {"times": [{"batch": 1, "ms_per_shower": 2.5}], **said}
    row = _these({"classifier": None, "timing": timing, "fpd": None, "kpd": None})
    assert (row["accelerator_ms"], row["processor_ms"]) == (([2.5], []) if said.get("accelerator") else ([], [2.5]))


def test_rectangular_cells_have_a_sentence_and_what_is_given(tmp_path: Path) -> None:
    path = make_file(tmp_path / "square.h5", events=30)
    timing = {"device": "a processor", "cores": 2, "times": [{"batch": 10_000, "ms_per_shower": 12.5}]}
    classifier = {"classifiers": {"low": {"auc": 0.625, "jsd": 0.1, "tested": 1200}}}
    page = section(numbers(opened(path), opened(path), Documents(classifier, timing)))
    assert "are left out: its features are for cells in rings" in page
    assert "batch 10,000: 12.5 ms a shower" in page
    assert "0.625 (JSD 0.1, calibrated), of 1,200 showers" in page


def test_bad_input(tmp_path: Path) -> None:
    reference, candidate = (make_rings(tmp_path / f"{seed}.h5", events=30, seed=seed) for seed in range(2))
    timing, classifier = tmp_path / "timing.json", tmp_path / "classifier.json"
    TIMING.write(timing, {})
    inputs = {"reference": [storage.sha256_of_file(reference)], "candidate": ["another"], "split": "all"}
    CLASSIFIER.write(classifier, {"inputs": inputs})
    with pytest.raises(InputError, match=r"calopipe\.classifier"):
        Documents.read(timing, None)
    with pytest.raises(InputError, match="was trained on other candidate files"):
        Documents.read(classifier, None).require_of(opened(reference), opened(candidate))
    for listed in ([candidate], [candidate, reference]):
        hashes = [storage.sha256_of_file(path) for path in listed]
        CLASSIFIER.write(classifier, {"inputs": inputs | {"candidate": hashes}})
        for files in ([candidate], [reference], [candidate, reference]):
            asked, sets = Documents.read(classifier, None), (opened(reference), opened(*files))
            if files == listed:
                asked.require_of(*sets)
                continue
            with pytest.raises(InputError, match="was trained on other candidate files"):
                asked.require_of(*sets)
    with pytest.raises(InputError, match="the split all of the reference, and --split is test"):
        Documents.read(classifier, None).require_of(opened(reference, split="test"), opened(candidate))


def test_a_file_for_the_table_asks_for_the_challenge(tmp_path: Path) -> None:
    written = {"timing": TIMING.write(tmp_path / "timing.json", {"times": []}),
               "classifier": CLASSIFIER.write(tmp_path / "classifier.json", {"inputs": {}})}  # fmt: skip
    needed = ["--reference", "a.h5", "--candidate", "b.h5", "--output", "verdict"]
    assert _documents(parser().parse_args(needed)) is None
    assert _documents(parser().parse_args([*needed, "--challenge"])) == Documents()
    for name, document in written.items():
        options = parser().parse_args([*needed, f"--{name}", str(tmp_path / f"{name}.json")])
        assert _documents(options) == Documents(**{name: document})
