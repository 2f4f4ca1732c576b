"""Showers of a model in Geant4's event loop: built with CMake, run from macros, compared with calopipe's own geometry.

They need Geant4: an installed one (`geant4-config` on the path), or the wheel geant4-pybind and Geant4's sources, named
by GEANT4_WHEEL and GEANT4_SOURCE (tests/geant4/Geant4Config.cmake).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
from servers import said
from showers import CYLINDER, make_file

from calopipe.showers.cells import Geometry
from calopipe.showers.positions import positions

ROOT = Path(__file__).parent.parent
CALORIMETER = Geometry((51, 51, 25), cell_mm=5.1, layer_pitch_mm=4.0, x0_per_layer=1.004, file_unit_gev=0.02)
WHEEL, SOURCE = os.environ.get("GEANT4_WHEEL"), os.environ.get("GEANT4_SOURCE")
_DATA = (
    "LEDATA", "LEVELGAMMADATA", "NEUTRONHPDATA", "RADIOACTIVEDATA", "PARTICLEXSDATA", "PIIDATA", "REALSURFACEDATA",
    "SAIDXSDATA", "ABLADATA", "INCLDATA", "ENSDFSTATEDATA", "CHANNELINGDATA", "TENDLDATA",
)  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("cmake") and (shutil.which("geant4-config") or (WHEEL and SOURCE))),
        reason="needs CMake, and Geant4 or GEANT4_WHEEL and GEANT4_SOURCE",
    ),
]


@dataclass(frozen=True)
class Application:
    program: Path
    folder: Path
    environment: dict[str, str]

    def run(self, macro: str, *options: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "test.mac").write_text(macro)
        command = [self.program, "test.mac", *options]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=600
        )

    def said(self, macro: str, *options: str) -> list[str]:
        """What calopipe printed."""
        done = self.run(macro, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return re.findall(r"calopipe: (.*)", done.stdout)


@pytest.fixture(scope="session")
def application(tmp_path_factory: pytest.TempPathFactory) -> Application:
    """The example application, with a hardly trained `model.safetensors` for the sample's cells beside it."""
    folder = tmp_path_factory.mktemp("geant4")
    configure = ["cmake", "-S", ROOT / "geant4", "-B", folder / "build"]
    environment = dict(os.environ)
    if WHEEL and SOURCE:
        configure += [f"-DGeant4_DIR={ROOT / 'tests/geant4'}", f"-DGEANT4_WHEEL={WHEEL}", f"-DGEANT4_SOURCE={SOURCE}",
                      f"-DPython3_ROOT_DIR={sys.base_prefix}"]  # fmt: skip
        (folder / "ENSDFSTATE.dat").touch()  # the physics needs no data, but Geant4 looks for this file
        environment |= {f"G4{name}": str(folder) for name in _DATA}
    for command in (configure, ["cmake", "--build", folder / "build", "--parallel", "2"]):
        said(*command)
    program = folder / "build/example/calopipe-example"
    assert program.exists(), "CMake left the example out: it needs HDF5's C library and headers (libhdf5-dev)"
    make_file(folder / "mc.h5", events=100, geometry=CALORIMETER)
    for command in (
        ["preprocessing", "--input", folder / "mc.h5", "--output", folder / "ds"],
        ["training", "fit", "--dataset", folder / "ds", "--output", folder / "model", "--steps", "4"],
        ["training", "export", "--model", folder / "model", "--output", folder / "model.safetensors"],
    ):
        said(sys.executable, "-m", *command, cwd=ROOT)
    return Application(program, folder, environment)


FAST = "/run/initialize\n/calopipe/model model.safetensors\n/calopipe/particles e-\n/random/setSeeds 7 1\n"


@pytest.fixture(scope="session")
def fast(application: Application) -> dict[str, np.ndarray]:
    """Twelve showers of the model, made by one thread."""
    told = application.said(f"{FAST}/run/beamOn 12", "--threads", "1", "--output", "fast.h5")
    assert told[-1].startswith("12 showers")
    with h5py.File(application.folder / "fast.h5") as file:
        return {name: file[name][:] for name in file}


def test_hits_lie_in_the_middle_of_their_cells(fast: dict[str, np.ndarray]) -> None:
    """In the silicon, the last half of a millimetre of each layer, of calopipe's cells; and when a particle of the
    speed of light, which the gun emits 1 mm before the front, is as deep."""
    found = positions(CALORIMETER)
    z = found.z_mm + 1.75  # the middle of the silicon, from the front
    weight = fast["ECAL"].astype(float)
    total = weight.sum((1, 2, 3))
    places = found.x_mm[0].reshape(51, 51), found.y_mm[0].reshape(51, 51)
    x, y = (np.einsum("nxyl,xy->n", weight, place) / total for place in places)
    depth = np.einsum("nxyl,l->n", weight, z) / total
    np.testing.assert_allclose(fast["middle_mm"], np.stack([x, y, depth - 50], 1), atol=1e-4)
    np.testing.assert_allclose(fast["time_ns"], (depth + 1) / np.sin(fast["theta"]) / 299.792458, rtol=1e-5)


