"""What a cluster offers to the steps, as the user states it: image, volume, resources, accelerators, nodes."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from calopipe.errors import InputError
from calopipe.options import add_settings, check_settings, given_values, setting, settings_of
from components.image import IMAGE
from pipelines.cluster.resources import LAUNCHER, STEPS, Resources, resources_by_step

# Topologies whose chips all belong to one machine, by GKE's name of the accelerator. Larger slices consist of several
# machines, and each machine would run a pod. Some of GKE's machines hold only a part of 2x4. The pod asks for all eight
# chips, so it runs on a machine that has eight.
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
    selectors: Mapping[str, str]


def nvidia(count: int, kind: str) -> Accelerator:
    """`count` GPUs of one machine, of GKE's `kind` unless `kind` is empty."""
    return Accelerator("nvidia.com/gpu", count, {"cloud.google.com/gke-accelerator": kind} if kind else {})


def tpu(slice_: str) -> Accelerator:
    """The TPU chips of the slice "TYPE:TOPOLOGY", all of one machine."""
    kind, _, topology = slice_.partition(":")
    if topology not in SINGLE_HOST.get(kind, ()):
        offered = ", ".join(f"{name}:{topology}" for name, topologies in SINGLE_HOST.items() for topology in topologies)
        raise InputError(
            f"--tpu {slice_!r}: expected the TYPE:TOPOLOGY of one machine, of {offered}; training does not spread over "
            "the machines of a larger slice"
        )
    selectors = {
        "cloud.google.com/gke-tpu-accelerator": kind,
        "cloud.google.com/gke-tpu-topology": topology,
    }
    return Accelerator("google.com/tpu", math.prod(map(int, topology.split("x"))), selectors)


_CLAIM_OF_NODES = "calopipe-data:/data"  # as deploy/volume/ has it
# kfp names the pod's volume after the claim: so a claim can be mounted only if its name is also a valid label.
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?:(/\w[\w.-]*)+", re.ASCII)
_PLAIN = re.compile(r"\w+((://|[-._]+|[:/@])\w+)*/?", re.ASCII)


