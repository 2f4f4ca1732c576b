"""The pods of a run: their logs, and why one failed.

This is asked of Kubernetes. The API of Kubeflow Pipelines has no call for logs, fills in neither the pod nor the error
of a step, and its server's route outside the API wants the name of a pod.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kubernetes
import urllib3
from kubernetes.client import ApiException, CoreV1Api
from kubernetes.config import ConfigException

from preprocessing.errors import InputError

_NAMESPACE = "kubeflow"  # of the runs where the server has one user
_SECONDS = (10, 60)
POLL_SECONDS = 3.0


def print_logs(run: str, step: str | None, namespace: str | None, *, going: Callable[[], bool] | None = None) -> None:
    """Print what each step of the run, or one, has said; with `going`, and what more it says while that holds."""
    with _told():
        core, namespace = _core(), namespace or _NAMESPACE
        done: set[str] = set()
        waiting: dict[str, str] = {}
        while True:
            more = going is not None and going()  # before the look, so that the last pods are seen
            for pod in _of(core, run, step, namespace):
                name, why = pod.metadata.name, _why(pod) if pod.status.phase == "Pending" else ""
                if why and waiting.get(name) != why:
                    print(f"--- {step_of(pod)} ({name}) is waiting: {why}", flush=True)
                    waiting[name] = why
                elif not why and name not in done and _print(core, pod, follow=more):
                    done.add(name)
            if not more:
                break
            time.sleep(POLL_SECONDS)
    if not done and not waiting:
        what = f"step {step} of run {run}" if step else f"run {run}"
        raise InputError(
            f"{what}: no pod of it has a log in namespace {namespace}; it may not have started, or be cleaned up, or "
            "kubectl points at another cluster; the UI shows archived logs"
        )


def reason(run: str, step: str, namespace: str | None) -> str:
    """Why the step's last pod failed, in a line; empty where Kubernetes cannot be asked or does not know."""
    try:
        with _told():
            found = _of(_core(), run, step, namespace or _NAMESPACE)
            return _why(found[-1]) if found else ""
    except InputError:
        return ""


def _core() -> CoreV1Api:
    """Kubernetes as kubectl would reach it from here, else as a pod does."""
    settings = kubernetes.client.Configuration()
    try:
        kubernetes.config.load_kube_config(client_configuration=settings)
    except ConfigException:
        kubernetes.config.load_incluster_config(client_configuration=settings)
    settings.retries = urllib3.Retry(2, backoff_factor=0.5)
    return CoreV1Api(kubernetes.client.ApiClient(settings))


def _of(core: CoreV1Api, run: str, step: str | None, namespace: str) -> list[Any]:
    """The pods that run steps, or one, in the order of their making."""
    found = core.list_namespaced_pod(namespace, label_selector=f"pipeline/runid={run}", _request_timeout=_SECONDS).items
    wanted = [pod for pod in found if (name := step_of(pod)) and step in {None, name}]
    return sorted(wanted, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))


def step_of(pod: Any) -> str:
    """The step that a pod runs, empty for a driver: Argo calls the node WORKFLOW.root.STEP.executor, or executor(N)."""
    node = (pod.metadata.annotations or {}).get("workflows.argoproj.io/node-name", "")
    found = re.search(r"\.([^.]+)\.executor(\(\d+\))?$", node)
    return found[1] if found else ""


def _print(core: CoreV1Api, pod: Any, *, follow: bool) -> bool:
    """Whether the pod had a log to print."""
    try:
        log = core.read_namespaced_pod_log(
            pod.metadata.name, pod.metadata.namespace, container="main", follow=follow, _preload_content=False,
            _request_timeout=(_SECONDS[0], None) if follow else _SECONDS,  # a step may be silent for long
        )  # fmt: skip
    except ApiException as error:
        if error.status in {400, 404}:  # not yet started; gone meanwhile
            return False
        raise
    print(f"--- {step_of(pod)} ({pod.metadata.name})", flush=True)
    for line in _lines(log):
        print(line, flush=True)
    return True


def _lines(log: Any) -> Iterator[str]:
    rest = b""
    for chunk in log.stream(1 << 16):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")


def _why(pod: Any) -> str:
    """Why the pod ended or waits, from the container, where the steps leave their error, else from the pod."""
    for container in pod.status.container_statuses or []:
        state = container.state.terminated or container.state.waiting
        if container.name == "main" and state and (state.message or state.reason not in {None, "Completed"}):
            return " ".join((state.message or state.reason).split())
    unscheduled = (one for one in pod.status.conditions or [] if one.type == "PodScheduled" and one.status == "False")
    said = pod.status.message or next((one.message for one in unscheduled), "") or pod.status.reason or ""
    return " ".join(said.split())


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except ConfigException as error:
        raise InputError(f"logs are asked of Kubernetes, and kubectl is not set up here ({error})") from None
    except ApiException as error:
        if error.status not in {401, 403}:
            raise InputError(f"Kubernetes refused the logs ({error.status} {error.reason})") from None
        raise InputError(
            f"Kubernetes refused the logs ({error.status}); the right to list pods and get pods/log there is needed"
        ) from None
    except urllib3.exceptions.HTTPError as error:
        raise InputError(
            f"Kubernetes cannot be reached ({str(error).rpartition(': ')[2]}); try kubectl get pods"
        ) from None
