"""Sets what the pods of the pipeline's steps need on a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from kfp import dsl, kubernetes
from kfp.pipeline_spec.pipeline_spec_pb2 import PipelineSpec

from pipelines.cluster.platform import Platform
from pipelines.cluster.resources import Resources, step_of

USER = 1000  # the image's


def equip(tasks: Iterable[dsl.PipelineTask], platform: Platform | None) -> None:
    """Give each task the common settings and, for a cluster, what its step needs on `platform`."""
    for task in tasks:
        task.set_caching_options(False)
        task.set_env_variable("TF_CPP_MIN_LOG_LEVEL", "2")  # warnings and errors; not every CPU feature
        if platform is None:
            continue
        step = step_of(task.name)
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
        if step == "train" and platform.nodes == 1:
            # NCCL exchanges data of GPUs in shared memory. A container has 64 MiB of it by default. This mount has no
            # limit of its own, so the limit of the pod's memory applies.
            kubernetes.empty_dir_mount(task, "shared-memory", "/dev/shm", "Memory")  # noqa: S108


def _share(task: dsl.PipelineTask, resources: Resources) -> None:
    """Give `task` its name in the UI, processors, memory, time and attempts."""
    task.set_display_name(resources.title)
    task.set_cpu_request(resources.cpu).set_cpu_limit(resources.cpu)
    task.set_memory_request(resources.memory).set_memory_limit(resources.memory)
    # By default TensorFlow and BLAS start a thread for each processor of the node. The pod's limit then makes the
    # threads wait for each other. Their number also decides the order of sums, and so the last bits of the weights.
    for variable in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        task.set_env_variable(variable, str(resources.threads))
    task.set_retry(resources.retries, backoff_duration="60s", backoff_factor=2)
    kubernetes.set_timeout(task, resources.seconds)


def allow_retries(spec: PipelineSpec, platform: Platform) -> None:
    """Give each task of the compiled `spec` time for all its attempts.

    By default kfp allows an hour from the start of the first attempt to the end of the last, and kfp 2.16 has no
    argument to change it. A training that fails in its second hour would not be repeated, and a repeated training would
    end with the first hour.
    """
    for name, task in spec.root.dag.tasks.items():
        resources = platform.pod(step_of(name))
        # Twice the time of all attempts, as pods may have to wait for a node.
        task.retry_policy.backoff_max_duration.seconds = 2 * (resources.retries + 1) * resources.seconds