@dataclass(frozen=True)
class Platform:
    """A cluster as the steps see it; each field is an option of the command line.

    With several nodes, train starts a Kubeflow TrainJob. Resources and GPUs are then for each node, and the
    TrainingRuntime decides what the nodes mount and where they run.
    """

    image: str = setting(
        "", help="container image of the steps, NAME:TAG or, better, NAME@sha256:DIGEST (default: components/image.py)"
    )
    claim: str = setting("", metavar="NAME:PATH", help="volume claim that every step mounts at PATH")
    pipeline_root: str = setting(
        "",
        metavar="ADDRESS",
        help="where reports and metrics are kept, for example gs://BUCKET/runs (default: as the cluster is set up)",
    )
    resources: tuple[str, ...] = setting(
        (), metavar="STEP=CPU,MEMORY", help="what a step asks for and may use, for example train=8,32Gi"
    )
    hours: tuple[str, ...] = setting(
        (), metavar="STEP=HOURS", help="end an attempt at a step after this many hours (default for train: 72)"
    )
    gpus: int = setting(0, least=0, help="train on N NVIDIA GPUs, generate on one")
    gpu_type: str = setting("", metavar="TYPE", help="of GKE's GPUs, for example nvidia-l4")
    tpu: str = setting(
        "",
        metavar="TYPE:TOPOLOGY",
        help="train on a TPU slice of one machine of GKE, for example tpu-v5-lite-podslice:2x4; types: "
        + ", ".join(SINGLE_HOST),
    )
    nodes: int = setting(
        1, least=1, help="train on N nodes, each with these resources and GPUs, by a TrainJob of Kubeflow Trainer"
    )
    generation_pods: int = setting(
        1,
        least=1,
        help="generate in N pods at once, each with these resources, and join what they made in one more (default 1)",
    )
    runtime: str = setting("calopipe", help="TrainingRuntime of the TrainJob of --nodes (default calopipe)")

    def __post_init__(self) -> None:
        check_settings(self)
        for name in ("image", "pipeline_root", "gpu_type", "runtime"):
            if (value := getattr(self, name)) and not _PLAIN.fullmatch(value):
                raise InputError(f"--{name.replace('_', '-')} {value!r}: expected a name or an address; check it")
        if self.claim and not _CLAIM.fullmatch(self.claim):
            raise InputError(
                f"--claim {self.claim!r}: expected NAME:PATH, for example calopipe-data:/data, a name of a-z, 0-9 and "
                "'-' and an absolute path"
            )
        _require_consistent(self)
        resources_by_step(self.resources, self.hours)
        self._device()

    @property
    def strategy(self) -> str:
        """The distribution strategy that uses all devices of the training."""
        if self.nodes > 1:
            return "multi-worker"
        if self.tpu:
            return "tpu"
        return "mirrored" if self.gpus > 1 else "one-device"

    def job(self) -> dict[str, Any]:
        """How the train step starts a training on several nodes; empty if the step trains by itself.

        The resources are those of each node, by Kubernetes's names. The deadline is for one attempt of the step,
        including restarts of its workers.
        """
        if self.nodes == 1:
            return {}
        work, device = self.work("train"), self._device()
        resources = {"cpu": work.cpu, "memory": work.memory}
        return {
            "nodes": self.nodes,
            "image": self.image or IMAGE,
            "resources": resources | ({device.resource: str(device.count)} if device else {}),
            "runtime": self.runtime,
            "deadline_s": work.seconds,
        }

    def work(self, step: str) -> Resources:
        """The resources for the work of `step`, wherever the work is done."""
        return resources_by_step(self.resources, self.hours)[step]

    def pod(self, step: str) -> Resources:
        """The resources that the pod of `step` asks for."""
        work = self.work(step)
        if step == "train" and self.nodes > 1:
            return replace(LAUNCHER, hours=work.hours + LAUNCHER.hours)
        return work

    def accelerator(self, step: str) -> Accelerator | None:
        """The accelerator of the pod of `step`, or None."""
        if step == "train" and self.nodes == 1:
            return self._device()
        # Generation uses one GPU. For TPUs it has no strategy, so it runs on the processors of another node.
        if step == "generate" and self.gpus:
            return nvidia(1, self.gpu_type)
        return None

    def _device(self) -> Accelerator | None:
        """The accelerator on which a node trains, or None."""
        if self.tpu:
            return tpu(self.tpu)
        return nvidia(self.gpus, self.gpu_type) if self.gpus else None


def _require_consistent(platform: Platform) -> None:
    """Raise InputError if the options contradict each other."""
    gpu_type, nodes = f"--gpu-type {platform.gpu_type!r}", f"with --nodes {platform.nodes}"
    if platform.gpu_type and not platform.gpus:
        raise InputError(f"{gpu_type} without GPUs; give --gpus too")
    if platform.gpus and platform.tpu:
        raise InputError(f"--gpus {platform.gpus} and --tpu {platform.tpu!r}: training uses one kind; give one of them")
    if platform.nodes == 1:
        return
    if platform.tpu:
        raise InputError(f"--tpu {platform.tpu!r} {nodes}: training on TPUs uses one machine; leave one of the two out")
    if platform.runtime == "calopipe" and platform.claim not in {"", _CLAIM_OF_NODES}:
        raise InputError(
            f"--claim {platform.claim!r} {nodes}: the nodes of the TrainingRuntime calopipe mount "
            f"{_CLAIM_OF_NODES} where its overlay has a volume; give that, or another --runtime"
        )
    if platform.gpu_type:
        raise InputError(
            f"{gpu_type} {nodes}: the TrainingRuntime {platform.runtime} decides where nodes run; put a node selector "
            "there, and leave --gpu-type out"
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that state a cluster; `platform_of` reads them."""
    group = parser.add_argument_group("the cluster", f"The steps are {', '.join(STEPS)}.")
    add_settings(group, settings_of(Platform))


def platform_of(options: argparse.Namespace) -> Platform:
    """The cluster that `options` state; InputError if there can be no such cluster."""
    return Platform(**given_values(Platform, options))
