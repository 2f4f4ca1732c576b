"""Showers of Geant4 in a calorimeter of the bench.

    python benchmarks/calorimeters/simulate.py coarse OUT.h5 --showers 1000 --seed 5001

The program needs `geant4-pybind` 0.1.3, h5py and NumPy, in a separate environment. It needs no data files of Geant4:
the physics is the electromagnetic models that use none (Compton, Bethe-Heitler with LPM, photoelectric effect, Urban
multiple scattering, ionisation, relativistic bremsstrahlung, annihilation). `bench.toml` describes the beams, and
NAME.toml the layers; the last material of a layer is read out.

The wheel exports Geant4's C++ symbols, but no classes for these processes. So this program makes and registers them by
the symbols' names. On import the wheel asks for data sets, unless environment variables name (even empty) folders.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import h5py
import numpy as np

_DATA = (
    "LEDATA", "LEVELGAMMADATA", "NEUTRONHPDATA", "RADIOACTIVEDATA", "PARTICLEXSDATA", "PIIDATA", "REALSURFACEDATA",
    "SAIDXSDATA", "ABLADATA", "INCLDATA", "ENSDFSTATEDATA", "CHANNELINGDATA", "TENDLDATA",
)  # fmt: skip
_empty = tempfile.mkdtemp(prefix="no-data-")
for _name in _DATA:
    os.environ[f"G4{_name}"] = _empty
os.environ["GEANT4_DATA_DIR"] = _empty
(Path(_empty) / "ENSDFSTATE.dat").touch()

import geant4_pybind as g4  # noqa: E402  reads the variables

_LIBRARY = ctypes.CDLL(g4.__file__, mode=ctypes.RTLD_GLOBAL)
# Materials by symbol; the name of any other is G4_ and its symbol.
_MATERIALS = {
    "polystyrene": "G4_POLYSTYRENE", "LAr": "G4_lAr", "LKr": "G4_lKr", "LXe": "G4_lXe", "PbWO4": "G4_PbWO4",
    "CsI": "G4_CESIUM_IODIDE", "NaI": "G4_SODIUM_IODIDE",
}  # fmt: skip
_kept: list[Any] = []  # objects that Geant4 holds only by address


class _Text(ctypes.Structure):
    """A short std::string as libstdc++ lays it out."""

    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t), ("inside", ctypes.c_char * 16))

    def __init__(self, text: str) -> None:
        super().__init__(0, len(text), text.encode())
        self.start = ctypes.addressof(self) + 16


def _text(text: str) -> ctypes.c_void_p:
    _kept.append(_Text(text))
    return ctypes.c_void_p(ctypes.addressof(_kept[-1]))


def _call(symbol: str, *arguments: Any) -> ctypes.c_void_p:
    function = getattr(_LIBRARY, symbol)
    function.restype = ctypes.c_void_p
    return ctypes.c_void_p(function(*arguments))


def _new(symbol: str, *arguments: Any) -> ctypes.c_void_p:
    """An object that the constructor `symbol` makes, in more memory than any of these classes needs."""
    room = ctypes.create_string_buffer(65536)
    _kept.append(room)
    _call(symbol, room, *arguments)
    return ctypes.c_void_p(ctypes.addressof(room))


class Electromagnetic(g4.G4VPhysicsConstructor):
    """Electrons, positrons and photons, by models that need no data."""

    def __init__(self) -> None:
        super().__init__("electromagnetic")

    def ConstructParticle(self) -> None:
        for symbol in ("_ZN7G4Gamma5GammaEv", "_ZN10G4Electron8ElectronEv", "_ZN10G4Positron8PositronEv"):
            _call(symbol)

    def ConstructProcess(self) -> None:
        helper = _call("_ZN19G4PhysicsListHelper20GetPhysicsListHelperEv")
        gamma = _call("_ZN7G4Gamma5GammaEv")
        electron, positron = _call("_ZN10G4Electron8ElectronEv"), _call("_ZN10G4Positron8PositronEv")

        def register(process: Any, particle: Any) -> None:
            symbol = "_ZN19G4PhysicsListHelper15RegisterProcessEP10G4VProcessP20G4ParticleDefinition"
            _call(symbol, helper, process, particle)

        electromagnetic = ctypes.c_int(2)
        photoelectric = _new("_ZN21G4PhotoElectricEffectC1ERK8G4String13G4ProcessType", _text("phot"), electromagnetic)
        model = _new("_ZN19G4PEEffectFluoModelC1ERK8G4String", _text("PhotoElectric"))
        _call("_ZN12G4VEmProcess10SetEmModelEP10G4VEmModeli", photoelectric, model, ctypes.c_int(0))
        register(photoelectric, gamma)
        for symbol, name in (("19G4ComptonScattering", "compt"), ("17G4GammaConversion", "conv")):
            process = _new(f"_ZN{symbol}C1ERK8G4String13G4ProcessType", _text(name), electromagnetic)
            register(process, gamma)
        for particle in (electron, positron):
            scattering = _new("_ZN21G4eMultipleScatteringC1ERK8G4String", _text("msc"))
            urban = _new("_ZN15G4UrbanMscModelC1ERK8G4String", _text("UrbanMsc"))
            _call("_ZN21G4VMultipleScattering10SetEmModelEP11G4VMscModeli", scattering, urban, ctypes.c_int(0))
            register(scattering, particle)
            register(_new("_ZN13G4eIonisationC1ERK8G4String", _text("eIoni")), particle)
            radiation = _new("_ZN17G4eBremsstrahlungC1ERK8G4String", _text("eBrem"))
            for number in (0, 1):
                relativistic = _new(
                    "_ZN25G4eBremsstrahlungRelModelC1EPK20G4ParticleDefinitionRK8G4String", None, _text("eBremLPM")
                )
                symbol = "_ZN20G4VEnergyLossProcess10SetEmModelEP10G4VEmModeli"
                _call(symbol, radiation, relativistic, ctypes.c_int(number))
            register(radiation, particle)
        register(_new("_ZN19G4eplusAnnihilationC1ERK8G4String", _text("annihil")), positron)


class PhysicsList(g4.G4VModularPhysicsList):
    def __init__(self) -> None:
        super().__init__()
        self.electromagnetic = Electromagnetic()
        self.RegisterPhysics(self.electromagnetic)


class Calorimeter(g4.G4VUserDetectorConstruction):
    """The sections of a file of layers, one behind the other; the last material of a layer is divided into cells."""

    def __init__(self, sections: list[dict[str, Any]]) -> None:
        super().__init__()
        self.sections = sections
        self._alive: list[Any] = []
        self.depth_mm = sum(each["count"] * sum(each["materials_mm"].values()) for each in sections)
        sides = [np.multiply(each["cells"], each["cell_mm"]) for each in sections]
        self._side_mm = np.max(sides, axis=0) * 1.0

    def Construct(self) -> Any:
        material = g4.G4NistManager.Instance().FindOrBuildMaterial
        half = 2 * float(self._side_mm.max())
        world = g4.G4LogicalVolume(g4.G4Box("world", half, half, 2 * self.depth_mm), material("G4_Galactic"), "world")
        placed = g4.G4PVPlacement(None, g4.G4ThreeVector(), world, "world", None, False, 0, False)
        self._alive += [world, placed]
        front = -self.depth_mm / 2
        for number, section in enumerate(self.sections):
            front = self._section(number, section, world, front, material)
        return placed

    def _section(self, number: int, section: dict[str, Any], world: Any, front: float, material: Any) -> float:
        (n, m), (wide, high) = section["cells"], np.broadcast_to(section["cell_mm"], 2).tolist()
        thick = section["materials_mm"]
        pitch, (*_, active) = sum(thick.values()), thick
        named = {name: material(_MATERIALS.get(name, f"G4_{name}")) for name in thick}
        if unknown := [name for name, found in named.items() if found is None]:
            raise SystemExit(f"Geant4 knows no {', '.join(unknown)}")
        first = next(iter(thick))

        def volume(name: str, x: float, y: float, z: float, of: str) -> Any:
            solid = g4.G4Box(f"{name}{number}", x / 2, y / 2, z / 2)
            found = g4.G4LogicalVolume(solid, named[of], f"{name}{number}")
            self._alive += [solid, found]
            return found

        layer = volume("layer", n * wide, m * high, pitch, first)
        at = -pitch / 2
        for name, mm in thick.items():
            plate = volume(name, n * wide, m * high, mm, name)
            place = g4.G4ThreeVector(0, 0, at + mm / 2)
            self._alive.append(g4.G4PVPlacement(None, place, plate, name, layer, False, 0, False))
            at += mm
        row = volume("row", wide, m * high, thick[active], active)
        cell = volume("cell", wide, high, thick[active], active)
        self._alive += [
            g4.G4PVReplica(f"row{number}", row, plate, g4.kXAxis, n, wide),
            g4.G4PVReplica(f"cell{number}", cell, row, g4.kYAxis, m, high),
        ]
        for copy in range(section["count"]):
            place = g4.G4ThreeVector(0, 0, front + pitch * (copy + 0.5))
            self._alive.append(g4.G4PVPlacement(None, place, layer, f"layer{number}", world, False, copy, False))
        return front + section["count"] * pitch

    def ConstructSDandField(self) -> None:
        for number, section in enumerate(self.sections):
            detector = g4.G4MultiFunctionalDetector(f"section{number}")
            g4.G4SDManager.GetSDMpointer().AddNewDetector(detector)
            scorer = g4.G4PSEnergyDeposit3D("energy", section["count"], *section["cells"], 3, 1, 0)
            detector.RegisterPrimitive(scorer)
            self.SetSensitiveDetector(f"cell{number}", detector)
            self._alive += [detector, scorer]


class Beam(g4.G4VUserPrimaryGeneratorAction):
    """One particle for each event, with labels that are drawn from the beam's ranges."""

    def __init__(self, beam: dict[str, Any], depth_mm: float, seed: int) -> None:
        super().__init__()
        self._beam, self._front, self._rng = beam, -depth_mm / 2, np.random.default_rng(seed)
        self._gun = g4.G4ParticleGun(1)
        self.labels: list[tuple[float, float, float, int]] = []

    def GeneratePrimaries(self, event: Any) -> None:
        energy = math.exp(self._rng.uniform(*np.log(self._beam["energy_gev"])))
        theta = math.radians(self._rng.uniform(*self._beam["theta_deg"]))
        phi = math.radians(self._rng.uniform(*self._beam.get("phi_deg", (0, 0))))
        code = int(self._rng.choice(self._beam["particles"]))
        self.labels.append((energy, theta, phi, code))
        direction = np.array([math.sin(theta) * math.sin(phi), math.cos(theta), math.sin(theta) * math.cos(phi)])
        point = np.append(self._rng.uniform(-0.5, 0.5, 2) * self._beam["spread_mm"], self._beam["depth_mm"])
        start = point - direction * (self._beam["depth_mm"] + 1) / direction[2]
        start[2] += self._front
        gun = self._gun
        gun.SetParticleDefinition(g4.G4ParticleTable.GetParticleTable().FindParticle(code))
        gun.SetParticleEnergy(energy * 1000)
        gun.SetParticleMomentumDirection(g4.G4ThreeVector(*direction.tolist()))
        gun.SetParticlePosition(g4.G4ThreeVector(*start.tolist()))
        gun.GeneratePrimaryVertex(event)


