"""The logs of a run, and why one of its steps failed, as Kubernetes knows them.

The API of Kubeflow Pipelines has no call for logs, and names neither the pod nor the error of a step. The route of its
server for logs, outside the API, needs the name of a pod.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import urllib3

from calopipe import kubernetes
from calopipe.errors import InputError
from calopipe.kubernetes import Json, Kubernetes

_RUN = "pipeline/runid"  # the label of all that belongs to a run
_SECONDS = (10, 60)
_RETRIES = urllib3.Retry(2, backoff_factor=0.5)
_GRANT = "the right to list pods and get pods/log there is needed"
POLL_SECONDS = 3.0


def print_logs(run: str, step: str | None, namespace: str, *, going: Callable[[], bool] | None = None) -> None:
    """Print the log of each step of the run, or only of `step`; with `going`, keep printing while `going()` is true."""
    done: set[str] = set()
    waiting: dict[str, str] = {}
    cluster = kubernetes.connect(_RETRIES)
    more = True
    while more:
        more = going is not None and going()  # asked before the pods are listed, so that the last pods are seen
        with kubernetes.refusals("read the logs", namespace, _GRANT):
            for pod in _pods(cluster, run, step, namespace):
                name = pod.metadata.name
                why = kubernetes.reason(pod, "main") if pod.status.phase == "Pending" else ""
                if why and waiting.get(name) != why:
                    print(f"--- {step_of(pod)} ({name}) is waiting: {why}", flush=True)
                    waiting[name] = why
                elif not why and name not in done and _print(cluster, pod, follow=more):
                    done.add(name)
        if more:
            time.sleep(POLL_SECONDS)
    if not done and not waiting:
        what = f"step {step} of run {run}" if step else f"run {run}"
        raise InputError(
            f"{what}: no pod of it has a log in namespace {namespace}; {workflow_command(run, namespace)} says more; "
            "logs of pods that were cleaned up are in the UI, where they are archived"
        )


def workflow_command(run: str, namespace: str) -> str:
    """The command that shows what Kubernetes knows of the run as a whole."""
    return f"kubectl describe workflow --namespace {namespace} --selector {_RUN}={run}"


def reason(run: str, step: str | None, namespace: str) -> str:
    """Why the step (without a step: the run) failed, in a line: by its last pod, else by Argo's record of the run.

    Empty if Kubernetes cannot be asked or does not know.
    """
    try:
        cluster = kubernetes.connect(_RETRIES)
        with kubernetes.refusals("read the logs", namespace, _GRANT):
            failed = [pod for pod in _pods(cluster, run, step, namespace) if pod.status.phase == "Failed"]
            return (kubernetes.reason(failed[-1], "main") if failed else "") or _noted(cluster, run, namespace)
    except InputError:
        return ""


def _noted(cluster: Kubernetes, run: str, namespace: str) -> str:
    """What the run's Workflow says of the last pod that failed or was never made, for example without an account."""
    workflows = cluster.objects.list_namespaced_custom_object(
        "argoproj.io", "v1alpha1", namespace, "workflows", label_selector=f"{_RUN}={run}", _request_timeout=_SECONDS
    )
    status: Json = next((workflow.get("status", {}) for workflow in workflows["items"]), {})
    nodes = [
        node
        for node in status.get("nodes", {}).values()
        if node["type"] == "Pod" and node.get("phase") in {"Failed", "Error"} and node.get("message")
    ]
    last = max(nodes, key=lambda node: node.get("startedAt") or "", default=status)
    return " ".join(last.get("message", "").split())


def _pods(cluster: Kubernetes, run: str, step: str | None, namespace: str) -> list[Any]:
    """The pods that run steps, or only `step`, in the order of their creation."""
    pods = cluster.core.list_namespaced_pod(namespace, label_selector=f"{_RUN}={run}", _request_timeout=_SECONDS).items
    wanted = [pod for pod in pods if (name := step_of(pod)) and step in {None, name}]
    return sorted(wanted, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))


def step_of(pod: Any) -> str:
    """The step that a pod runs. For a driver that failed or waits, the step that it prepares; empty for other pods.

    Argo calls the node WORKFLOW.root.STEP.executor, and the driver, which runs before it, WORKFLOW.root.STEP-driver;
    the driver of the whole pipeline is WORKFLOW.root-driver. The name of a node that may be repeated ends in (N): in
    Pipelines 2.16 only that of the executor, in 2.17 that of every part.
    """
    node = (pod.metadata.annotations or {}).get("workflows.argoproj.io/node-name", "")
    match = re.search(r"\.([^.(]+?)(?:\(\d+\))?(\.executor|-driver)(?:\(\d+\))?$", node)
    return match[1] if match and (match[2] == ".executor" or pod.status.phase in {"Failed", "Pending"}) else ""


def _print(cluster: Kubernetes, pod: Any, *, follow: bool) -> bool:
    """Print the log of a pod. Returns whether there was a log to print."""
    # A step may print nothing for a long time.
    seconds = (_SECONDS[0], None) if follow else _SECONDS
    log = cluster.log(pod.metadata.name, "main", pod.metadata.namespace, follow=follow, _request_timeout=seconds)
    if log is None:
        return False
    print(f"--- {step_of(pod)} ({pod.metadata.name})", flush=True)
    for line in log:
        print(line.decode(errors="replace").rstrip("\n"), flush=True)
    return True
