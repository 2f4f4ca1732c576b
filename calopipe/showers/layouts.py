"""How showers are stored in HDF5. A layout is recognised by its datasets; to read another layout, extend `LAYOUTS`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calopipe.events.tolerance import BadFileError
from calopipe.labels import DATASETS

if TYPE_CHECKING:
    import h5py

CELLS = "ECAL"  # (N, x, y, layer), in the file's unit
VOXELS = "showers"  # in CaloChallenge's layout: (N, voxels), in MeV
ENERGIES = "incident_energies"  # in CaloChallenge's layout: (N, 1), in MeV
GEOMETRY = "calopipe_geometry"  # attribute: the geometry as JSON, if its layers are listed
Datasets = Mapping[str, "h5py.Dataset"]
Labels = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Layout:
    """The datasets that a file of this layout must have or may have, and how its labels are read from them.

    `cells` is the dataset of the deposits: (N, x, y, layer), or (N, voxels). The function `labels` returns `energy` in
    GeV, `theta` in rad (pi/2 is normal incidence) and, if the file has it, the measured angle `mtheta` in rad, with one
    number for each shower. Each dataset that it is given has N entries of numbers. It raises BadFileError, without the
    file's name, for values that it refuses.
    """

    needs: frozenset[str]
    labels: Callable[[Datasets], Labels]
    may_hold: frozenset[str] = frozenset()
    cells: str = CELLS


def _labels_by_name(datasets: Datasets) -> Labels:
    labels = {name: datasets[name][()] for name in ("energy", "theta", "mtheta") if name in datasets}
    if "theta" not in labels:
        labels["theta"] = labels["mtheta"]
    return labels


def _labels_in_target(datasets: Datasets) -> Labels:
    target = datasets["target"][()]
    if target.ndim != 3 or target.shape[1:] != (1, 5):
        raise BadFileError(f"'target' has shape {target.shape}, expected (N, 1, 5)")
    return {"energy": target[:, 0, 1], "theta": np.full(len(target), np.pi / 2)}


def _labels_of_challenge(datasets: Datasets) -> Labels:
    """Labels of particles along the axis, with energies in MeV in the file."""
    energy = datasets[ENERGIES][()].astype(np.float64) * 1e-3
    return {"energy": energy, "theta": np.full(len(energy), np.pi / 2)}


LAYOUTS = (
    Layout(frozenset({CELLS, "energy", "theta"}), _labels_by_name, frozenset({"mtheta"})),
    Layout(frozenset({CELLS, "energy", "mtheta"}), _labels_by_name),
    Layout(frozenset({CELLS, "target"}), _labels_in_target),
    Layout(frozenset({VOXELS, ENERGIES}), _labels_of_challenge, cells=VOXELS),
)


def read_labels(datasets: Datasets) -> tuple[Labels, h5py.Dataset]:
    """The labels (N,) and the cells of the file that holds these datasets, once its header is checked.

    `phi` (rad) and `pdg` are read in any layout, if they are there. Labels are float32, except `pdg`, which is int32.
    BadFileError, which does not name the file: it is in no known layout, or was not completely written.
    """
    layout = next((layout for layout in LAYOUTS if layout.needs <= datasets.keys()), None)
    if layout is None:
        expected = " or ".join(" + ".join(sorted(layout.needs)) for layout in LAYOUTS)
        raise BadFileError(f"found datasets {sorted(datasets) or 'none'}, expected {expected}")
    cells = datasets[layout.cells]
    expected = "(N, voxels)" if layout.cells == VOXELS else "(N, x, y, layer)"
    if cells.ndim != expected.count(",") + 1 or cells.dtype.kind not in "fiu":
        raise BadFileError(f"{layout.cells} has shape {cells.shape} of {cells.dtype}, expected numbers {expected}")
    if len(cells) == 0:
        raise BadFileError("holds no showers; remove it from the input")
    _require_stored(cells)
    return _labels_of(layout, datasets, len(cells)), cells


def read_labels_alone(datasets: Datasets) -> Labels | None:
    """The labels of a file that has all labels of a layout, and no cells; None for any other file. BadFileError."""
    layout = next((layout for layout in LAYOUTS if layout.needs - {layout.cells} <= datasets.keys()), None)
    if layout is None or {layout.cells for layout in LAYOUTS} & datasets.keys():
        return None
    stored = datasets[min(layout.needs - {layout.cells})]
    return _labels_of(layout, datasets, stored.shape[0] if stored.ndim else 0)


def wrong_label(name: str, value: float, *, challenge: bool) -> str:
    """What is wrong with the `value` of the label `name` in a file, of CaloChallenge's layout or not."""
    of = f"{ENERGIES}, in GeV," if challenge and name == "energy" else name
    polar = "an angle between 0 and pi rad, where pi/2 is normal incidence"
    expected = {"energy": "a positive number of GeV", "phi": "an angle of -pi/2 to pi/2 rad"}.get(name, polar)
    degrees = "; is it in degrees?" if name != "energy" and abs(value) >= np.pi else ""
    return f"{of} is {value}, expected {expected}{degrees}"


