"""The Kubernetes API: how it is reached, what it refuses, what a pod says of itself.

The package `kubernetes` takes a second to load, so only `connect` loads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
import yaml

from calopipe.errors import InputError

if TYPE_CHECKING:
    from kubernetes.client import ApiException, CoreV1Api, CustomObjectsApi, V1ContainerState, V1Pod

Json = Mapping[str, Any]

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class Kubernetes:
    """An API server; `namespace` is the one to work in unless another is named."""

    server: str
    namespace: str
    core: CoreV1Api
    objects: CustomObjectsApi

    def log(self, pod: str, container: str, namespace: str, **options: Any) -> urllib3.HTTPResponse | None:
        """The log of a container as a stream of lines; None if the container has not started or is gone."""
        from kubernetes.client import ApiException  # noqa: PLC0415

        try:
            return self.core.read_namespaced_pod_log(
                pod, namespace, container=container, _preload_content=False, **options
            )
        except ApiException as error:
            if error.status in {400, 404}:
                return None
            raise


def connect(retries: urllib3.Retry | bool) -> Kubernetes:
    """The API server of kubectl's current context, or of the pod's cluster in a pod that has no kubectl config."""
    from kubernetes import client, config  # noqa: PLC0415

    settings = client.Configuration()
    try:
        config.load_kube_config(client_configuration=settings)
        namespace = config.list_kube_config_contexts()[1]["context"].get("namespace", "default")
    except config.ConfigException as error:
        try:
            config.load_incluster_config(settings)
        except config.ConfigException:
            raise InputError(
                "no Kubernetes cluster: kubectl is not set up here, and this is no pod: " + " ".join(str(error).split())
            ) from None
        namespace = _NAMESPACE_FILE.read_text().strip()
    except (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        reason = type(error).__name__
        raise InputError(f"kubectl's configuration cannot be read ({reason}); mend it, or unset KUBECONFIG") from None
    settings.retries = retries
    api = client.ApiClient(settings)
    return Kubernetes(settings.host, namespace, client.CoreV1Api(api), client.CustomObjectsApi(api))


@contextmanager
def refusals(doing: str, namespace: str, grant: str) -> Iterator[None]:
    """Turn a refusal by the API within the block into an InputError; `grant` says how to get a missing right."""
    from kubernetes.client import ApiException  # noqa: PLC0415

    try:
        yield
    except ApiException as error:
        raise refusal(error, doing, namespace, grant) from None
    except urllib3.exceptions.HTTPError as error:
        reason = str(error).rpartition(": ")[2]
        raise InputError(f"Kubernetes cannot be reached ({reason}); try kubectl get pods") from None


def refusal(error: ApiException, doing: str, namespace: str, grant: str) -> InputError:
    """The reason of a refusal that a repeated request would not change, and what to do about it."""
    attempt, message = f"cannot {doing} in namespace {namespace}", status(error).get("message", error.reason)
    if error.status == 401:
        return InputError(f"{attempt}: Kubernetes does not accept these credentials (401); log in again")
    if error.status == 403 and "cannot" in message:  # by RBAC; an admission webhook gives reasons of another form
        return InputError(f"{attempt}: {message} (403); {grant}")
    return InputError(f"{attempt}: {message} ({error.status})")


def status(error: ApiException) -> Json:
    """The Kubernetes Status that came with an error; empty if there is none."""
    try:
        body = json.loads(error.body)
    except (TypeError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def container_state(pod: V1Pod, container: str) -> V1ContainerState | None:
    """The state of one container of `pod`; None before the node has reported it."""
    return next((status.state for status in pod.status.container_statuses or () if status.name == container), None)


def unscheduled(pod: V1Pod) -> str:
    """Why no node takes `pod`; empty if a node took it."""
    conditions = pod.status.conditions or ()
    return next((fact.message for fact in conditions if fact.type == "PodScheduled" and fact.status == "False"), "")


def reason(pod: V1Pod, container: str) -> str:
    """Why `pod` ended or waits, in one line. The container's own message comes first: a step writes its error there.

    For a container that was killed, or never started, the pod's message says more: it names the node's reason.
    """
    state = container_state(pod, container)
    ended, waits = (state.terminated, state.waiting) if state else (None, None)
    message = (ended and ended.message) or pod.status.message or unscheduled(pod) or pod.status.reason
    if not message and ended and ended.exit_code:
        message = f"{ended.reason} (exit code {ended.exit_code})"
    if not message and waits and pod.status.phase != "Failed":
        message = waits.message or waits.reason
    return " ".join((message or "").split())
