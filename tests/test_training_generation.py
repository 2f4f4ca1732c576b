"""Generation by its command: labels, units, layout, repetition, refusals."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow as tf
from commands import refused
from servers import said
from showers import SMALL_GEOMETRY, make_file, make_showers, measured_angle, write_file
from trainings import layers_model

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.lock import alone
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from training import __main__ as command
from training import model_folder
from training.calochallenge import timing
from training.generation import part_files
from training.generation.conditions import Conditions
from training.generation.generate import EXTRAPOLATE, _attributes, _request, generate
from training.generation.generator import Generator
from training.generation.part_files import Parts, Share
from validation.compare import validate


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return layers_model(tmp_path_factory.mktemp("generation"))


def _generate(trained: Path, output: Path, *more: object, like: Path | None = None) -> None:
    arguments = ["--model", trained / "model", "--like", like or trained / "mc.h5", "--output", output, *more]
    command.main(["generate", *map(str, arguments)])


def test_showers_have_the_labels_of_the_split_and_the_layout_of_the_input(trained: Path, tmp_path: Path) -> None:
    _generate(trained, tmp_path / "g.h5", "--split", "test")
    mc, generated = open_showers(trained / "mc.h5"), open_showers(tmp_path / "g.h5")
    mask, _ = mc.chosen(Selection("test", cut_gev=0))
    np.testing.assert_array_equal(generated.energy_gev, mc.energy_gev[mask])
    np.testing.assert_array_equal(generated.theta_rad, mc.theta_rad[mask])
    assert generated.geometry == mc.geometry
    with h5py.File(tmp_path / "g.h5") as file:
        assert (file.attrs["seed"], file.attrs["cut_gev"]) == (1, 0)
    cells = generated.read().cells  # finite and not negative, or reading would refuse
    assert cells.shape == (mask.sum(), *SMALL_GEOMETRY.shape)
    assert (cells.sum(axis=(1, 2, 3)) > 0).all()
    np.testing.assert_allclose(generated.read().mtheta_rad, measured_angle(cells), atol=1e-3)


def test_showers_are_made_by_one_command_at_a_time_and_not_in_place_of_their_labels(
    trained: Path, tmp_path: Path
) -> None:
    with alone(tmp_path, ".g.h5.lock"):
        with pytest.raises(InputError, match="another run writes there"):
            _generate(trained, tmp_path / "g.h5")
        _generate(trained, tmp_path / "g.h5", "--share", "0/2")  # of which there may be many
    _generate(trained, tmp_path / "g.h5")
    made = (tmp_path / "g.h5").read_bytes()
    with pytest.raises(InputError, match=r"g\.h5: is also of --like, and would be lost"):
        _generate(trained, tmp_path / "g.h5", "--seed", "2", like=tmp_path / "g.h5")
    assert (tmp_path / "g.h5").read_bytes() == made


def test_a_shower_that_a_device_has_no_room_for_is_an_error(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy = open_showers(trained / "mc.h5").energy_gev

    def full(generator: Generator, labels: dict[str, tf.Tensor], *_: Any) -> tf.Tensor:
        cells = tf.ones([tf.size(labels["energy_gev"]), *generator.card.geometry.shape])
        return tf.where(labels["energy_gev"][:, None, None, None] == energy[40], np.float32(np.nan), cells)

    monkeypatch.setattr(Generator, "cells", full)
    with pytest.raises(InputError, match=rf"shower 40, of {energy[40]:g} GeV, is no number; .* generate on processors"):
        _generate(trained, tmp_path / "g.h5")
    assert not (tmp_path / "g.h5").exists()


def test_a_batch_is_bounded_by_bytes_unless_it_is_given(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_of_one = make_showers(events=1).cells.nbytes
    for least, batches in ((bytes_of_one // 2, [1, 50]), (5 * bytes_of_one, [5, 50]), (99 * bytes_of_one, [64, 50])):
        monkeypatch.setattr("training.generation.generator._BATCH_BYTES", least)
        assert [Generator(trained / "model", batch).batch for batch in (0, 50)] == batches


def test_showers_that_stand_are_left_and_another_seed_gives_others(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "g.h5"
    _generate(trained, output)
    before, cells = output.stat().st_mtime_ns, open_showers(output).read().cells
    for more in ((), ("--batch", 5)):
        _generate(trained, output, *more)
        assert "showers stand" in capsys.readouterr().out
        assert output.stat().st_mtime_ns == before
    _generate(trained, output, "--seed", 9)
    assert (open_showers(output).read().cells != cells).any()


def test_showers_asked_for_in_any_other_way_do_not_stand(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card, chosen = model_folder.read_card(trained / "model"), Selection("test", cut_gev=0.1)
    others: list[dict[str, Any]] = [
        {"split": "all"}, {"rule": SplitRule.parse(["test=a*"])}, {"cut_gev": 0.2}, {"geometry": "file_unit_gev=1"},
        {"bad_event": "skip"},
    ]  # fmt: skip
    asked = [(card, ["a"], replace(chosen, **other), 1, 2) for other in ({}, *others)]
    asked += [(card, ["a"], chosen, *more) for more in ((2, 2), (1, 3))]
    asked += [(card, ["b"], chosen, 1, 2), (replace(card, weights={"w": "0"}), ["a"], chosen, 1, 2)]
    requests = {_request(*given) for given in asked}
    monkeypatch.setattr(metadata, "version", lambda _: "0.0.1")
    requests.add(_request(card, ["a"], chosen, 1, 2))
    monkeypatch.setattr("training.generation.generate.SCHEMA_VERSION", 0)
    requests.add(_request(card, ["a"], chosen, 1, 2))
    assert len(requests) == len(asked) + 2


def test_a_file_says_how_its_model_was_trained() -> None:
    trained = {"steps": 12_000, "replicas": 4, "chosen_step": 9_000, "seconds": 5_400.0}
    config = SimpleNamespace(model="m", batch=8)
    card: Any = SimpleNamespace(config=config, trained=trained, fingerprint=lambda: "weights")
    assert _attributes(card, "asked") == {
        "generator": "calopipe m", "model": "weights", "calopipe_request": "asked",
        "made_by": "m, 12,000 steps of 32, the weights of step 9,000, trained in 90 min",
    }  # fmt: skip


# The command with parts of 30 showers, which takes its time before each.
_SLOWLY = """
import sys, time
from training import __main__
from training.generation import part_files
write, part_files._PART_SHOWERS = part_files.shower_writer, 30
part_files.shower_writer = lambda *given: time.sleep(0.3) or write(*given)
__main__.main(sys.argv[1:])
"""


def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run is killed when one part of 14 is whole."""
    monkeypatch.setattr(part_files, "_PART_SHOWERS", 30)  # two batches, less two showers that fill no chunk
    settings = ("--batch", 16, "--per-event", 4)
    _generate(trained, tmp_path / "whole.h5", *settings)
    output, parts = tmp_path / "killed.h5", tmp_path / ".killed.h5.parts"
    arguments = ["generate", "--model", trained / "model", "--like", trained / "mc.h5", "--output", output, *settings]
    with subprocess.Popen([sys.executable, "-c", _SLOWLY, *map(str, arguments)]) as process:
        while process.poll() is None and not list(parts.glob("[!.]*")):
            time.sleep(0.0001)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not output.exists()
    standing = {part: part.stat().st_mtime_ns for part in parts.glob("[!.]*")}
    assert 1 <= len(standing) < 14
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "discard", lambda _: None)
        _generate(trained, output, *settings)
    assert capsys.readouterr().err.startswith(f"generate: {30 * len(standing) * 100 / 400:3.0f}% ")
    assert {part: part.stat().st_mtime_ns for part in standing} == standing  # written once
    assert output.read_bytes() == (tmp_path / "whole.h5").read_bytes()
    # they are left as by a run that was killed at its very end; one share leaves them for the others
    _generate(trained, output, *settings, "--share", "0/2")
    assert len(list(parts.glob("[!.]*"))) == 14
    _generate(trained, output, *settings)
    assert not parts.exists()
    assert output.read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_shares_of_hosts_with_more_devices_leave_the_others_parts(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such hosts make parts of another size; here other batches do."""
    monkeypatch.setattr(part_files, "_PART_SHOWERS", 30)
    _generate(trained, tmp_path / "g.h5", "--share", "0/2", "--batch", 16)
    first = {path.name for path in (tmp_path / ".g.h5.parts").iterdir()}
    _generate(trained, tmp_path / "g.h5", "--share", "1/2", "--batch", 25)
    assert first < {path.name for path in (tmp_path / ".g.h5.parts").iterdir()}
    _generate(trained, tmp_path / "g.h5", "--seed", 9)  # another request leaves nothing of them
    assert not (tmp_path / ".g.h5.parts").exists()


def test_the_rate_is_of_the_showers_that_are_made_now(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two parts of ten showers: a share made the first part, and nothing is made twice. The clock shows 2 s."""
    monkeypatch.setattr(part_files, "_PART_SHOWERS", 10)
    conditions = Conditions([make_file(tmp_path / "few.h5", events=20)], Selection())
    rates: list[tuple[str, float]] = []

    def made(share: Share | None = None) -> int:
        monkeypatch.setattr(part_files, "time", SimpleNamespace(monotonic=iter((0.0, 2.0)).__next__))
        return generate(
            trained / "model", conditions, tmp_path / "new" / "g.h5", share=share, outside=EXTRAPOLATE, batch=10,
            measured=lambda *told: rates.append(told),
        )  # fmt: skip

    assert [made(Share(0, 2)), made(Share(0, 2)), made(), made()] == [0, 0, 20, 20]
    assert "share 0 of 2 is made" in capsys.readouterr().out
    assert rates == [("showers a second", 5.0)] * 2


def test_a_part_is_whole_chunks_however_large_these_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator: Any = SimpleNamespace(showers_at_a_time=300)
    for chunk, sizes in ((5000, [5000, 2000]), (7, [1197] * 5 + [1015]), (400, [1200] * 5 + [1000])):
        monkeypatch.setattr(part_files, "showers_a_chunk", lambda _, chunk=chunk: chunk)
        parts = Parts(tmp_path, "0123456789abcdef", generator, 7000, layout=(SMALL_GEOMETRY, ""))
        assert [len(part) for part in parts._parts.values()] == sizes


def test_others_are_computed_while_showers_are_written(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the next showers belong to another part."""
    generator = Generator(trained / "model", batch=2)
    begun, made = threading.Semaphore(0), generator._made

    def counted(*given: Any) -> Any:
        begun.release()
        return made(*given)

    monkeypatch.setattr(generator, "_made", counted)
    labels = {"energy_gev": np.linspace(110, 190, 8, dtype=np.float32), "theta_rad": np.full(8, 1.5, np.float32)}
    found = generator.showers(labels, seed=1, ranges=[range(first, first + 2) for first in range(0, 8, 2)])
    assert len(next(found)) == 2
    for _ in range(3):  # of which two are not waited for
        assert begun.acquire(timeout=60)
    assert not begun.acquire(blocking=False)
    assert sum(map(len, found)) == 6


def test_two_devices_make_the_showers_of_one(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They make parts, and a later run without them joins the parts."""
    settings = ("--batch", 16, "--per-event", 4)
    _generate(trained, tmp_path / "one.h5", *settings)
    program = "import sys, tensorflow as tf; from training.generation import part_files; "
    program += "from training import __main__; one = tf.config.LogicalDeviceConfiguration; "
    program += "part_files._PART_SHOWERS = 30; cpu = tf.config.list_physical_devices('CPU')[0]; "
    program += "tf.config.set_logical_device_configuration(cpu, [one(), one()]); __main__.main(sys.argv[1:])"
    arguments = ["--model", trained / "model", "--like", trained / "mc.h5", "--output", tmp_path / "two.h5", *settings]
    said(sys.executable, "-c", program, "generate", *arguments, "--strategy", "mirrored", "--share", "0/1")
    parts = sorted((tmp_path / ".two.h5.parts").iterdir(), key=lambda path: int(path.stem.rpartition(".")[2]))
    assert [h5py.File(path)["energy"].len() for path in parts] == [30] * 13 + [10]
    monkeypatch.setattr(part_files, "_PART_SHOWERS", 30)
    _generate(trained, tmp_path / "two.h5", *settings)
    one, two = (open_showers(tmp_path / f"{name}.h5").read().cells for name in ("one", "two"))
    np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6 * one.max())


@pytest.mark.usefixtures("undrawn")
def test_labels_outside_the_training_are_left_out_if_asked(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Validation then pairs the other showers, also with several showers for each event."""
    showers = make_showers(events=100)[:60]  # of the training
    energy = showers.energy_gev.copy()
    energy[[7, 20]] = 90, 260
    path = write_file(tmp_path / "more.h5", showers, energy=energy)
    _generate(trained, tmp_path / "g.h5", "--outside", "skip", "--per-event", 2, like=path)
    assert "2 of 60 showers are outside the range of the training: left out" in capsys.readouterr().out
    made = open_showers(tmp_path / "g.h5")
    np.testing.assert_array_equal(made.energy_gev, np.repeat(np.delete(energy, [7, 20]), 2))
    assert len(np.unique(made.read().cells.reshape(116, -1), axis=0)) == 116  # another shower every time
    document = validate([path], [tmp_path / "g.h5"], tmp_path / "verdict")
    assert (document["per_event"], document["events"]["reference"]) == (2, 60)
    assert {criterion["events"] for criterion in document["criteria"] if criterion["key"] == "response"} == {58}
    with pytest.raises(InputError, match="energy 90 GeV"):  # what stands without some is not what is asked for with all
        _generate(trained, tmp_path / "g.h5", "--per-event", 2, like=path)
    none = write_file(tmp_path / "none.h5", showers, energy=0 * energy + 90)
    with pytest.raises(InputError, match=r"shower 0 is asked for with energy 90 GeV"):
        _generate(trained, tmp_path / "i.h5", "--outside", "skip", like=none)


def test_a_corrupt_event_stops_generation_or_is_left_out(trained: Path, tmp_path: Path) -> None:
    showers = make_showers(events=12)
    cells = showers.cells.copy()
    cells[5, 8, 8, 1] = np.nan
    path = write_file(tmp_path / "nan.h5", showers, ECAL=cells)
    with pytest.raises(InputError, match=r"nan.h5: event 5: ECAL holds nan in 1 cell.* --on-bad-event skip"):
        _generate(trained, tmp_path / "g.h5", like=path)
    assert not (tmp_path / "g.h5").exists()
    _generate(trained, tmp_path / "g.h5", "--on-bad-event", "skip", like=path)
    np.testing.assert_array_equal(open_showers(tmp_path / "g.h5").energy_gev, np.delete(showers.energy_gev, 5))


def test_labels_outside_the_training_are_refused(trained: Path, tmp_path: Path) -> None:
    showers = make_showers(events=5)
    energy = np.where(np.arange(5) == 2, 500, showers.energy_gev).astype(np.float32)
    path = write_file(tmp_path / "high.h5", showers, energy=energy)
    with pytest.raises(InputError, match=r"shower 2 is asked for with energy 500 GeV, the model is valid from 10"):
        _generate(trained, tmp_path / "g.h5", like=path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["high.h5"]
    # an incumbent has to answer all the same; the showers inside its range are as ever
    assert generate(trained / "model", Conditions([path], Selection()), tmp_path / "g.h5", outside=EXTRAPOLATE) == 5
    usual = write_file(tmp_path / "usual.h5", showers)
    _generate(trained, tmp_path / "u.h5", like=usual)
    with h5py.File(tmp_path / "g.h5") as far, h5py.File(tmp_path / "u.h5") as near:
        assert far["energy"][2] == 500
        inside = [0, 1, 3, 4]
        np.testing.assert_allclose(far["ECAL"][inside], near["ECAL"][inside], rtol=1e-4, atol=1e-6)


def test_the_cut_is_that_of_the_training_and_what_is_below_it_is_left_out(trained: Path, tmp_path: Path) -> None:
    """Also if no shower above the cut has such labels, which are then outside the range of the dataset too."""
    showers = make_showers(events=30)
    energy, cells = showers.energy_gev.copy(), showers.cells.copy()
    energy[4], cells[4] = 3.0, 0
    low = write_file(tmp_path / "low.h5", showers, energy=energy, ECAL=cells)
    _generate(trained, tmp_path / "above.h5", like=low)
    np.testing.assert_array_equal(open_showers(tmp_path / "above.h5").energy_gev, np.delete(energy, 4))
    with pytest.raises(
        InputError, match=r"--cut-gev is 0\.3, the model was trained on showers above 0 GeV; leave it out"
    ):
        _generate(trained, tmp_path / "g.h5", "--cut-gev", 0.3)
    with h5py.File(trained / "mc.h5") as mc:
        sums = np.sort(mc["ECAL"][()].sum(axis=(1, 2, 3), dtype=np.float64)) * SMALL_GEOMETRY.file_unit_gev
    other = tmp_path / "model"
    shutil.copytree(trained / "model", other)
    card = model_folder.read_card(other)
    model_folder.write_card(other, replace(card, dataset=card.dataset | {"cut_gev": float(sums[[59, 60]].mean())}))
    with pytest.raises(InputError, match=r"--cut-gev is 0, the model was trained on showers above \d"):
        _generate(tmp_path, tmp_path / "g.h5", "--cut-gev", 0, like=trained / "mc.h5")
    _generate(tmp_path, tmp_path / "g.h5", like=trained / "mc.h5")
    assert open_showers(tmp_path / "g.h5").events == 40
    with pytest.raises(InputError, match=r"g.h5: generated for showers above .* above 0; give --cut-gev"):
        validate([trained / "mc.h5"], [tmp_path / "g.h5"], tmp_path / "verdict")


def test_showers_of_one_energy_and_angle(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They have the layout and the unit of the model, and equal the showers for a file with the same labels."""
    arguments = ["generate", "--model", str(trained / "model"), "--energy", "150", "--theta", "90"]
    command.main([*arguments, "--showers", "7", "--outside", "skip", "--output", str(tmp_path / "g.hdf5")])
    assert "left out" not in capsys.readouterr().out
    made, theta = open_showers(tmp_path / "g.hdf5"), np.full(7, np.pi / 2, np.float32)
    assert made.geometry == model_folder.read_card(trained / "model").geometry
    assert (made.energy_gev == 150).all()
    np.testing.assert_array_equal(made.theta_rad, theta)
    with h5py.File(tmp_path / "labels.h5", "w") as file:
        file["energy"], file["theta"] = np.full(7, 150.0), theta
    _generate(trained, tmp_path / "same.h5", like=tmp_path / "labels.h5")
    np.testing.assert_array_equal(open_showers(tmp_path / "same.h5").read().cells, made.read().cells)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--energy", "150", "--theta", "90"], "go with --showers N"),
        (["--energy", "150", "--theta", "90", "--showers", "0"], "--showers is 0"),
        (
            ["--energy", "150", "--showers", "9"],
            r"--theta is missing, and the training showers differ in it: 6\d\S*, 1\S*; give --theta",
        ),
        (["--energy", "150", "--theta", "90", "--phi", "3", "--showers", "9"], "--phi is for models with that label"),
        ([], "expected either --like, or --energy with --showers"),
        (["--like", "{mc}", "--showers", "9"], "expected either --like"),
        (["--energy", "150", "--theta", "90", "--showers", "9", "--split", "test"], "with --showers N, and without"),
        (["--energy", "150", "--showers", "9", "--cut-gev", "7"], "--cut-gev goes with --like; leave it out"),
        (["--energy", "150", "--showers", "9", "--geometry", "cell_mm=3"], "--geometry goes with --like"),
        (["--like", "{mc}", "--seed", "-1"], "--seed is -1"),
        (["--like", "{labels}", "--split", "test"], "labels.h5: holds labels and no cells, .* leave out --split"),
        (["--like", "{labels}", "{mc}"], "labels.h5: found datasets .* expected"),
        (["--like", "{zeros}"], "zeros.h5: no shower holds energy; give a file of labels without cells, or --energy"),
        (["--like", "{fine}"], r"cell_mm is 1\.0, the model was trained on 15\.3"),
        (["--like", "{mc}", "--batch=-1"], "--batch is -1"),
        (["--like", "{mc}", "--per-event=0"], "--per-event is 0"),
        (["--like", "{mc}", "--strategy=multi-worker"], "--share I/N"),
        (["--like", "{mc}", "--share=2/2"], "--share is '2/2', expected I/N"),
        (["--like", "{mc}", "--share=-1/2"], "--share is '-1/2', expected I/N"),
        (["--like", "{mc}", "--output", "{folder}/g.txt"], r"ends in \.h5"),
        (["--like", "{mc}", "--output", "{mc}"], "showers that this program did not generate"),
        (["--like", "{mc}", "--output", "{folder}/folder.h5"], r"folder\.h5: exists, and is not a file of showers"),
        (
            ["--like", "{mc}", "--output", "{folder}/notes.h5"],
            r"notes\.h5: exists, and is not a file of showers; give another --output, or remove it",
        ),
    ],
)
def test_what_cannot_be_asked_for(trained: Path, tmp_path: Path, arguments: list[str], told: str) -> None:
    showers = make_showers(events=3)
    files = {"mc": trained / "mc.h5", "labels": tmp_path / "labels.h5", "folder": tmp_path}
    files["zeros"] = write_file(tmp_path / "zeros.h5", showers, ECAL=0 * showers.cells)
    files["fine"] = make_file(tmp_path / "fine.h5", events=5, geometry=replace(SMALL_GEOMETRY, cell_mm=1))
    (tmp_path / "folder.h5").mkdir()
    (tmp_path / "notes.h5").write_text("of somebody")
    with h5py.File(files["labels"], "w") as file:
        file["energy"], file["theta"] = showers.energy_gev, showers.theta_rad
    with pytest.raises(InputError, match=told):
        command.main([
            "generate", "--model", str(trained / "model"), "--output", str(tmp_path / "g.h5"),
            *(each.format(**files) for each in arguments),
        ])  # fmt: skip
    assert (tmp_path / "notes.h5").read_text() == "of somebody"
    assert open_showers(trained / "mc.h5").events == 100


