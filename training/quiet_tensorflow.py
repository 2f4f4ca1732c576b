"""Keeps TensorFlow from printing its own messages."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

# TensorFlow 2.20 prints a part of its messages through absl, whose level no environment variable sets
# (github.com/tensorflow/tensorflow/issues/100442). This is the C++ function that sets the level.
_SET_LEVEL = "_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE"


def quiet_tensorflow() -> None:
    """Let TensorFlow print only errors that end the process, or what TF_CPP_MIN_LOG_LEVEL (0 to 3) allows.

    Other errors are raised as exceptions too. Call this before TensorFlow is imported: it prints during its import.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") not in set("0123"):
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    level = int(os.environ["TF_CPP_MIN_LOG_LEVEL"])
    tensorflow = find_spec("tensorflow")
    for place in (tensorflow and tensorflow.submodule_search_locations) or ():
        with suppress(OSError, AttributeError):  # another version works too, but prints its messages
            ctypes.CDLL(str(Path(place) / "libtensorflow_framework.so.2"))[_SET_LEVEL](level)
