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

from calopipe.errors import InputError

_RUN = "pipeline/runid"  # the label of all that belongs to a run
_SECONDS = (10, 60)
POLL_SECONDS = 3.0


def print_logs(run: str, step: str | None, namespace: str, *, going: Callable[[], bool] | None = None) -> None:
    """Print what each step of the run, or one, has said; with `going`, and what more it says while that holds."""
    with _told():
        core = _core()
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
            f"{what}: no pod of it has a log in namespace {namespace}; {workflow_command(run, namespace)} says more; "
            "logs of pods that were cleaned up are in the UI, where they are archived"
        )


def workflow_command(run: str, namespace: str) -> str:
    """The command that shows what Kubernetes says of the run as a whole."""
    return f"kubectl describe workflow --namespace {namespace} --selector {_RUN}={run}"


def reason(run: str, step: str | None, namespace: str) -> str:
    """Why the step, or without one the run, failed, in a line: as its last pod has it, else as Argo noted it.

    Empty where Kubernetes cannot be asked or does not know.
    """
    try:
        with _told():
            core = _core()
            failed = [pod for pod in _of(core, run, step, namespace) if pod.status.phase == "Failed"]
            return (_why(failed[-1]) if failed else "") or _noted(core, run, namespace)
    except InputError:
        return ""


def _noted(core: CoreV1Api, run: str, namespace: str) -> str:
    """What the run's Workflow says of the last pod that failed, or was never made, else of the whole."""
    asked = kubernetes.client.CustomObjectsApi(core.api_client).list_namespaced_custom_object(
        "argoproj.io", "v1alpha1", namespace, "workflows", label_selector=f"{_RUN}={run}", _request_timeout=_SECONDS
    )
    for status in (workflow.get("status", {}) for workflow in asked["items"]):
        nodes = [
            node
            for node in status.get("nodes", {}).values()
            if node["type"] == "Pod" and node.get("phase") in {"Failed", "Error"} and node.get("message")
        ]
        last = max(nodes, key=lambda node: node.get("startedAt") or "", default=status)
        return " ".join(last.get("message", "").split())
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
    found = core.list_namespaced_pod(namespace, label_selector=f"{_RUN}={run}", _request_timeout=_SECONDS).items
    wanted = [pod for pod in found if (name := step_of(pod)) and step in {None, name}]
    return sorted(wanted, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))


def step_of(pod: Any) -> str:
    """The step that a pod runs, or whose driver it is if that failed; empty for other pods.

    Argo calls the node WORKFLOW.root.STEP.executor, or executor(N), and the driver's, which goes before,
    WORKFLOW.root.STEP-driver; that of the whole pipeline is WORKFLOW.root-driver.
    """
    node = (pod.metadata.annotations or {}).get("workflows.argoproj.io/node-name", "")
    found = re.search(r"\.([^.]+?)(\.executor|-driver)(\(\d+\))?$", node)
    return found[1] if found and (found[2] == ".executor" or pod.status.phase == "Failed") else ""


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
    """Why the pod ended or waits: as its container has it, where the steps leave their error, else as the pod has it.

    A container that was killed, or never started, knows less than the pod, whose message names the node's reason.
    """
    status = pod.status
    main = next((one.state for one in status.container_statuses or [] if one.name == "main"), None)
    ended, waits = (main.terminated, main.waiting) if main else (None, None)
    unscheduled = (one for one in status.conditions or [] if one.type == "PodScheduled" and one.status == "False")
    said = (
        (ended and ended.message) or status.message or next((one.message for one in unscheduled), "") or status.reason
    )
    if not said and ended and ended.exit_code:
        said = f"{ended.reason} (exit code {ended.exit_code})"
    if not said and waits and status.phase != "Failed":
        said = waits.message or waits.reason
    return " ".join((said or "").split())


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
