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
CONTAINER = "node"  # by this name the Trainer finds the container that a TrainJob is about
# What the JobSet of a TrainJob writes on each pod: the TrainJob's name, and the worker's index.
_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_INDEX = "batch.kubernetes.io/job-completion-index"

_REQUEST_S = 15.0  # for one answer
_BUSY = 429
_GRANT = "grant it as in deploy/base/rbac.yaml"


class TrainJobs:
    """The TrainJobs of the namespace of kubectl's context, or of this pod.

    A server that does not answer is asked again, with a call of `pause` between, for `patience_s` seconds; a refusal
    is an InputError. A control plane is away for minutes while it is upgraded, and the training goes on meanwhile.
    """

    def __init__(self, pause: Callable[[], None], patience_s: float) -> None:
        self._pause, self._patience_s = pause, patience_s
        # Asking again is done here, where a signal and the deadline are heeded.
        self._cluster = kubernetes.connect(retries=False)
        self.namespace = self._cluster.namespace
        self._kind: dict[str, Any] = {"group": GROUP, "version": VERSION, "plural": PLURAL, "namespace": self.namespace}
        self._refused: set[str] = set()

    def create(self, manifest: Json) -> Json | None:
        """The TrainJob made of `manifest`, or None where its name is taken."""
        return self._ask(
            f"create TrainJob {manifest['metadata']['name']}", self._cluster.objects.create_namespaced_custom_object,
            none_for={409}, **self._kind, body=manifest, field_validation="Strict",
        )  # fmt: skip

    def get(self, name: str) -> Json | None:
        """The TrainJob, or None where there is none."""
        get = self._cluster.objects.get_namespaced_custom_object
        return self._ask(f"get TrainJob {name}", get, none_for={404}, **self._kind, name=name)

    def own(self, job: Json, owner: Json) -> Json | None:
        """`job` with `owner` among its owners, or None where it has changed since it was read, or is gone."""
        name, version = job["metadata"]["name"], job["metadata"]["resourceVersion"]
        owners = job["metadata"].get("ownerReferences", [])
        if owner["uid"] in {known["uid"] for known in owners}:
            return job
        change = {"metadata": {"resourceVersion": version, "ownerReferences": [*owners, owner]}}
        return self._ask(
            f"become an owner of TrainJob {name}", self._cluster.objects.patch_namespaced_custom_object,
            none_for={404, 409}, **self._kind, name=name, body=change, field_validation="Strict",
        )  # fmt: skip

    def delete(self, job: Json) -> None:
        """Have `job` deleted, and before it everything that it owns: its name is free once its pods are gone.

        Another job that has taken its name since is left alone.
        """
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        options = V1DeleteOptions(propagation_policy="Foreground", preconditions=V1Preconditions(uid=uid))
        self._ask(
            f"delete TrainJob {name}", self._cluster.objects.delete_namespaced_custom_object,
            none_for={404, 409}, **self._kind, name=name, body=options,  # 409: the uid is another's
        )  # fmt: skip

    def pods(self, name: str) -> Sequence[V1Pod]:
        """The pods of the TrainJob, those of an attempt that is being cleared away included."""
        pods = self._ask(
            f"list the pods of TrainJob {name}",
            self._cluster.core.list_namespaced_pod,
            namespace=self.namespace,
            label_selector=f"{_JOBSET}={name}",
        )
        return list(pods.items)

    def warnings(self, job: Json) -> list[CoreV1Event]:
        """What Kubernetes warns of about `job` and what is made of it, the oldest first; empty if it says nothing."""
        listed = self._try(
            "list events", "its events", self._cluster.core.list_namespaced_event, self.namespace,
            field_selector="type=Warning",
        )  # fmt: skip
        name, made = job["metadata"]["name"], datetime.fromisoformat(job["metadata"]["creationTimestamp"])
        events = [
            event
            for event in (listed.items if listed else ())
            # Of an earlier job of this name there may be some too.
            if f"{event.involved_object.name}-".startswith(f"{name}-") and event.metadata.creation_timestamp >= made
        ]
        return sorted(events, key=lambda event: event.metadata.creation_timestamp)

    def log(self, pod: str, **which: int) -> list[str] | None:
        """The lines of a worker's log, or None where it cannot be read."""
        doing = f"read the log of pod {pod}"
        answer = self._try(doing, "its log", self._cluster.log, pod, CONTAINER, self.namespace, **which)
        return None if answer is None else answer.data.decode(errors="replace").splitlines()

    def _try(self, doing: str, what: str, request: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """What `request` returns, or None where that cannot be had, which stops no training.

        That a right is missing is printed, once.
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
            return None  # or its node does not answer

    def _ask(self, doing: str, request: Callable[..., Any], none_for: Collection[int] = (), **arguments: Any) -> Any:
        """What `request` returns, None for the HTTP statuses `none_for` if they are about the object."""
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
            self._pause()


def this_pod() -> Json | None:
    """A reference to the pod of this step, as Kubeflow Pipelines names it in the step's environment; else None.

    Kubernetes deletes what the pod owns once the pod and all other owners are deleted.
    """
    name, uid = os.environ.get("KFP_POD_NAME"), os.environ.get("KFP_POD_UID")
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid} if name and uid else None


def workers(pods: Sequence[V1Pod]) -> dict[int, V1Pod]:
    """Each worker's pod by its index; the newest, where an earlier attempt is still being cleared away."""
    by_age = sorted(pods, key=lambda pod: pod.metadata.creation_timestamp)
    return {int(index): pod for pod in by_age if (index := (pod.metadata.annotations or {}).get(_INDEX)) is not None}


def worker_end(pod: V1Pod) -> V1ContainerStateTerminated | None:
    """How the worker in `pod` ended; None while it has not."""
    state = container_state(pod, CONTAINER)
    return state and state.terminated


def pod_state(pod: V1Pod) -> str:
    """The phase of `pod`, with the reason if it waits or failed."""
    phase, reason = str(pod.status.phase).lower(), kubernetes.reason(pod, CONTAINER)
    if phase == "pending" and reason:
        return f"waits for a node: {reason}" if unscheduled(pod) else f"waits: {reason}"
    return f"{phase}: {reason}" if phase == "failed" and reason else phase
