"""Showers with an azimuth and a kind of particle: read, hashed, recorded, listed and written, or refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from showers import CYLINDER, SMALL_GEOMETRY, make_dataset, make_showers, write_file, write_whole

from calopipe.errors import InputError
from calopipe.events.tolerance import FLAWS
from calopipe.labels import NO_LABELS, PARTICLE, PHI, LabelRange
from calopipe.showers.cells import EMPTY_SHOWER_ANGLE, Showers
from calopipe.showers.files import open_all, open_showers
from calopipe.showers.hits import Hits, event_digests, flaws_of_label
from calopipe.showers.selection import Selection
from calopipe.showers.writer import shower_writer
from preprocessing.dataset import read_manifest
from preprocessing.reading import decode_hits
from training.configs import named_config
from training.fit import fit
from training.generation.conditions import LabelsAlone
from training.generation.generator import Generator

KINDS = np.array([11, -211, 1000822080], np.int32)


def _labels(events: int) -> dict[str, Any]:
    rng = np.random.default_rng(events)
    return {"phi": rng.uniform(-0.5, 0.5, events).astype(np.float32), "pdg": KINDS[rng.integers(0, 3, events)]}


def test_records_and_manifest_hold_the_labels_of_the_file(tmp_path: Path) -> None:
    labels = _labels(60)
    path = write_file(tmp_path / "a.h5", make_showers(events=60), **labels)
    manifest = make_dataset(tmp_path / "ds", path, shard_events=20)
    expected = LabelRange((labels["phi"].min(), labels["phi"].max()), (-211, 11, 1000822080))
    for each in (manifest, read_manifest(tmp_path / "ds")):
        assert LabelRange.from_json(each.valid_range) == expected
    names = [str(tmp_path / "ds" / shard.name) for shard in manifest.shards]
    records = list(tf.data.TFRecordDataset(names))
    found = decode_hits(tf.stack(records), manifest)
    assert len(records) == 60
    for record, phi, kind in zip(records, found[PHI], found[PARTICLE], strict=True):
        event = tf.train.Example.FromString(record.numpy()).features.feature["event"].int64_list.value[0]
        assert (phi, kind) == (labels["phi"][event], labels["pdg"][event])
    assert found[PARTICLE].dtype == tf.int32


def test_a_label_counts_in_an_events_digest_and_without_labels_it_is_as_before(tmp_path: Path) -> None:
    made = make_showers(events=40)
    hits, own = Hits.of(made.cells), (made.energy_gev, made.theta_rad)
    more = {PHI: np.zeros(40, np.float32), PARTICLE: np.full(40, 11, np.int32)}
    others = [{PARTICLE: more[PARTICLE]}, {PHI: more[PHI]}, more, more | {PARTICLE: np.full(40, 22, np.int32)}, None]
    every = np.concatenate([event_digests(hits, *own, each) for each in others])
    assert len(np.unique(every)) == len(every)
    np.testing.assert_array_equal(event_digests(hits, *own, {}), event_digests(hits, *own))
    path = write_file(tmp_path / "a.h5", made, phi=more[PHI], pdg=more[PARTICLE])
    np.testing.assert_array_equal(open_showers(path).chosen(Selection())[1], event_digests(hits, *own, more))
    # of version 0.2: another digest would put the event into another split
    first = open_showers(CYLINDER)
    assert next(first.examined(Selection())).digests[0] == 16298030792986584084


@pytest.mark.parametrize("deposits", ["ECAL", "showers"])
def test_labels_are_written_and_read_again_and_parts_are_joined(tmp_path: Path, deposits: str) -> None:
    made, labels = make_showers(events=40), _labels(40)
    more = {PHI: labels["phi"], PARTICLE: labels["pdg"]}
    whole = Showers(*made.arrays.values(), more=more)
    parts = (("a", whole[:20]), ("b", whole[20:]))
    paths = [write_whole(tmp_path / f"{name}.h5", part, SMALL_GEOMETRY, deposits) for name, part in parts]
    with shower_writer(tmp_path / "both.h5", SMALL_GEOMETRY, {}, deposits) as writer:
        for path in paths:
            writer.append(path)
    found = open_showers(tmp_path / "both.h5").read()
    for name in (PHI, PARTICLE):
        np.testing.assert_array_equal(found.more[name], more[name])
        assert found[::7].more[name].dtype == more[name].dtype
    np.testing.assert_array_equal(found.cells, made.cells)


def test_files_with_and_without_a_label_are_not_mixed(tmp_path: Path) -> None:
    labels = _labels(20)
    one = write_file(tmp_path / "a.h5", make_showers(events=20), **labels)
    other = write_file(tmp_path / "b.h5", make_showers(events=20, seed=1), phi=labels["phi"])
    line = r"b\.h5: its labels beside energy and theta: phi; .*a\.h5: phi, pdg; give files with the same labels"
    with pytest.raises(InputError, match=line):
        open_all([one, other])
    with pytest.raises(InputError, match=line):
        make_dataset(tmp_path / "ds", one, other, shard_events=20)


def test_a_model_that_is_not_given_the_labels_refuses_showers_that_differ_by_them(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.h5", make_showers(events=60), pdg=_labels(60)["pdg"])
    make_dataset(tmp_path / "ds", path, shard_events=20)
    with pytest.raises(InputError, match=r"is given energy and theta alone, the showers differ in pdg too"):
        fit(tmp_path / "ds", tmp_path / "m", named_config("small"))


def test_the_range_of_parts_holds_all_of_them_and_says_whether_showers_differ_by_it() -> None:
    phi = np.array([0.1, -0.3, 0.2, 0.0], np.float32)
    one = LabelRange.of({PHI: phi, PARTICLE: np.array([211, 11, 211, 11], np.int32)})
    assert (one.phi_rad, one.particle) == (pytest.approx((-0.3, 0.2)), (11, 211))
    other = LabelRange((-0.2, 0.5), (-11,))
    assert LabelRange.joined([one, NO_LABELS, other]) == LabelRange((one.phi_rad[0], 0.5), (-11, 11, 211))
    assert LabelRange.joined([other, LabelRange((-0.1, 0.0), (22,))]) == LabelRange((-0.2, 0.5), (-11, 22))
    assert LabelRange.joined([]) == NO_LABELS
    vary = [LabelRange(), LabelRange(particle=(11,)), LabelRange(particle=(11, 22)), LabelRange((0.0, 0.1))]
    assert [labels.vary for labels in vary] == [False, False, True, True]
    assert LabelRange((0.0, 0.1), (11,)).difference(LabelRange((0.5, 0.7), (11,))) is None
    assert NO_LABELS.difference(LabelRange(particle=(11, 22))) == ("neither phi nor pdg", "pdg (11, 22)")
    assert other.difference(NO_LABELS) == ("phi and pdg (-11,)", "neither phi nor pdg")


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("energy", 0.0, np.inf), ("theta", 0.0, np.pi), ("mtheta", 0.0, np.pi), ("phi", -np.pi / 2, np.pi / 2)],
)
def test_a_label_is_within_its_range_and_not_at_its_ends(name: str, low: float, high: float) -> None:
    inside = [np.nextafter(low, 1), (low + high) / 2 if np.isfinite(high) else 1e9, np.nextafter(high, 0)]
    nan, out_of_range = FLAWS.index("nan"), FLAWS.index("out_of_range")
    at_the_end = out_of_range if np.isfinite(high) else nan
    flaws = flaws_of_label(name, np.array([*inside, low, high, low - 1, np.nan, EMPTY_SHOWER_ANGLE]))
    of_empty = 0 if name in {"energy", "mtheta"} else out_of_range
    assert flaws.tolist() == [0, 0, 0, out_of_range, at_the_end, out_of_range, nan, of_empty]


@pytest.mark.parametrize("cut_gev", [-1.0, np.inf, np.nan])
def test_a_cut_is_an_energy_of_zero_or_more(cut_gev: float) -> None:
    assert Selection(cut_gev=0.0).cut_gev == 0
    with pytest.raises(InputError, match=f"cut_gev is {cut_gev}, expected a number of GeV, zero or more"):
        Selection(cut_gev=cut_gev)


def _knowing(valid: dict[str, Any]) -> Generator:
    """A generator that knows only the range of its model; nothing else is needed."""
    generator = Generator.__new__(Generator)
    generator.card, generator._valid = SimpleNamespace(valid_range=valid), LabelRange.from_json(valid)
    return generator


def test_labels_outside_are_told_whichever_they_are() -> None:
    valid = {"energy_gev": (10.0, 20.0), "theta_rad": (1.0, 1.5), PHI: (-0.2, 0.2), PARTICLE: (11, 22)}
    known = _knowing(valid)
    energy, theta, phi = (np.array(each, np.float32) for each in ([15, 25, 15, 15, 15], [1.2] * 5, [0, 0, 0.3, 0.1, 0]))
    theta[3] = 0.9
    kinds = np.array([11, 11, 22, 22, 211], np.int32)
    labels = {"energy_gev": energy, "theta_rad": theta, PHI: phi, PARTICLE: kinds}
    found = known.inside(labels)
    assert found.tolist() == [True, False, False, False, False]
    phi[2] = 0.2
    assert known.inside(labels)[2]
    # that a label is missing is told by `require_kinds`
    del labels[PHI]
    assert known.inside(labels).tolist() == [True, False, True, False, False]


def test_the_first_shower_that_is_outside_is_named_and_all_are_counted() -> None:
    theta = np.array([1.2, 0.9, 1.5, 1.7, 1.0], np.float32)
    labels = {"energy_gev": 0 * theta + 15, "theta_rad": theta}
    told = r"shower 1 is .* 51\.5\d+ degrees, .* 57\.\d+ to 85\.\d+ degrees \(0\.9, 1 and 1\.5 rad\); of 5 showers 2 "
    with pytest.raises(InputError, match=told):
        _knowing({"energy_gev": (10.0, 20.0), "theta_rad": (1.0, 1.5)}).require_inside(labels)
    known = _knowing({PARTICLE: (11, 22)})
    with pytest.raises(InputError, match=r"shower 2 .* pdg 211, the model knows 11, 22; 2 showers are of others"):
        known.require_kinds({PARTICLE: np.array([11, 22, 211, 11, 13], np.int32)})
    known.require_kinds({PARTICLE: np.array([22, 11], np.int32)})


def test_labels_alone_are_known_by_all_of_their_values() -> None:
    labels: dict[str, Any] = {name: np.array([1, 2], np.float32) for name in ("energy_gev", "theta_rad", PHI)}
    labels[PARTICLE] = np.array([11, 22], np.int32)
    assert LabelsAlone(labels).contents == LabelsAlone(dict(labels)).contents
    for name, values in labels.items():
        others = {**labels, name: values + np.array([0, 1], values.dtype)}
        assert LabelsAlone(labels).contents != LabelsAlone(others).contents
