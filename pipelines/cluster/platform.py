"""What only a cluster needs, a laptop having it anyway: image, accelerators, storage, and each step's share of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from calopipe.errors import InputError
from components.image import IMAGE
from pipelines.cluster.accelerators import Accelerator, nvidia, tpu
from pipelines.cluster.needs import LAUNCHER, MEMORY, STEPS, Needs, parse_hours, parse_resources

if TYPE_CHECKING:
    from kfp import dsl
    from kfp.pipeline_spec.pipeline_spec_pb2 import PipelineSpec

USER = 1000  # the image's

# Registry and path, then a tag, a digest or both, as the distribution specification has them.
_IMAGE = re.compile(
    r"([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(?P<tag>:\w[\w.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
# kfp names the pod's volume after the claim: of the names that a claim may have, only labels can be mounted.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SHM = "1Gi"
_CLAIM_OF_NODES = "calopipe-data:/data"  # as deploy/base/training-runtime.yaml has it
_ROOT = re.compile(r"(gs|s3|minio)://\w[\w.-]*(/\w[\w.-]*)*/?", re.ASCII)
_PATH = re.compile(r"(/\w[\w.-]*)+", re.ASCII)


@dataclass(frozen=True)
class Platform:
    """A cluster as the steps see it.

    `image` is the container image of every step, empty for `components.image.IMAGE`; `claim` = "NAME:PATH" a volume
    claim that every step mounts at PATH, empty for none. `resources` = "STEP=CPU,MEMORY" and `hours` = "STEP=HOURS"
    take the place of what `needs.STEPS` says. Training gets `gpus` GPUs, on GKE of `gpu_type` unless it is empty, or
    the TPU slice `tpu` = "TYPE:TOPOLOGY", and `shm` of shared memory.

    With several `nodes` the step starts a Kubeflow TrainJob of the TrainingRuntime `runtime`. Resources and GPUs are
    then for each node; what the nodes mount and where they run is the runtime's to say.

    `pipeline_root` is where Kubeflow keeps what steps show in the UI, empty for where it is set up to.
    """

    image: str = ""
    claim: str = ""
    resources: tuple[str, ...] = ()
    hours: tuple[str, ...] = ()
    gpus: int = 0
    gpu_type: str = ""
    tpu: str = ""
    shm: str = _SHM
    nodes: int = 1
    runtime: str = "calopipe"
    pipeline_root: str = ""

    def __post_init__(self) -> None:
        _check_image(self.image)
        name, _, path = self.claim.partition(":")
        if self.claim and not (_NAME.fullmatch(name) and _PATH.fullmatch(path)):
            raise InputError(
                f"--claim {self.claim!r}: expected NAME:PATH, for example calopipe-data:/data, the name of lower-case "
                "letters, digits and '-', the path absolute"
            )
        if not MEMORY.fullmatch(self.shm):
            raise InputError(f"--shm {self.shm!r}: expected an amount of memory, for example 1Gi")
        if not _NAME.fullmatch(self.runtime):
            raise InputError(f"--runtime {self.runtime!r}: expected the name of a TrainingRuntime, such as calopipe")
        if self.pipeline_root and not _ROOT.fullmatch(self.pipeline_root):
            raise InputError(f"--pipeline-root {self.pipeline_root!r}: expected an address such as gs://BUCKET/runs")
        for step in STEPS:
            self.needs(step)
        self._check_accelerators()

    def _check_accelerators(self) -> None:
        for option, value, least in (("--gpus", self.gpus, 0), ("--nodes", self.nodes, 1)):
            if value < least:
                raise InputError(f"{option} is {value}, expected at least {least}")
        if self.gpu_type and not self.gpus:
            raise InputError(f"--gpu-type {self.gpu_type!r} without GPUs; give --gpus too")
        if self.gpus and self.tpu:
            raise InputError(f"--gpus {self.gpus} and --tpu {self.tpu!r}: training uses one kind; give one of them")
        if self.nodes > 1 and self.tpu:
            raise InputError(
                f"--tpu {self.tpu!r} with --nodes {self.nodes}: only TPUs of one machine; give one of them"
            )
        if self.nodes > 1 and self.runtime == "calopipe" and self.claim not in {"", _CLAIM_OF_NODES}:
            raise InputError(
                f"--claim {self.claim!r} with --nodes {self.nodes}: the nodes of the TrainingRuntime calopipe mount "
                f"{_CLAIM_OF_NODES}; give that, or another --runtime"
            )
        if self.nodes > 1 and self.shm != _SHM:
            raise InputError(
                f"--shm {self.shm!r} with --nodes {self.nodes}: for the runtime {self.runtime} to say; leave it out"
            )
        if self.nodes > 1 and self.gpu_type:
            raise InputError(
                f"--gpu-type {self.gpu_type!r} with --nodes {self.nodes}: where nodes run is for the TrainingRuntime "
                f"{self.runtime} to say; put a node selector there, and leave --gpu-type out"
            )
        self._device()

    @property
    def strategy(self) -> str:
        """The distribution strategy that uses what training gets."""
        if self.nodes > 1:
            return "multi-worker"
        if self.tpu:
            return "tpu"
        return "mirrored" if self.gpus > 1 else "one-device"

    def require_strategy(self, strategy: str) -> None:
        """Raise InputError unless `strategy` can use what training gets."""
        if strategy == self.strategy or {strategy, self.strategy} == {"one-device", "mirrored"}:
            return
        given = (
            f"--nodes {self.nodes}" if self.nodes > 1 else f"--tpu {self.tpu}" if self.tpu else "one node and no TPU"
        )
        raise InputError(
            f"--strategy {strategy} with {given}: training there takes {self.strategy}; leave --strategy out, or give "
            "--nodes or --tpu for what it is to use"
        )

    @property
    def deadline_seconds(self) -> int:
        """How long one attempt of the step follows a training of several nodes, restarts of its workers included."""
        return self.needs("train").seconds

    def job(self) -> dict[str, Any]:
        """How training is started on several nodes, for the train step; empty where that trains by itself."""
        if self.nodes == 1:
            return {}
        return {
            "nodes": self.nodes,
            "image": self.image or IMAGE,
            "resources": self.node_resources(),
            "runtime": self.runtime,
            "deadline_s": self.deadline_seconds,
        }

    def node_resources(self) -> dict[str, str]:
        """What each node of a training of several nodes asks for, by Kubernetes's names."""
        needs, device = self.needs("train"), self._device()
        return {"cpu": needs.cpu, "memory": needs.memory} | ({device.resource: str(device.count)} if device else {})

    def needs(self, step: str) -> Needs:
        """What the work of `step` needs, wherever it is done."""
        needs = STEPS[step]
        for name, cpu, memory in map(parse_resources, self.resources):
            if name == step:
                needs = replace(needs, cpu=cpu, memory=memory)
        for name, hours in map(parse_hours, self.hours):
            if name == step:
                needs = replace(needs, hours=hours)
        return needs

    def pod(self, step: str) -> Needs:
        """What the pod of `step` asks for."""
        needs = self.needs(step)
        if step == "train" and self.nodes > 1:
            return replace(LAUNCHER, hours=needs.hours + LAUNCHER.hours)
        return needs

    def accelerator(self, step: str) -> Accelerator | None:
        """What the pod of `step` computes on."""
        if step == "train" and self.nodes == 1:
            return self._device()
        # Of GPUs, generation uses one; on TPUs it has no strategy, and runs on the processors of another node.
        if step == "generate" and self.gpus:
            return nvidia(1, self.gpu_type)
        return None

    def _device(self) -> Accelerator | None:
        """What a node trains on."""
        if self.tpu:
            return tpu(self.tpu)
        return nvidia(self.gpus, self.gpu_type) if self.gpus else None


