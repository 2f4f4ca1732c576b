"""The likelihood model on showers with an azimuth and of two kinds: its axis, and what it makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from likelihoods import CONFIG, LAYERS, reflected
from showers import SMALL_GEOMETRY, make_dataset, make_labelled_showers, measured_angle, write_file
from trainings import untraced

from calopipe.errors import InputError
from calopipe.events.tolerance import SKIP, STOP
from calopipe.labels import PARTICLE, PHI
from calopipe.showers.cells import Showers
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from training.export import export
from training.fit import fit
from training.generation.conditions import Conditions
from training.generation.generate import EXTRAPOLATE, generate
from training.generation.generator import Generator
from training.model_folder import read_card
from training.models.base import build


def _file(path: Path, showers: Showers, **others: Any) -> Path:
    return write_file(path, showers, **{"phi": showers.more[PHI], "pdg": showers.more[PARTICLE]} | others)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model after one step, not evaluated: it has the copula of the showers' totals; the networks hardly learned."""
    place = tmp_path_factory.mktemp("labels")
    make_dataset(place / "ds", _file(place / "a.h5", make_labelled_showers(events=400)), split_files=["train=*"])
    with untraced():
        fit(place / "ds", place / "model", replace(CONFIG, steps=1))
    return place / "model"


def test_the_axis_follows_the_particle() -> None:
    """The remaining slope is the scatter of a shower of twenty thousand points; without phi it would be tan phi."""
    made = make_labelled_showers(events=100)
    _, axis, offset = reflected(made.cells, made.theta_rad, made.more[PHI])
    assert np.abs(offset.numpy()[:, 1::2]).max() < 0.1
    assert (axis.numpy()[:, -1, 0] > 0)[np.abs(made.more[PHI]) > 0.1].all()
    *_, other = reflected(made.cells, made.theta_rad, np.zeros(100, np.float32))
    tilt = np.tan(np.abs(made.more[PHI])) * 20.0 / 15.3
    np.testing.assert_allclose(np.abs(other.numpy()[:, 1]), tilt, atol=0.1)


def _depth(cells: Any) -> Any:
    layers = cells.sum(axis=(1, 2))
    return layers @ np.arange(LAYERS) / layers.sum(1)


def _lean(cells: Any) -> Any:
    """The slope of the mean x of a layer, in cells a layer."""
    x, z = np.arange(17) - 8, np.arange(LAYERS)
    weight = cells.sum(axis=2)  # (N, x, layer)
    away = z - (np.einsum("nxz,z->n", weight, z) / weight.sum(axis=(1, 2)))[:, None]
    return np.einsum("nxz,x,nz->n", weight, x, away) / np.einsum("nxz,nz->n", weight, away**2)


def test_generated_showers_differ_by_kind_and_azimuth_as_those_of_the_training(model: Path) -> None:
    asked = make_labelled_showers(events=120, seed=1)
    with untraced():
        labels = {"energy_gev": asked.energy_gev, "theta_rad": asked.theta_rad, **asked.more}
        made = next(Generator(model, batch=120).showers(labels, seed=1))
    assert made.more.keys() == asked.more.keys()
    np.testing.assert_allclose(made.mtheta_rad, measured_angle(made.cells), atol=1e-3)
    for kind in (11, 211):
        chosen = asked.more[PARTICLE] == kind
        expected, found = _depth(asked.cells[chosen]), _depth(made.cells[chosen])
        assert found.mean() == pytest.approx(expected.mean(), abs=0.05)
    assert abs(_depth(asked.cells[asked.more[PARTICLE] == 11]).mean() - expected.mean()) > 0.5
    expected, found = _lean(asked.cells), _lean(made.cells)
    # networks that have hardly learned give all to one colour as often as to both, and any energy to a hit alone
    assert np.corrcoef(expected, found)[0, 1] > 0.85
    assert np.polyfit(expected, found, 1)[0] == pytest.approx(1, abs=0.1)


def test_the_input_says_which_showers_are_made(model: Path, tmp_path: Path) -> None:
    valid = read_card(model).valid_range
    assert valid[PARTICLE] == (11, 211)
    asked = make_labelled_showers(events=10, seed=2)
    inside = {PHI: np.clip(asked.more[PHI], *valid[PHI]).astype(np.float32)}
    asked = replace(asked, more=dict(asked.more) | inside)
    like = _file(tmp_path / "like.h5", asked)
    with untraced():
        generate(model, Conditions([like], Selection()), tmp_path / "g.h5", per_event=1)
    found = open_showers(tmp_path / "g.h5")
    for name, values in asked.more.items():
        np.testing.assert_array_equal(found.more[name], values)
    kind = _file(tmp_path / "kind.h5", asked, pdg=np.full(10, 22))
    angle = _file(tmp_path / "angle.h5", asked, phi=np.full(10, 0.7))
    bare = write_file(tmp_path / "bare.h5", asked)
    for path, outside, line in (
        (kind, EXTRAPOLATE, "shower 0 is asked for with pdg 22, the model knows"),
        (angle, STOP, r"shower 0 is asked for with phi 40.107\d* degrees, the model is .* \(0.7, "),
        (bare, EXTRAPOLATE, "asked for, beside energy and theta: none; those of the training: "),
        (bare, SKIP, "asked for, beside energy and theta: none; those of the training: "),  # and none is left out
    ):
        with pytest.raises(InputError, match=line):
            generate(model, Conditions([path], Selection()), tmp_path / "refused.h5", outside=outside)


def test_a_saved_model_is_asked_with_the_labels_of_the_training(model: Path, tmp_path: Path) -> None:
    asked = make_labelled_showers(events=6, seed=3)
    export(model, tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    given = {
        "energy_gev": asked.energy_gev,
        "theta_rad": np.clip(asked.theta_rad, 1.25, 1.9),
        PHI: asked.more[PHI] * 0.9,
        PARTICLE: asked.more[PARTICLE],
    }
    tensors = {name: tf.constant(values) for name, values in given.items()}
    found = serve(seed=tf.constant(1), **tensors)["cells_gev"].numpy()
    with untraced():
        expected = next(Generator(model, batch=6).showers(given, seed=1)).cells * 0.02
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    for wrong in ({PARTICLE: tf.constant([22] * 6)}, {PHI: tf.constant([0.7] * 6)}):
        with pytest.raises(tf.errors.InvalidArgumentError, match="the model is valid for"):
            serve(seed=tf.constant(1), **tensors | wrong)


def test_a_label_that_does_not_vary_changes_no_weight() -> None:
    plain, same = build(CONFIG, SMALL_GEOMETRY), build(CONFIG, SMALL_GEOMETRY, {"particle": (22,)})
    for name, network in plain.networks.items():
        for mine, other in zip(network.get_weights(), same.networks[name].get_weights(), strict=True):
            np.testing.assert_array_equal(mine, other)
