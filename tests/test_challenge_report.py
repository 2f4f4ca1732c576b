"""CaloChallenge's numbers of whole sets: against all showers at once; the table; what is given in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rings import RINGS, make_rings
from showers import make_file

from calopipe import storage
from calopipe.errors import InputError
from calopipe.showers.challenge.highlevel import high_level
from calopipe.showers.detectors import known
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from calopipe.verdict import CLASSIFIER_KIND, GIVEN_VERSION, TIMING_KIND
from validation.__main__ import main
from validation.challenge.distances import kpd
from validation.challenge.numbers import Asked, numbers
from validation.challenge.published import published
from validation.measure.sets import ShowerSet
from validation.report.challenge import section


def opened(*paths: Path) -> ShowerSet:
    return ShowerSet.open(list(paths), "showers", Selection())


def test_whole_sets_in_pieces_give_what_all_showers_at_once_do(tmp_path: Path) -> None:
    paths = [
        make_rings(tmp_path / f"{seed}.h5", events=130, seed=seed, width_mm=10.0 + 15 * (seed // 2))
        for seed in range(4)
    ]
    found = numbers(opened(*paths[:2]), opened(*paths[2:]), Asked())
    sides = []
    for pair in (paths[:2], paths[2:]):
        files = [open_showers(path) for path in pair]
        cells = np.concatenate([file.cells(0, file.events) for file in files])
        sides.append(high_level(cells, np.concatenate([file.energy_gev for file in files]), RINGS))
    assert found["showers"] == {"reference": 260, "candidate": 260}
    shares = []
    for side in sides:
        counts = np.histogram(side.total_mev / side.incident_mev, np.linspace(0.5, 1.5, 101))[0]
        shares.append(counts / counts.sum())
    first, second = (each[sum(shares) > 0] for each in shares)
    expected = 0.5 * ((first - second) ** 2 / (first + second)).sum()
    assert found["separations"]["total"]["value"] == pytest.approx(expected)
    assert len(found["separations"]["x"]["each"]) == 3  # the first layer has no angles
    assert len(found["separations"]["layer"]["each"]) == 4
    whole = kpd(*(side.vector() for side in sides))
    assert found["kpd"]["value"] == pytest.approx(whole.value)
    assert found["separations"]["y_width"]["own"] < found["separations"]["y_width"]["value"]  # the candidate is wider
    assert "No published values" in section(found)


def test_too_few_showers_have_no_distance(tmp_path: Path) -> None:
    path = make_rings(tmp_path / "few.h5", events=60, seed=1)
    found = numbers(opened(path), opened(path), Asked())
    assert found["fpd"] is None
    assert found["separations"]["layer"]["value"] == 0  # a set against itself
    assert "FPD x 1000" not in section(found)


def test_published_values_say_when_they_may_be_compared() -> None:
    electrons = known()["calochallenge-2"]
    assert published(electrons, 100_000)["against"] == []
    few = published(electrons, 2_000)
    assert few["against"] == ["the smaller set has 2,000 showers, not 100,000"]
    assert {"Geant4 against itself", "CaloDREAM", "MDMA"} <= {row["model"] for row in few["rows"]}
    page = section(
        {"skipped": None, "separations": {}, "fpd": None, "classifier": None, "timing": None, "published": few}
    )
    assert "Not to be compared here: the smaller set has 2,000 showers" in page
    assert "arXiv 2410.21611" in page
    assert published(RINGS, 100_000)["against"][0].startswith("the cells are not those")


def test_rectangular_cells_have_a_sentence_and_what_is_given(tmp_path: Path) -> None:
    path = make_file(tmp_path / "square.h5", events=30)
    timing = {"device": "a processor", "cores": 2, "times": [{"batch": 10_000, "ms_per_shower": 12.5}]}
    classifier = {"classifiers": {"low": {"auc": 0.625, "jsd": 0.1}}}
    page = section(numbers(opened(path), opened(path), Asked(classifier, timing)))
    assert "are left out: its features are for cells in rings" in page
    assert "batch 10,000: 12.5 ms a shower" in page
    assert "0.625" in page


def test_bad_input(tmp_path: Path) -> None:
    reference, candidate = (make_rings(tmp_path / f"{seed}.h5", events=30, seed=seed) for seed in range(2))
    timing, classifier = tmp_path / "timing.json", tmp_path / "classifier.json"
    storage.write_json(timing, {"kind": TIMING_KIND, "schema_version": GIVEN_VERSION})
    inputs = {"reference": [storage.sha256_of_file(reference)], "candidate": ["another"]}
    storage.write_json(classifier, {"kind": CLASSIFIER_KIND, "schema_version": GIVEN_VERSION, "inputs": inputs})
    with pytest.raises(InputError, match=r"calopipe\.classifier"):
        Asked.read(timing, None)
    with pytest.raises(InputError, match="was trained on other candidate files"):
        Asked.read(classifier, None).require_of(opened(reference), opened(candidate))
    command = ["--reference", str(reference), "--candidate", str(candidate), "--output", str(tmp_path / "verdict")]
    with pytest.raises(InputError, match="give that too"):
        main([*command, "--timing", str(timing)])
