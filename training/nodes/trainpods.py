"""The pods of a TrainJob: which worker each is, what it is at, how it ended, what it said. No TensorFlow in here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kubernetes.client import V1ContainerStateTerminated, V1Pod

from calopipe.errors import BAD_INPUT_EXIT_CODE
from training.nodes.trainapi import TrainJobs
from training.nodes.workers import LOST_WORKER, PREEMPTED

CONTAINER = "node"  # by this name the Trainer finds the container that a TrainJob is about
_INDEX = "batch.kubernetes.io/job-completion-index"
_LOG_OVERLAP_S = 5  # read again at each look, and told apart by their time stamps


def workers(pods: Sequence[V1Pod]) -> dict[int, V1Pod]:
    """Each worker's pod by its index; the newest, where an earlier attempt is still being cleared away."""
    by_age = sorted(pods, key=lambda pod: pod.metadata.creation_timestamp)
    return {int(index): pod for pod in by_age if (index := (pod.metadata.annotations or {}).get(_INDEX)) is not None}


def worker_end(pod: V1Pod) -> V1ContainerStateTerminated | None:
    """How the worker in `pod` ended; None while it has not."""
    for container in pod.status.container_statuses or ():
        if container.name == CONTAINER:
            return container.state.terminated
    return None


def pod_state(pod: V1Pod) -> str:
    """What `pod` is at, and what it waits for; of one that a node did not take, why."""
    if pod.status.phase == "Failed" and pod.status.message:
        return f"failed: {' '.join(pod.status.message.split())}"
    for container in pod.status.container_statuses or ():
        if container.state.waiting is not None:
            return f"waits: {container.state.waiting.reason}"
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"waits for a node: {condition.message}"
    return str(pod.status.phase).lower()


def most_telling(codes: Mapping[int, int]) -> int:
    """The worker whose exit code says most of why all ended.

    Bad input tells most, then any other error, then a death (a signal's code is 128 and its number), then the report
    of another's.
    """

    def precedence(index: int) -> tuple[bool, bool, bool, int]:
        code = codes[index]
        return code != BAD_INPUT_EXIT_CODE, code in {PREEMPTED, LOST_WORKER} or code > 128, code == LOST_WORKER, index

    return min(codes, key=precedence)


class FirstWorkersLog:
    """The log of one pod after another, each line shown once."""

    def __init__(self, jobs: TrainJobs) -> None:
        self._jobs = jobs
        self._pod, self._last, self._read_at = "", "", 0.0

    def show_new(self, pod: V1Pod) -> None:
        """Print the lines that `pod` has written since it was shown last."""
        if pod.metadata.uid != self._pod:
            self._pod, self._last = pod.metadata.uid, ""
        asked_at = time.monotonic()
        since = {"since_seconds": int(asked_at - self._read_at) + _LOG_OVERLAP_S} if self._last else {}
        lines = self._jobs.log(pod.metadata.name, CONTAINER, timestamps=True, **since)
        if lines is None:
            return
        self._read_at = asked_at
        for line in lines:
            stamp, _, text = line.partition(" ")
            if stamp > self._last:
                self._last = stamp
                print(text, flush=True)
