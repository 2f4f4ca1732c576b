"""The TrainJobs of a namespace, their pods and logs, through the Kubernetes API. No TensorFlow in here."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

import urllib3
from kubernetes.client import (
    ApiException,
    CoreV1Event,
    V1ContainerStateTerminated,
    V1DeleteOptions,
    V1Pod,
    V1Preconditions,
)

from calopipe import kubernetes
from calopipe.errors import InputError
from calopipe.kubernetes import Json, container_state, unscheduled

GROUP, VERSION, PLURAL = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
CONTAINER = "node"  # by this name the Trainer finds the container of a TrainJob's pod in which it runs the training
# The JobSet of a TrainJob writes these on each pod: the TrainJob's name, and the worker's index.
_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_INDEX = "batch.kubernetes.io/job-completion-index"

_REQUEST_S = 15.0  # the longest time for one answer
_BUSY = 429
_GRANT = "grant it as in deploy/base/rbac.yaml"


class TrainJobs:
    """The TrainJobs of the namespace of kubectl's context, or of this pod.

    A server that does not answer is asked again for `patience_s` seconds, with a call of `pause` between. A refusal is
    an InputError. During an upgrade a control plane does not answer for minutes, while the training goes on.
    """

    def __init__(self, pause: Callable[[], None], patience_s: float) -> None:
        self.pause, self._patience_s = pause, patience_s
        # The client does not ask again: `_ask` does, which also looks for signals and at the deadline.
        self._cluster = kubernetes.connect(retries=False)
        self.namespace = self._cluster.namespace
        self._kind: dict[str, Any] = {"group": GROUP, "version": VERSION, "plural": PLURAL, "namespace": self.namespace}
        self._refused: set[str] = set()

    def create(self, manifest: Json) -> Json | None:
        """The TrainJob made from `manifest`, or None if its name is taken."""
        return self._ask(
            f"create TrainJob {manifest['metadata']['name']}", self._cluster.objects.create_namespaced_custom_object,
            none_for={409}, **self._kind, body=manifest, field_validation="Strict",
        )  # fmt: skip

    def get(self, name: str) -> Json | None:
        """The TrainJob called `name`, or None if there is none."""
        get = self._cluster.objects.get_namespaced_custom_object
        return self._ask(f"get TrainJob {name}", get, none_for={404}, **self._kind, name=name)

    def add_owner(self, job: Json, owner: Json) -> Json | None:
        """`job` with `owner` among its owners, or None if the job has changed since it was read, or is gone."""
        name, version = job["metadata"]["name"], job["metadata"]["resourceVersion"]
        owners = job["metadata"].get("ownerReferences", [])
        if owner["uid"] in {entry["uid"] for entry in owners}:
            return job
        change = {"metadata": {"resourceVersion": version, "ownerReferences": [*owners, owner]}}
        return self._ask(
            f"become an owner of TrainJob {name}", self._cluster.objects.patch_namespaced_custom_object,
            none_for={404, 409}, **self._kind, name=name, body=change, field_validation="Strict",
        )  # fmt: skip

    def delete(self, job: Json) -> None:
        """Have `job` deleted, and everything that it owns before it. So its name is free only when its pods are gone.

        Another job that now has the same name is left alone.
        """
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        options = V1DeleteOptions(propagation_policy="Foreground", preconditions=V1Preconditions(uid=uid))
        self._ask(
            f"delete TrainJob {name}", self._cluster.objects.delete_namespaced_custom_object,
            none_for={404, 409}, **self._kind, name=name, body=options,  # 409: another job has this name
        )  # fmt: skip

    def pods(self, name: str) -> Sequence[V1Pod]:
        """The pods of the TrainJob, also those of an earlier attempt that is being deleted."""
        pods = self._ask(
            f"list the pods of TrainJob {name}",
            self._cluster.core.list_namespaced_pod,
            namespace=self.namespace,
            label_selector=f"{_JOBSET}={name}",
        )
        return list(pods.items)

    def warnings(self, job: Json) -> list[CoreV1Event]:
        """Kubernetes' warnings about `job` and the objects made from it, the oldest first; empty if there are none."""
        listed = self._try(
            "list events", "its events", self._cluster.core.list_namespaced_event, self.namespace,
            field_selector="type=Warning",
        )  # fmt: skip
        name, made = job["metadata"]["name"], datetime.fromisoformat(job["metadata"]["creationTimestamp"])
        events = [
            event
            for event in (listed.items if listed else ())
            # There may also be events of an earlier job with this name.
            if f"{event.involved_object.name}-".startswith(f"{name}-") and event.metadata.creation_timestamp >= made
        ]
        return sorted(events, key=lambda event: event.metadata.creation_timestamp)

    def log(self, pod: str, **which: int) -> list[str] | None:
        """The lines of a worker's log, or None if it cannot be read."""
        doing = f"read the log of pod {pod}"
        answer = self._try(doing, "its log", self._cluster.log, pod, CONTAINER, self.namespace, **which)
        return None if answer is None else answer.data.decode(errors="replace").splitlines()

    def _try(self, doing: str, what: str, request: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """What `request` returns, or None if it fails; a failure does not stop the training.

        A missing right is printed, once.
        """
        try:
            return request(*arguments, **more, _request_timeout=_REQUEST_S)
        except urllib3.exceptions.HTTPError:
            return None
        except ApiException as error:
            if error.status in {401, 403} and what not in self._refused:
                self._refused.add(what)
                refusal = kubernetes.refusal(error, doing, self.namespace, _GRANT)
                print(f"{refusal}; training goes on without {what} here", file=sys.stderr, flush=True)
            return None  # also if the pod's node does not answer

    def _ask(self, doing: str, request: Callable[..., Any], none_for: Collection[int] = (), **arguments: Any) -> Any:
        """What `request` returns; None for an HTTP status in `none_for`, if it is about the object."""
        until = time.monotonic() + self._patience_s
        silent = False
        while True:
            try:
                return request(**arguments, _request_timeout=_REQUEST_S)
            except ApiException as error:
                about_object = bool(kubernetes.status(error))
                if error.status in none_for and about_object:
                    return None
                if error.status == 404 and not about_object:
                    raise InputError(
                        f"cannot {doing} in namespace {self.namespace}: Kubeflow Trainer is not installed in this "
                        "cluster; install it, version 2"
                    ) from None
                if error.status is not None and error.status != _BUSY and error.status < 500:
                    raise kubernetes.refusal(error, doing, self.namespace, _GRANT) from None
                reason = f"{error.status} {error.reason}"
            except urllib3.exceptions.HTTPError as error:
                reason = " ".join(str(error).split())
            if time.monotonic() >= until:
                server = self._cluster.server
                raise InputError(f"cannot {doing}: the Kubernetes API at {server} does not answer: {reason}")
            if not silent:
                print(f"the Kubernetes API does not answer, trying on: {reason}", file=sys.stderr, flush=True)
            silent = True
            self.pause()


def this_pod() -> Json | None:
    """A reference to the pod of this step, from the environment that Kubeflow Pipelines sets; None elsewhere.

    Kubernetes deletes what the pod owns when the pod and all other owners are deleted.
    """
    name, uid = os.environ.get("KFP_POD_NAME"), os.environ.get("KFP_POD_UID")
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid} if name and uid else None


def workers(pods: Sequence[V1Pod]) -> dict[int, V1Pod]:
    """Each worker's pod by its index; the newest pod, if an earlier attempt is still being deleted."""
    by_age = sorted(pods, key=lambda pod: pod.metadata.creation_timestamp)
    return {int(index): pod for pod in by_age if (index := (pod.metadata.annotations or {}).get(_INDEX)) is not None}


def worker_end(pod: V1Pod) -> V1ContainerStateTerminated | None:
    """How the worker in `pod` ended; None if it has not ended."""
    state = container_state(pod, CONTAINER)
    return state and state.terminated


def pod_state(pod: V1Pod) -> str:
    """The phase of `pod`, with the reason if it waits or failed."""
    phase, reason = str(pod.status.phase).lower(), kubernetes.reason(pod, CONTAINER)
    if phase == "pending" and reason:
        return f"waits for a node: {reason}" if unscheduled(pod) else f"waits: {reason}"
    return f"{phase}: {reason}" if phase == "failed" and reason else phase