class Readout(g4.G4UserEventAction):
    """The cells of every event, (x, y, layer), in MeV."""

    def __init__(self, sections: list[dict[str, Any]]) -> None:
        super().__init__()
        self._sections = sections
        self.showers: list[Any] = []

    def EndOfEventAction(self, event: Any) -> None:
        most = np.max([each["cells"] for each in self._sections], axis=0)
        shower = np.zeros((*most, sum(each["count"] for each in self._sections)), np.float32)
        layer = 0
        for number, section in enumerate(self._sections):
            shape = (section["count"], *section["cells"])
            collection = g4.G4SDManager.GetSDMpointer().GetCollectionID(f"section{number}/energy")
            cells = np.zeros(math.prod(shape), np.float32)
            for place, energy in event.GetHCofThisEvent().GetHC(collection):
                cells[place] = energy
            n, m = section["cells"]
            shower[:n, :m, layer : layer + section["count"]] = cells.reshape(shape).transpose(1, 2, 0)
            layer += section["count"]
        self.showers.append(shower)


class Actions(g4.G4VUserActionInitialization):
    def __init__(self, beam: Beam, readout: Readout) -> None:
        super().__init__()
        self._beam, self._readout = beam, readout

    def Build(self) -> None:
        self.SetUserAction(self._beam)
        self.SetUserAction(self._readout)


