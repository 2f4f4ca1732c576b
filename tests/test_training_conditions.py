"""The labels for which showers are generated: found by the receipts of a dataset, or by the cells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_file, make_labelled_showers, make_showers, write_file
from trainings import layers_model

from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.events.tolerance import SKIP, STOP, Tolerance
from calopipe.labels import PARTICLE, PHI
from calopipe.showers.selection import Selection
from preprocessing.pipeline import preprocess
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from training.generation.conditions import Conditions, LabelsAlone, conditions_of
from training.generation.generate import EXTRAPOLATE, generate


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose cells are read, one name for each time."""
    found: list[str] = []
    read = h5py.Dataset.__getitem__

    def counted(dataset: h5py.Dataset, *given: Any) -> Any:
        if dataset.name == "/ECAL":
            found.append(Path(dataset.file.filename).name)
        return read(dataset, *given)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    return found


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A file with corrupt events, events below the cut and one below the threshold, and two good files, one of them
    stored in one piece.
    """
    showers, whole = make_showers(events=60), make_showers(events=30, seed=1)
    showers.cells[::7] *= 1e-3
    showers.cells[10] *= 1e-7
    showers.cells[3, 1, 1, 1] = np.nan
    theta = np.where(np.arange(60) == 5, -1, showers.theta_rad).astype(np.float32)
    return [
        write_file(tmp_path / "a.h5", showers, theta=theta),
        make_file(tmp_path / "b.h5", events=50, seed=2),
        write_file(tmp_path / "c.h5", whole, chunks=False, ECAL=whole.cells.astype(np.float64)),
    ]


def _dataset(files: list[Path], output: Path, selection: Selection) -> Path:
    tolerance = Tolerance(on_bad_event=SKIP, max_bad_events=0.5)
    found = discover([str(file) for file in files], selection.geometry, tolerance=tolerance)
    preprocess(found, output, Settings(selection, 1e-5, shard_events=20), tolerance=tolerance)
    return output


@pytest.mark.parametrize(("split", "rule"), [("test", ()), ("train", ("test=[ac].h5",)), ("all", ())])
def test_receipts_tell_what_the_cells_do(
    files: list[Path], tmp_path: Path, reads: list[str], split: str, rule: tuple[str, ...]
) -> None:
    selection = Selection(split, SplitRule.parse([*rule]), bad_event=SKIP)
    expected = Conditions(files, selection).events
    assert len(expected.digests) > 5
    assert reads
    memory = _dataset(files, tmp_path / "ds", selection)
    reads.clear()
    found = Conditions(files, replace(selection, memory=memory)).events
    assert not reads
    np.testing.assert_equal(vars(found), vars(expected))


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ({}, {"d.h5"}),  # which the dataset does not hold
        ({"rule": SplitRule((("test", "a.h5"), ("test", "d.h5")))}, {"d.h5"}),  # digests go by no rule
        ({"cut_gev": 0.3}, {"a.h5", "b.h5", "c.h5", "d.h5"}),
        ({"geometry": "file_unit_gev=0.03"}, {"a.h5", "b.h5", "c.h5", "d.h5"}),
        ({"memory": Path("nowhere")}, {"a.h5", "b.h5", "c.h5", "d.h5"}),
        ("missing", {"a.h5", "b.h5", "c.h5", "d.h5"}),  # then the dataset is not whole
        ("short", set()),  # d.h5 and that one's file
    ],
)
def test_cells_are_read_of_what_the_dataset_cannot_tell(
    files: list[Path], tmp_path: Path, reads: list[str], asked: Any, read: set[str]
) -> None:
    """Also if a receipt is missing or damaged."""
    memory = _dataset(files, tmp_path / "ds", Selection())
    if isinstance(asked, str):
        receipt = sorted((memory / "shards").glob("*.json"))[0]
        document = json.loads(receipt.read_text())
        receipt.write_text(json.dumps(document | {"digests": document["digests"][:24]}))
        if asked == "missing":
            receipt.unlink()
        asked = {}
    more = [*files, make_file(tmp_path / "d.h5", events=20, seed=3)]
    selection = replace(Selection("test", bad_event=SKIP, memory=memory), **asked)
    expected = Conditions(more, replace(selection, memory=None)).events
    reads.clear()
    found = Conditions(more, selection).events
    assert set(reads) == read if read else len({"d.h5", *reads}) == len(set(reads)) == 2
    np.testing.assert_array_equal(found.digests, expected.digests)


def test_a_selection_that_stops_at_corrupt_events_is_not_told_without_them(files: list[Path], tmp_path: Path) -> None:
    """It stops, although the dataset knows the other events."""
    showers = make_showers(events=60)
    showers.cells[3, 1, 1, 1] = np.nan
    path = write_file(tmp_path / "nan.h5", showers)
    memory = _dataset([path], tmp_path / "ds", Selection())
    assert len(Conditions([path], Selection(bad_event=SKIP, memory=memory)).events.digests) == 59
    with pytest.raises(InputError, match=r"nan.h5: event 3: ECAL holds nan"):
        _ = Conditions([path], Selection(bad_event=STOP, memory=memory)).events


def test_a_model_and_the_incumbent_ask_once(tmp_path: Path, reads: list[str]) -> None:
    """The cells are read once to find the events or, with the dataset, not at all."""
    trained, expected = layers_model(tmp_path), tmp_path / "expected.h5"
    generate(trained / "model", Conditions([trained / "mc.h5"], Selection("test")), expected)
    for memory, readings in ((trained / "ds", 0), (None, 1)):
        conditions = Conditions([trained / "mc.h5"], Selection("test", memory=memory))
        reads.clear()
        for name in ("incumbent", "generated"):
            output = tmp_path / f"{name}-{readings}.h5"
            assert generate(trained / "model", conditions, output, outside=EXTRAPOLATE) > 10
            assert output.read_bytes() == expected.read_bytes()
        assert reads.count("mc.h5") == readings


@pytest.mark.parametrize("phi", [10.0, 0.0])
def test_labels_of_one_kind_are_asked_for_in_degrees(phi: float) -> None:
    card: Any = SimpleNamespace(
        valid_range={"energy_gev": (10, 20), "theta_rad": (1, 2), "phi_rad": (-0.5, 0.5), "particle": (11, 22)}
    )
    given = {"energy_gev": 15.0, "theta_rad": 90.0, PHI: phi, PARTICLE: 22}
    labels = LabelsAlone.alike(card, 3, given).events.labels
    np.testing.assert_allclose(labels["theta_rad"], [np.pi / 2] * 3)
    np.testing.assert_allclose(labels[PHI], [phi * np.pi / 180] * 3, rtol=1e-6)
    assert (labels["energy_gev"].tolist(), labels[PARTICLE].tolist()) == ([15.0] * 3, [22] * 3)


def test_labels_that_are_not_given_are_those_that_all_showers_of_the_training_had() -> None:
    none = dict.fromkeys(("energy_gev", "theta_rad", PHI, PARTICLE))
    alike: Any = SimpleNamespace(
        valid_range={"energy_gev": (50.0, 50.0), "theta_rad": (1.25, 1.25), PHI: (0.5, 0.5), PARTICLE: (22,)}
    )
    asked = LabelsAlone.alike(alike, 2, none)
    expected = {"energy_gev": [50.0] * 2, "theta_rad": [1.25] * 2, PHI: [0.5] * 2, PARTICLE: [22] * 2}
    assert {name: values.tolist() for name, values in asked.events.labels.items()} == expected
    assert [values.dtype for values in asked.events.labels.values()] == [np.float32] * 3 + [np.int32]
    assert asked.selection.split == "all"
    several: Any = SimpleNamespace(valid_range=alike.valid_range | {PARTICLE: (11, 22)})
    with pytest.raises(InputError, match="--pdg is missing, and the training showers differ in it: 11, 22; give --pdg"):
        LabelsAlone.alike(several, 2, none)


def test_where_no_event_is_chosen_the_message_says_why(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", events=5)
    rule = SplitRule.parse(["train=a.h5"])
    for selection, told in (
        (Selection(cut_gev=1e4), "no shower deposits more than 10000 GeV; give a file of labels"),
        (Selection("test", rule), "no shower of the test split holds energy; give more files"),
    ):
        with pytest.raises(InputError, match=f"a.h5: {told}"):
            _ = Conditions([path], selection).events


def _labels_file(path: Path, **labels: list[float]) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in labels.items():
            file[name] = np.array(values)
    return path


def test_files_of_labels_alone_are_joined_in_their_order(tmp_path: Path) -> None:
    card: Any = SimpleNamespace(geometry=SMALL_GEOMETRY)
    files = [
        _labels_file(tmp_path / "b.h5", energy=[20, 30], theta=[1.0, 1.5], phi=[0.25, -0.5], pdg=[11, 22]),
        _labels_file(tmp_path / "a.h5", energy=[10], theta=[2.0], phi=[0.0], pdg=[211]),
    ]
    events = conditions_of(files, Selection(), card).events
    energy, theta, phi, kinds = (events.labels[name].tolist() for name in ("energy_gev", "theta_rad", PHI, PARTICLE))
    assert (energy, theta) == ([20, 30, 10], [1.0, 1.5, 2.0])
    assert (phi, kinds) == ([0.25, -0.5, 0], [11, 22, 211])
    assert events.digests.tolist() == [0, 0, 0]
    other = _labels_file(tmp_path / "c.h5", energy=[10], theta=[2.0], phi=[0.0])
    with pytest.raises(InputError, match="a file beside it has other labels"):
        conditions_of([*files, other], Selection(), card)
    none = _labels_file(tmp_path / "none.h5", energy=[], theta=[])
    with pytest.raises(InputError, match=r"none\.h5: holds no showers"):
        conditions_of([none], Selection(), card)


def test_corrupt_labels_without_cells_are_told_of_as_those_of_showers_are_or_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card: Any = SimpleNamespace(geometry=SMALL_GEOMETRY)
    cases: dict[str, dict[str, list[float]]] = {
        "energy is nan, expected a positive number of GeV": {"energy": [20, np.nan], "theta": [1, 1.5]},
        "theta is 90.0, expected an angle between 0 and pi rad, .*; is it in degrees": {
            "energy": [20, 30],
            "theta": [1, 90],
        },
        "phi is -2.0, expected an angle of -pi/2 to pi/2 rad": {"energy": [20, 30], "theta": [1, 1], "phi": [0, -2]},
        "incident_energies, in GeV, is -0.001": {"incident_energies": [20_000, -1]},
        "theta is 4.0": {"energy": [20, 30, -1], "theta": [1, 4, 1]},  # the first corrupt shower, whichever its label
    }
    for told, labels in cases.items():
        path = _labels_file(tmp_path / "a.h5", **labels)
        with pytest.raises(InputError, match=f"a.h5: event 1: {told}.*; correct it, or leave such events out with"):
            conditions_of([path], Selection(), card)
        kept = conditions_of([path], Selection(bad_event=SKIP), card).events
        assert kept.labels["energy_gev"].tolist() == [20]
        count = len(next(iter(labels.values())))
        assert f"a.h5: {count - 1} of {count} showers have corrupt labels" in capsys.readouterr().out
    none = _labels_file(tmp_path / "none.h5", energy=[-1], theta=[1])
    with pytest.raises(InputError, match=r"none\.h5: holds no showers with good labels"):
        conditions_of([none], Selection(bad_event=SKIP), card)


def test_events_of_several_files_keep_their_labels_together(tmp_path: Path) -> None:
    """Events of one split and two files; energies identify the showers."""
    made = [make_labelled_showers(events=60, seed=seed) for seed in (1, 2)]
    files = [
        write_file(tmp_path / f"{number}.h5", showers, phi=showers.more[PHI], pdg=showers.more[PARTICLE])
        for number, showers in enumerate(made)
    ]
    rows = {
        row[0]: row[1:]
        for showers in made
        for row in zip(showers.energy_gev, showers.theta_rad, *(showers.more[n] for n in (PHI, PARTICLE)), strict=True)
    }
    events = Conditions(files, Selection("test")).events
    labels = [events.labels[name] for name in ("theta_rad", PHI, PARTICLE)]
    assert 5 < len(events) < 60
    assert [rows[energy] for energy in events.labels["energy_gev"]] == list(zip(*labels, strict=True))
