"""Criteria by kind of particle and by azimuth: a model that confuses the kinds, or the sides, is rejected, although all
showers together are right.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judging import opened
from showers import RING_GEOMETRY, SMALL_GEOMETRY, make_labelled_showers, write_file

from calopipe.errors import InputError
from calopipe.grade import load_grade
from calopipe.labels import PARTICLE, PHI
from calopipe.showers.cells import Geometry, Layer, Showers
from calopipe.showers.hits import Hits
from validation.judge.answers import Criterion, judge_all
from validation.judge.criteria import measure_criteria
from validation.measure.observables import observe
from validation.measure.pairing import pairing, require_comparable
from validation.measure.sets import Measured, Rows, ShowerSet, Tables, measure
from validation.statistics.binning import Binning


def _set(path: Path, showers: Showers) -> ShowerSet:
    write_file(path, showers, phi=showers.more[PHI], pdg=showers.more[PARTICLE])
    return opened(path)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[ShowerSet, Measured]:
    found = _set(tmp_path_factory.mktemp("kinds") / "mc.h5", make_labelled_showers(events=1500))
    return found, measure(found)


def _pairing(reference: Measured, candidate: ShowerSet) -> tuple[int, Rows]:
    return pairing(reference.table, measure(candidate).table, candidate.files[0].path)


def _criteria(mine: Measured, theirs: Measured) -> list[Criterion]:
    grade = load_grade("gan")
    binning = Binning.of(mine.table, len(mine.table), SMALL_GEOMETRY, grade)
    assert [each.label for each in binning.particle] == ["pdg 11", "pdg 211"]
    assert [len(Binning.of(mine.table, events, SMALL_GEOMETRY, grade).azimuth) for events in (1_500, 7_000)] == [2, 6]
    assert Binning.of(mine.table, 7_000, RING_GEOMETRY, grade).azimuth == ()
    tables = Tables(mine.table, theirs.table, 0)
    of_kinds, rng = replace(binning, energy=(), angle=()), np.random.default_rng(0)
    return judge_all(measure_criteria(tables, binning=of_kinds, grade=grade, rng=rng))


def _exchanged(showers: Showers) -> Showers:
    """The showers of a model that confuses the two kinds."""
    kinds = showers.more[PARTICLE]
    return replace(showers, more={**showers.more, PARTICLE: np.where(kinds == 11, 211, 11).astype(np.int32)})


def test_exchanged_kinds_are_rejected_and_independent_showers_are_not(
    reference: tuple[ShowerSet, Measured], tmp_path: Path
) -> None:
    _, mine = reference
    made = make_labelled_showers(events=1500, seed=1)
    independent = _criteria(mine, measure(_set(tmp_path / "a.h5", made)))
    # response, R90, two moments, hits, depth and two of continuity a kind; the measured angle to x of either side
    assert len(independent) == 2 * 8 + 2, "of a new mean: name it in the comment, and make the 8 one more"
    assert [each.measurement.name for each in independent if each.verdict == "fail"] == []
    found = _criteria(mine, measure(_set(tmp_path / "b.h5", _exchanged(made))))
    failed = {(each.measurement.name, each.measurement.bin): each.value for each in found if each.verdict == "fail"}
    depth = {kind: _mean_depth_x0(made, kind) for kind in (11, 211)}
    for kind, other in ((11, 211), (211, 11)):
        expected = depth[other] - depth[kind]
        assert failed["Mean shower depth", f"pdg {kind}"] == pytest.approx(expected, abs=0.1)


def _mean_depth_x0(showers: Showers, kind: int) -> float:
    layers = showers.cells[showers.more[PARTICLE] == kind].sum(axis=(1, 2))
    middles = (np.arange(layers.shape[1]) + 0.5) * SMALL_GEOMETRY.x0_per_layer
    return float((layers @ middles / layers.sum(axis=1)).mean())


def test_exchanged_sides_are_rejected_by_the_angle_to_x(reference: tuple[ShowerSet, Measured], tmp_path: Path) -> None:
    """Showers with the label phi lean to -phi; all their profiles and angles to y are right."""
    _, mine = reference
    made = make_labelled_showers(events=1500, seed=1)
    turned = replace(made, more={**made.more, PHI: -made.more[PHI]})
    found = _criteria(mine, measure(_set(tmp_path / "a.h5", turned)))
    failed = sorted((each for each in found if each.verdict == "fail"), key=lambda each: each.value)
    for each, side in zip(failed, (-1, 1), strict=True):
        assert each.measurement.name == "Mean measured angle to x"
        # 90 degrees less asin(sin theta sin phi), which is 14 degrees on average; as far to the other side
        of_side = side * made.more[PHI] > 0
        lean = np.degrees(np.arcsin(np.sin(made.theta_rad) * np.sin(made.more[PHI])))[of_side].mean()
        assert each.value == pytest.approx(2 * lean, rel=0.15)


def test_the_angle_to_x_is_that_to_y_of_showers_with_axes_exchanged() -> None:
    showers = make_labelled_showers(events=50)
    layers = Geometry.of_layers([Layer(20.0, 5.0, (17, 17), size_mm=(15.3, 15.3))] * 5, SMALL_GEOMETRY.file_unit_gev)
    for geometry in (SMALL_GEOMETRY, layers):
        turned = Hits.of(np.ascontiguousarray(showers.cells.transpose(0, 2, 1, 3)))
        hits, labels = Hits.of(showers.cells), (showers.energy_gev, showers.theta_rad, geometry)
        found = observe(hits, *labels, phi_rad=showers.more[PHI]).angle_x_deg
        np.testing.assert_allclose(found, observe(turned, *labels).column("angle_deg"), rtol=1e-5)
        assert np.isnan(observe(hits, *labels).angle_x_deg).all()


def test_the_table_holds_the_kinds_and_pairs_go_by_them(reference: tuple[ShowerSet, Measured], tmp_path: Path) -> None:
    of_mc, mine = reference
    made = make_labelled_showers(events=1500)
    np.testing.assert_array_equal(mine.table.particle, made.more[PARTICLE])
    assert _pairing(mine, _set(tmp_path / "same.h5", made))[0] == 1
    assert _pairing(mine, _set(tmp_path / "other.h5", _exchanged(made)))[0] == 0
    turned = replace(made, more={**made.more, PHI: -made.more[PHI]})
    assert _pairing(mine, _set(tmp_path / "turned.h5", turned))[0] == 0
    electrons = made[made.more[PARTICLE] == 11]
    with pytest.raises(InputError, match=r"have phi and pdg \(11,\), those of the reference phi and pdg \(11, 211\)"):
        require_comparable(of_mc, _set(tmp_path / "one.h5", electrons))
    write_file(tmp_path / "none.h5", made)
    with pytest.raises(InputError, match="its showers have neither phi nor pdg, those of the reference phi and pdg"):
        require_comparable(of_mc, opened(tmp_path / "none.h5"))


def test_sets_of_another_mix_are_no_sets_of_one_beam(reference: tuple[ShowerSet, Measured], tmp_path: Path) -> None:
    mine, measured = reference
    for seed in (1, 2):
        independent = _set(tmp_path / f"{seed}.h5", make_labelled_showers(events=1500, seed=seed))
        assert _pairing(measured, independent)[0] == 0
    showers = make_labelled_showers(events=1500, seed=1)
    few = np.random.default_rng(3).uniform(size=1500) < np.where(showers.more[PARTICLE] == 11, 1, 0.1)
    other = _set(tmp_path / "other.h5", showers[few])
    require_comparable(mine, other)
    with pytest.raises(InputError, match="its particles are 89% 11, 11% 211, those of the reference 49% 11, 51% 211"):
        _pairing(measured, other)