def _check_image(image: str) -> None:
    """Raise InputError unless `image`, if there is one, is a name that says which image."""
    if not image:
        return
    found = _IMAGE.fullmatch(image)
    if not found:
        raise InputError(f"--image {image!r}: not the name of an image; expected NAME:TAG or NAME@sha256:DIGEST")
    if not found["digest"] and found["tag"] in {None, ":latest"}:
        raise InputError(
            f"--image {image!r}: what this names changes; give a tag other than latest or, better, a digest, "
            "NAME@sha256:DIGEST"
        )


def equip(tasks: Mapping[str, dsl.PipelineTask], platform: Platform) -> None:
    """Give each step, by its name, what it needs on `platform`."""
    from kfp import kubernetes  # noqa: PLC0415  a second that a bad option need not wait

    for step, task in tasks.items():
        _share(task, platform.pod(step))
        kubernetes.set_security_context(task, run_as_user=USER, run_as_non_root=True)
        if platform.image:
            task.set_container_image(platform.image)
        if platform.claim:
            name, _, path = platform.claim.partition(":")
            kubernetes.mount_pvc(task, pvc_name=name, mount_path=path)
        if accelerator := platform.accelerator(step):
            task.set_accelerator_type(accelerator.resource).set_accelerator_limit(accelerator.count)
            kubernetes.add_toleration(task, key=accelerator.resource, operator="Exists", effect="NoSchedule")
            for label, value in accelerator.selectors.items():
                kubernetes.add_node_selector(task, label, value)
    if platform.nodes == 1:
        # NCCL exchanges data of GPUs in shared memory, of which a container has 64 MiB unless told otherwise.
        kubernetes.empty_dir_mount(tasks["train"], "shared-memory", "/dev/shm", "Memory", platform.shm)  # noqa: S108


def _share(task: dsl.PipelineTask, needs: Needs) -> None:
    """Give `task` its name in the UI, processors, memory, time and attempts."""
    from kfp import kubernetes  # noqa: PLC0415

    task.set_display_name(needs.title)
    task.set_cpu_request(needs.cpu).set_cpu_limit(needs.cpu)
    task.set_memory_request(needs.memory).set_memory_limit(needs.memory)
    # Left alone, TensorFlow and BLAS start a thread for each processor of the node, which the limit then makes wait for
    # each other. The number of threads also decides the order of sums, and so the last bits of the weights.
    for variable in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        task.set_env_variable(variable, str(needs.threads))
    task.set_retry(needs.retries, backoff_duration="60s", backoff_factor=2)
    kubernetes.set_timeout(task, needs.seconds)


def allow_retries(spec: PipelineSpec, platform: Platform) -> None:
    """Give each step of the compiled `spec` time for all its attempts.

    Unless told otherwise kfp allows an hour from the start of the first attempt to the end of the last, and 2.16 does
    not let itself be told: a training that fails in its second hour would not be repeated, and one that is repeated in
    its first be ended with it.
    """
    for step, task in spec.root.dag.tasks.items():
        needs = platform.pod(step)
        # Twice, for the time in which pods wait for a node.
        task.retry_policy.backoff_max_duration.seconds = 2 * (needs.retries + 1) * needs.seconds
