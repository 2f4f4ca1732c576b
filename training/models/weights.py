"""The weights of a model's networks, one file for each, in the model's folder."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.errors import InputError


def save_weights(folder: Path, networks: Mapping[str, Any]) -> dict[str, str]:
    """Write the weights of each Keras network into `folder`; the files' SHA-256 by name."""
    written = {}
    for name, network in networks.items():
        file = f"{name}.weights.h5"
        with storage.replacing(folder / file) as temporary:
            # Keras insists on the ending of the name
            whole = temporary.with_name(temporary.name + ".weights.h5")
            try:
                network.save_weights(whole)
                whole.replace(temporary)
            finally:
                whole.unlink(missing_ok=True)
        written[file] = storage.sha256_of_file(folder / file)
    return written


def load_weights(folder: Path, networks: Mapping[str, Any]) -> None:
    """Read what `save_weights` wrote. InputError: a file is missing, or does not fit its network."""
    for name, network in networks.items():
        path = folder / f"{name}.weights.h5"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # Keras warns of weights that the file does not have
                network.load_weights(path)
        except FileNotFoundError:
            raise InputError(
                f"{path}: no such file; the folder is not whole, or of an earlier version of calopipe: train it again"
            ) from None
        except (UserWarning, ValueError):
            raise InputError(
                f"{path}: not the weights of the network {name} that is asked for; give the settings that the model "
                "was trained with, and use the version of calopipe that trained it"
            ) from None
