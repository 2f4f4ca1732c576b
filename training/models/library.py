"""The C++ library of `geant4/`. It draws showers of models that have a file of arrays, faster than TensorFlow does."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.labels import PARTICLE, PHI
from calopipe.showers.cells import FloatArray

_ROOM = 1000  # bytes for the message of an error


class Library:
    """A trained model in the shared library `path` (`libcalopipe_batches`); `content` is that of its file of arrays.

    InputError: no such library, or not a model that it knows.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        try:
            self._functions = ctypes.CDLL(str(path.resolve()))
            load, self._draw = self._functions.calopipe_load, self._functions.calopipe_draw
            self._free = self._functions.calopipe_free
        except (OSError, AttributeError) as error:
            raise InputError(
                f"--library {path}: not the shared library of geant4/ ({' '.join(str(error).split())}); build it by "
                "cmake -S geant4 -B build/geant4 && cmake --build build/geant4, and give libcalopipe_batches"
            ) from None
        self._free.argtypes, self._free.restype = [ctypes.c_void_p], None
        self._model, shape = ctypes.c_void_p(), (ctypes.c_int64 * 3)()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.safetensors"
            file.write_bytes(content)
            self._call(load, str(file).encode(), ctypes.byref(self._model), shape)
        self.shape = tuple(shape)

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._free(self._model)

    def cells(self, labels: Mapping[str, npt.NDArray[Any]], noise: FloatArray) -> FloatArray:
        """Cells (N, x, y, layer) in units of 0.02 GeV, from labels by name, (N,) each, and `noise` (N, noise_numbers).

        Threads may call this at once. InputError for labels that the model was not trained for.
        """
        zeros = np.zeros(len(noise))
        columns = np.stack([labels["energy_gev"], labels["theta_rad"], labels.get(PHI, zeros)], 1).astype(np.float64)
        pdg = np.ascontiguousarray(labels.get(PARTICLE, zeros), np.int32)
        noise = np.ascontiguousarray(noise, np.float32)
        cells = np.zeros((len(noise), *self.shape), np.float32)
        addresses = (ctypes.c_void_p(array.ctypes.data) for array in (columns, pdg, noise, cells))
        self._call(self._draw, self._model, ctypes.c_size_t(len(noise)), *addresses)
        return cells

    def _call(self, function: Any, *arguments: Any) -> None:
        error = ctypes.create_string_buffer(_ROOM)
        if function(*arguments, error, ctypes.c_size_t(_ROOM)):
            raise InputError(error.value.decode(errors="replace"))
