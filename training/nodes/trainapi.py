"""The TrainJobs of a namespace, their pods and logs, through the Kubernetes API. No TensorFlow in here."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from calopipe.errors import InputError

Answer = TypeVar("Answer")
Json = Mapping[str, Any]

GROUP, VERSION, PLURAL = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
# What the JobSet of a TrainJob writes on each pod; it has the TrainJob's name.
_JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_REQUEST_S = 15.0  # for one answer
_BUSY = 429


class TrainJobs:
    """The TrainJobs of the namespace of this pod, or of the kubeconfig's context.

    A server that does not answer is asked again, with a call of `pause` between, for `patience_s` seconds; a refusal
    is an InputError. A control plane is away for minutes while it is upgraded, and the training goes on meanwhile.
    """

    def __init__(self, pause: Callable[[], None], patience_s: float) -> None:
        self._pause, self._patience_s = pause, patience_s
        settings, self.namespace = _credentials()
        settings.retries = False  # asking again is done here, where a signal and the deadline are heeded
        self._server = settings.host
        self._no_logs_said = False
        api = client.ApiClient(settings)
        self._objects, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)

    def create(self, manifest: Json) -> Json | None:
        """The TrainJob made of `manifest`, or None where its name is taken."""
        return self._ask(
            f"create TrainJob {manifest['metadata']['name']}",
            lambda: self._objects.create_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, manifest, field_validation="Strict", _request_timeout=_REQUEST_S
            ),
            none_for=(409,),
        )

    def get(self, name: str) -> Json | None:
        """The TrainJob, or None where there is none."""
        return self._ask(
            f"get TrainJob {name}",
            lambda: self._objects.get_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, name, _request_timeout=_REQUEST_S
            ),
            none_for=(404,),
        )

    def own(self, job: Json, owner: Json) -> Json | None:
        """`job` with `owner` among its owners, or None where it has changed since it was read, or is gone."""
        owners = job["metadata"].get("ownerReferences", [])
        if owner["uid"] in {each["uid"] for each in owners}:
            return job
        version = job["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": version, "ownerReferences": [*owners, owner]}}
        name = job["metadata"]["name"]
        return self._ask(
            f"become an owner of TrainJob {name}",
            lambda: self._objects.patch_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, name, change, field_validation="Strict",
                _request_timeout=_REQUEST_S,
            ),
            none_for=(404, 409),
        )  # fmt: skip

    def delete(self, job: Json, *, pause: Callable[[], None] | None = None, patience_s: float | None = None) -> None:
        """Have `job` deleted, and before it everything that is its own: its name is free once its pods are gone.

        Another job that has taken its name since is left alone. `pause` and `patience_s` stand in for this object's.
        """
        options = client.V1DeleteOptions(
            propagation_policy="Foreground", preconditions=client.V1Preconditions(uid=job["metadata"]["uid"])
        )

        def delete() -> None:
            try:
                self._objects.delete_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, PLURAL, job["metadata"]["name"], body=options,
                    _request_timeout=_REQUEST_S,
                )  # fmt: skip
            except ApiException as error:
                if error.status != 409:  # the uid is another's
                    raise

        self._ask(f"delete TrainJob {job['metadata']['name']}", delete, (404,), pause, patience_s)

    def pods(self, name: str) -> Sequence[client.V1Pod]:
        """The pods of the TrainJob, those of an attempt that is being cleared away included."""
        selector = f"{_JOBSET_LABEL}={name}"
        found = self._ask(
            f"list the pods of TrainJob {name}",
            lambda: self._core.list_namespaced_pod(
                self.namespace, label_selector=selector, _request_timeout=_REQUEST_S
            ),
        )
        return found.items if found is not None else ()

    def log(self, pod: str, container: str, **which: int) -> list[str] | None:
        """The lines of a container's log, or None where it cannot be read, which stops nobody's training.

        That this is for want of a right is said, once.
        """
        try:
            answer = self._core.read_namespaced_pod_log(
                pod, self.namespace, container=container, _preload_content=False, _request_timeout=_REQUEST_S, **which
            )
        except urllib3.exceptions.HTTPError:
            return None
        except ApiException as error:
            if error.status in {401, 403} and not self._no_logs_said:
                self._no_logs_said = True
                reason = self._refusal(f"read the log of pod {pod}", error)
                print(f"{reason}; training goes on without its log here", file=sys.stderr, flush=True)
            return None  # or it has not started, is gone, or its node does not answer
        return answer.data.decode(errors="replace").splitlines()

    def _ask(
        self,
        doing: str,
        request: Callable[[], Answer],
        none_for: Collection[int] = (),
        pause: Callable[[], None] | None = None,
        patience_s: float | None = None,
    ) -> Answer | None:
        """What `request` returns, None for the HTTP statuses `none_for` if they are about the object."""
        until = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        silent = False
        while True:
            try:
                return request()
            except ApiException as error:
                if error.status in none_for and _status(error):
                    return None
                if error.status is not None and error.status != _BUSY and error.status < 500:
                    raise self._refusal(doing, error) from None
                reason = f"{error.status} {error.reason}"
            except urllib3.exceptions.HTTPError as error:
                reason = " ".join(str(error).split())
            if time.monotonic() >= until:
                raise InputError(f"cannot {doing}: the Kubernetes API at {self._server} does not answer: {reason}")
            if not silent:
                print(f"the Kubernetes API does not answer, trying on: {reason}", file=sys.stderr, flush=True)
            silent = True
            (pause or self._pause)()

    def _refusal(self, doing: str, error: ApiException) -> InputError:
        """The reason, and what to do about it, of an answer that asking again would not change."""
        here = f"cannot {doing} in namespace {self.namespace}"
        said = _status(error).get("message", error.reason)
        if error.status == 401:
            return InputError(f"{here}: {self._server} does not accept these credentials (401); log in again")
        if error.status == 403 and "cannot" in said:  # by RBAC; an admission webhook gives reasons of another form
            return InputError(f"{here}: {said}; grant it as in deploy/base/rbac.yaml")
        if error.status == 404 and not _status(error):  # no such path, where a missing object has a Status
            return InputError(f"{here}: Kubeflow Trainer is not installed in this cluster; install it, version 2")
        return InputError(f"{here}: {said} ({error.status})")


def this_pod() -> Json | None:
    """A reference to the pod of this step, as Kubeflow Pipelines names it in the step's environment; else None.

    What it owns, Kubernetes deletes once the pod is deleted, and all its other owners are.
    """
    name, uid = os.environ.get("KFP_POD_NAME"), os.environ.get("KFP_POD_UID")
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid} if name and uid else None


def _status(error: ApiException) -> Json:
    """The Kubernetes Status that came with an error; empty where there is none."""
    try:
        status = json.loads(error.body)
    except (TypeError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


def _credentials() -> tuple[client.Configuration, str]:
    """How to reach the API server, and the namespace to work in."""
    settings = client.Configuration()
    try:
        config.load_incluster_config(settings)
        return settings, _NAMESPACE_FILE.read_text().strip()
    except config.ConfigException:
        pass
    try:
        config.load_kube_config(client_configuration=settings)
        _, context = config.list_kube_config_contexts()
    except config.ConfigException as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"no Kubernetes cluster to train on several hosts: this is no pod, and KUBECONFIG gives none: {reason}"
        ) from None
    return settings, context["context"].get("namespace", "default")
