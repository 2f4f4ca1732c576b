"""GPUs and TPUs as Kubernetes knows them: a resource to ask for, labels of the nodes that have it, their taint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from calopipe.errors import InputError

# Topologies whose chips all belong to one machine, by GKE's name of the accelerator. Larger slices consist of several
# machines, each of which would run a pod. Some of GKE's machines hold only a part of 2x4; the pod asks for all eight
# chips, so it runs on one that has them.
SINGLE_HOST = {
    "tpu-v4-podslice": ("2x2x1",),
    "tpu-v5-lite-podslice": ("1x1", "2x2", "2x4"),
    "tpu-v5p-slice": ("2x2x1",),
    "tpu-v6e-slice": ("1x1", "2x2", "2x4"),
}


@dataclass(frozen=True)
class Accelerator:
    """`count` of `resource`, on nodes with the labels `selectors`.

    The resource's name is also the key of the taint with which GKE and NVIDIA's operator keep other pods off the nodes.
    """

    resource: str
    count: int
    selectors: Mapping[str, str] = field(default_factory=dict)


def nvidia(count: int, kind: str) -> Accelerator:
    """GPUs of one machine, of GKE's `kind` unless that is empty."""
    return Accelerator("nvidia.com/gpu", count, {"cloud.google.com/gke-accelerator": kind} if kind else {})


def tpu(slice_: str) -> Accelerator:
    """The chips of "TYPE:TOPOLOGY", all of one machine."""
    kind, _, topology = slice_.partition(":")
    if topology not in SINGLE_HOST.get(kind, ()):
        known = ", ".join(f"{name}:{each}" for name, topologies in SINGLE_HOST.items() for each in topologies)
        raise InputError(
            f"--tpu {slice_!r}: expected the TYPE:TOPOLOGY of one machine, of {known}; training does not spread over "
            "the machines of a larger slice"
        )
    selectors = {
        "cloud.google.com/gke-tpu-accelerator": kind,
        "cloud.google.com/gke-tpu-topology": topology,
    }
    return Accelerator("google.com/tpu", math.prod(map(int, topology.split("x"))), selectors)
