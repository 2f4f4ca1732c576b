"""A model that is kept current by repeated runs: Geant4 showers arrive, the pipeline runs, models are promoted.

The showers are those of the sample, with cells and layers joined, so that small networks learn something in seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import pytest
from servers import said
from showers import SAMPLE, SMALL_GEOMETRY, write_file

from calopipe.grade import tolerances
from calopipe.showers.cells import Showers
from calopipe.verdict import read_verdict
from preprocessing.dataset import read_manifest
from training.model_folder import read_card
from training.registry.registry import PROMOTED, Registry

ROOT = Path(__file__).parent.parent
# Any network that gives energy meets every criterion; one that has learned nothing is still far from one that has.
# What is not named here is not asked for.
_TOLERANCES = dict.fromkeys(tolerances(), "inf") | {
    "response": "20", "resolution": "100", "layer_energy": "1000", "layer_energy_tail": "10000", "depth_x0": "20",
    "r90": "100", "second_moment": "1000", "hits": "100", "angle_deg": "180", "separation": "2",
}  # fmt: skip
GRADE = "\n".join(["[tolerance]", *(f"{key} = {value}" for key, value in _TOLERANCES.items())])


def arrive(number: int, folder: Path) -> None:
    """Put file `number` of the sample, 300 showers of it, into `folder`."""
    path = sorted(SAMPLE.glob("*.h5"))[number]
    with h5py.File(path) as file:
        cells = file["ECAL"][:300].reshape(-1, 17, 3, 17, 3, 5, 5).sum(axis=(2, 4, 6))
        showers = Showers(cells, file["energy"][:300], file["theta"][:300], file["theta"][:300])
    write_file(folder / path.name, showers, geometry=SMALL_GEOMETRY)


@pytest.mark.slow
@pytest.mark.timeout(900)  # five runs of the pipeline, each of six processes
def test_a_model_is_kept_current(tmp_path: Path) -> None:
    registry, run = Registry(tmp_path / "registry"), tmp_path / "run"
    (tmp_path / "wide.toml").write_text(GRADE)

    def again(*more: str) -> str:
        """What a run of the same command printed, with `more` options."""
        command = [sys.executable, ROOT / "pipelines/submit.py", "run", "--verbose", "--config", "small"]
        command += ["--steps", "40", "--input", f"{tmp_path}/in/*.h5", "--output", run]
        return said(*command, "--registry", registry.place, "--grade", tmp_path / "wide.toml", *more)

    for number in (0, 1):
        arrive(number, tmp_path / "in")

    # the first run promotes what it trained
    told = again()
    assert "preprocessing 600 showers of 2 files, 2 of them new" in told
    (first,) = registry.history()
    assert read_card(run / "model").trained["warm_start"] is None
    assert read_verdict(run / "verdict.json")["incumbent"] is None

    # nothing new: every step finds its output standing, and says so
    told = again()
    for stands in ("dataset stands", "model stands", "showers stand", "verdict stands", "promotion stands"):
        assert stands in told

    # a new file: it alone is preprocessed, and training goes on from the model in use, which the new one has to beat
    arrive(2, tmp_path / "in")
    told = again()
    assert "preprocessing 900 showers of 3 files, 1 of them new: 1 of 3 pieces to do" in told
    assert read_manifest(run / "dataset").events["read"] == 900
    challenger = read_card(run / "model")
    assert challenger.trained["warm_start"] == first.fingerprint
    verdict = read_verdict(run / "verdict.json")
    assert verdict["incumbent"]["outcome"] != "worse"
    _, second = registry.history()
    assert (second.fingerprint, second.replaced, second.why) == (challenger.fingerprint(), first.model, PROMOTED)

    # what was rolled back does not come back by itself; a person may bring it back
    registry.rollback()
    told = again()
    assert "verdict stands" in told
    assert "not promoted: this model was rolled back on" in told
    current = registry.rollback(second.model)
    assert registry.current() == current

    # a challenger that has learned nothing is accepted under this grade, and worse; so it is not promoted
    told = again("--warm-start", "none", "--set", "learning_rate=1e-9", "--steps", "1")
    assert read_card(run / "model").trained["warm_start"] is None
    verdict = read_verdict(run / "verdict.json")
    assert (verdict["verdict"], verdict["incumbent"]["outcome"]) == ("accepted", "worse")
    assert f"not promoted: it is worse than {second.model}" in told
    assert registry.current() == current