def _labels_of(layout: Layout, datasets: Datasets, showers: int) -> Labels:
    more = set(DATASETS.values()) & datasets.keys()
    for name in sorted((layout.needs | layout.may_hold | more) & datasets.keys()):  # before they are read
        if (datasets[name].shape or ())[:1] != (showers,) or datasets[name].dtype.kind not in "fiu":
            raise _not_one_a_shower(name, datasets[name], f"{showers} entries of numbers")
    labels = {name: np.asarray(values) for name, values in layout.labels(datasets).items()}
    labels |= {name: datasets[name][()] for name in more}
    for name, values in labels.items():
        if values.size != showers or values.dtype.kind not in "fiu":
            raise _not_one_a_shower(name, values, f"({showers},) numbers")
    if "pdg" in labels:
        _require_kinds(labels["pdg"])
    return {
        name: values.reshape(showers).astype(np.int32 if name == "pdg" else np.float32)
        for name, values in labels.items()
    }


def _require_kinds(values: npt.NDArray[Any]) -> None:
    """Raise BadFileError unless all `values` are codes of particles."""
    whole = np.isfinite(values) & (np.rint(values) == values) & (values != 0) & (np.abs(values) < 2.0**31)
    if not whole.all():
        event = int(np.argmin(whole))
        code = values.reshape(-1)[event]
        raise BadFileError(f"'pdg' of event {event} is {code}, expected the PDG code of a particle, such as 11")


def _not_one_a_shower(name: str, values: Any, expected: str) -> BadFileError:
    return BadFileError(f"'{name}' has shape {values.shape} of {values.dtype}, expected {expected}, one a shower")


def _require_stored(cells: h5py.Dataset) -> None:
    """Raise BadFileError unless all cells that the dataset declares were written: missing ones would read as zeros."""
    if cells.is_virtual:
        sources = {source.file_name for source in cells.virtual_sources()} - {"."}
        places = (Path(), Path(cells.file.filename).parent)  # where HDF5 looks for other files
        if missing := [name for name in sorted(sources) if not any((place / name).is_file() for place in places)]:
            raise BadFileError(
                f"its showers are in {missing[0]}, which is not there; bring it, or give the file itself"
            )
        return
    if cells.chunks is None:
        unwritten, parts = int(cells.id.get_storage_size() == 0), 1
    else:
        parts = math.prod(-(-size // chunk) for size, chunk in zip(cells.shape, cells.chunks, strict=True))
        unwritten = parts - cells.id.get_num_chunks()
    if unwritten:
        raise BadFileError(
            f"declares {len(cells):,} showers, but {unwritten:,} of the {parts:,} pieces of {cells.name[1:]} were "
            "never written; copy or make it again"
        )