def simulate(folder: Path, name: str, showers: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells (N, x, y, layer) in MeV and labels (N, 4): energy in GeV, theta and phi in rad, PDG code."""
    beam = tomllib.loads((folder / "bench.toml").read_text())[name]
    sections = tomllib.loads((folder / f"{name}.toml").read_text())["layers"]
    manager = g4.G4RunManagerFactory.CreateRunManager(g4.G4RunManagerType.Serial)
    calorimeter, physics = Calorimeter(sections), PhysicsList()
    manager.SetUserInitialization(calorimeter)
    manager.SetUserInitialization(physics)
    source, readout = Beam(beam, calorimeter.depth_mm, seed), Readout(sections)  # after the physics, or Geant4 aborts
    actions = Actions(source, readout)
    manager.SetUserInitialization(actions)
    _kept.extend([manager, physics, calorimeter, actions])
    manager.Initialize()
    g4.G4Random.setTheSeed(seed)
    manager.BeamOn(showers)
    return np.stack(readout.showers), np.array(source.labels[:showers])


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("name", help="of the calorimeter in bench.toml")
    command.add_argument("output", type=Path, metavar="OUT.h5")
    command.add_argument("--calorimeters", type=Path, default=Path(__file__).parent, metavar="DIR",
                         help="of bench.toml and NAME.toml (beside this program)")  # fmt: skip
    command.add_argument("--showers", type=int, default=1000)
    command.add_argument("--seed", type=int, required=True)
    options = command.parse_args()
    cells, labels = simulate(options.calorimeters, options.name, options.showers, options.seed)
    part = options.output.with_suffix(".part")
    with h5py.File(part, "w") as file:
        file.create_dataset(
            "ECAL", data=cells, chunks=(min(20, len(cells)), *cells.shape[1:]), compression="gzip", shuffle=True
        )
        file["energy"], file["theta"] = labels[:, 0].astype("f4"), labels[:, 1].astype("f4")
        if np.ptp(labels[:, 2]) > 0:
            file["phi"] = labels[:, 2].astype("f4")
        if len(set(labels[:, 3])) > 1:
            file["pdg"] = labels[:, 3].astype("i4")
        file.attrs.update(generator="Geant4 11.4.1, data-free EM models", seed=options.seed, calorimeter=options.name)
    part.rename(options.output)
    response = cells.sum((1, 2, 3)) / labels[:, 0] / 1000
    print(
        f"{options.output}: {len(cells)} showers, response {response.mean():.4f}, "
        f"cells {np.count_nonzero(cells) / len(cells):.0f}",
        flush=True,
    )
    os._exit(0)  # otherwise Geant4 ends after Python, and uses objects that are gone


if __name__ == "__main__":
    main()