def test_a_file_that_states_no_geometry_has_that_of_the_model(
    trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    showers = make_showers(events=5)
    _generate(trained, tmp_path / "g.h5", like=write_file(tmp_path / "bare.h5", showers, geometry=None))
    assert open_showers(tmp_path / "g.h5").geometry == SMALL_GEOMETRY
    assert "bare.h5 does not state cell_mm, layer_pitch_mm, x0_per_layer, file_unit_gev: the model's is" in caplog.text
    narrow = replace(showers, cells=showers.cells[:, 1:])
    with pytest.raises(InputError, match=r"narrow.h5: shape is .* give the --geometry of this one"):
        _generate(trained, tmp_path / "h.h5", like=write_file(tmp_path / "narrow.h5", narrow, geometry=None))


def test_a_full_disk(trained: Path, tmp_path: Path, small_disk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for no part, or for two of four: finished work is kept."""
    monkeypatch.setattr(part_files, "_PART_SHOWERS", 30)
    _generate(trained, tmp_path / "g.h5", "--batch", 16, "--share", "0/1")
    size = max(path.stat().st_size for path in (tmp_path / ".g.h5.parts").iterdir())
    for kilobytes, parts in ((8, 0), (2 * (size // 1024) + 20, 2)):
        disk = small_disk(kilobytes)
        assert "the disk is full" in refused(trained, disk / "g.h5", "--batch", 16, command=_generate)
        assert [path.name for path in disk.iterdir()] == [".g.h5.parts"]
        assert [open_showers(part).events for part in disk.glob("*/*")] == [30] * parts


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_products_are_rounded_where_the_model_was_trained_so(trained: Path, tmp_path: Path, precision: str) -> None:
    """By default TensorFlow lets GPUs round, in every process. Training and exports build a model in the same way."""
    shutil.copytree(trained / "model", tmp_path / "model")
    card = model_folder.read_card(tmp_path / "model")
    model_folder.write_card(tmp_path / "model", replace(card, config=replace(card.config, precision=precision)))
    for before in (True, False):
        tf.config.experimental.enable_tensor_float_32_execution(before)
        Generator(tmp_path / "model")
        assert tf.config.experimental.tensor_float_32_execution_enabled() == (precision == "tf32")


def test_the_time_of_a_batch_is_the_median_of_those_after_the_first(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The labels of the input are repeated. The test sets the clock."""
    like = write_file(tmp_path / "two.h5", make_showers(events=100)[:2])  # of the training
    _generate(trained, tmp_path / "g.h5", like=like)
    asked: list[tuple[list[float], int]] = []

    def showers(_: Generator, labels: dict[str, Any], *, seed: int) -> list[None]:
        asked.append((labels["energy_gev"].tolist(), seed))
        return [None]

    clock = iter(np.cumsum([0, 9, 0, 0.5, 0, 9, 0, 1, 0, 6, 0, 2]).tolist())
    monkeypatch.setattr(Generator, "showers", showers)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=clock.__next__))
    monkeypatch.setattr(timing, "_BATCHES", {1: 1, 3: 3})
    for _ in range(2):
        _generate(trained, tmp_path / "g.h5", "--timing", tmp_path / "timing.json", like=like)
    assert "times stand" in capsys.readouterr().out
    energy = open_showers(like).energy_gev.tolist()
    assert asked == [(energy[:1], seed) for seed in range(2)] + [([*energy, energy[0]], seed) for seed in range(4)]
    found = json.loads((tmp_path / "timing.json").read_text())
    assert [(each["batch"], each["ms_per_shower"]) for each in found["times"]] == [(1, 500), (3, 2000 / 3)]
    assert (found["accelerator"], found["cores"] > 0) == (False, True)