def test_hits_in_rings_lie_in_the_cells_of_their_numbers(application: Application) -> None:
    """The detector counts angles from 0, calopipe from -180 degrees. A cell holds the energy deposited there."""
    for command in (
        ["preprocessing", "--input", CYLINDER, "--output", "rings-ds"],
        ["training", "fit", "--dataset", "rings-ds", "--output", "rings", "--steps", "4"],
        ["training", "export", "--model", "rings", "--output", "rings.safetensors"],
    ):
        said(sys.executable, "-m", *command, cwd=application.folder, env=os.environ | {"PYTHONPATH": str(ROOT)})
    told = application.said(
        "/run/initialize\n/calopipe/model rings.safetensors\n/calopipe/particles e-\n"
        "/calopipe/samplingFraction 0.0313\n/random/setSeeds 7 1\n/beam/energy 20 90 GeV\n/run/beamOn 12",
        "--cylinder", "--threads", "1", "--output", "rings.h5",
    )  # fmt: skip
    assert told[-1].startswith("12 showers")
    with h5py.File(application.folder / "rings.h5") as file:
        written = {name: file[name][:] for name in file}
    weight = written["showers"].reshape(12, 45, 16, 9).astype(float)
    angle = 2 * np.pi * (np.arange(16) + 0.5) / 16
    radius = 4.65 * (np.arange(9) + 0.5)
    total = weight.sum((1, 2, 3))
    middle = [np.einsum("nlar,a,r->n", weight, turn(angle), radius) / total for turn in (np.cos, np.sin)]
    np.testing.assert_allclose(written["middle_mm"][:, :2], np.stack(middle, 1), atol=0.02)  # the ends of its beam


@pytest.mark.parametrize("threads", [2, 4])
def test_seeds_fix_the_showers_for_any_number_of_threads(
    threads: int, application: Application, fast: dict[str, np.ndarray]
) -> None:
    application.said(f"{FAST}/run/beamOn 12", "--threads", str(threads), "--output", "threads.h5")
    with h5py.File(application.folder / "threads.h5") as file:
        for name, values in fast.items():
            np.testing.assert_array_equal(file[name][:], values, err_msg=name)


_OUTSIDE = {
    "/gun/particle gamma": "of other kinds",
    "/calopipe/minimumEnergy 160 GeV": "below the minimum energy",
    "/gun/energy 5 GeV": "of energies outside the model's range",
    "/gun/position 0 0 60 mm\n/gun/direction 0 0 -1": "not through the front",
    "/gun/position 0 0 0 mm": "not through the front",
    "/gun/direction 0 2 1": "of angles outside the model's range",
    "/gun/direction .1 0 1": "of angles outside the model's range",
    "/gun/position 122 0 -60 mm": "too near to an edge",
}


@pytest.mark.parametrize("command", _OUTSIDE)
def test_what_the_model_does_not_know_is_left_to_geant4(command: str, application: Application) -> None:
    macro = f"{FAST}/beam/gun true\n/gun/particle e-\n/gun/energy 150 GeV\n/gun/position 0 0 -60 mm\n{command}\n"
    if "position 0 0 60" not in command and "direction" not in command:
        macro += "/gun/direction 0 0 1\n"
    (line,) = [told for told in application.said(f"{macro}/run/beamOn 1") if "showers" in told]
    assert line.startswith("0 showers")
    assert _OUTSIDE[command] in line


def test_a_switched_off_model_changes_nothing(application: Application) -> None:
    shots = "/random/setSeeds 3 1\n/beam/energy 1 2 GeV\n/run/beamOn 3"
    told = application.said(f"{FAST}/calopipe/active false\n{shots}", "--output", "off.h5")
    assert not [line for line in told if "showers" in line]
    application.said(f"/run/initialize\n{shots}", "--output", "without.h5")
    with h5py.File(application.folder / "off.h5") as off, h5py.File(application.folder / "without.h5") as without:
        np.testing.assert_array_equal(off["ECAL"], without["ECAL"])


@pytest.mark.parametrize("kind", ["missing", "foreign", "halved"])
def test_a_bad_model_ends_the_macro_in_one_line(kind: str, application: Application) -> None:
    path, whole = application.folder / "bad.safetensors", (application.folder / "model.safetensors").read_bytes()
    path.unlink(missing_ok=True)
    if kind != "missing":
        path.write_bytes(b"a shopping list" if kind == "foreign" else whole[: len(whole) // 2])
    done = application.run("/run/initialize\n/calopipe/model bad.safetensors\n/run/beamOn 1", "--output", "none.h5")
    assert done.returncode == 1
    assert "bad.safetensors: " in done.stdout + done.stderr
    assert "1 events" not in done.stdout
    assert not (application.folder / "none.h5").exists()


def test_a_particle_must_be_named_where_the_training_did_not(application: Application) -> None:
    done = application.run("/run/initialize\n/calopipe/model model.safetensors\n/run/beamOn 1")
    assert done.returncode != 0
    assert "/calopipe/particles" in done.stdout + done.stderr


def test_validation_reads_the_file_as_it_is(application: Application, fast: dict[str, np.ndarray]) -> None:
    assert len(fast["ECAL"]) == 12
    reference, candidate, output = (application.folder / name for name in ("mc.h5", "fast.h5", "verdict"))
    command = [sys.executable, "-m", "validation", "--reference", reference, "--candidate", candidate]
    said(*command, "--output", output, cwd=ROOT)
    assert (output / "verdict.json").exists()
