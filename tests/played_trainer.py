"""What nobody does in a cluster that is only an API server: the Trainer's, JobSet's and Job's part, and a node's.

As little as the launcher can see of them, from the objects that the API holds: a TrainJob and its runtime become pods,
named and labelled as JobSet does; their commands run here as processes with the environment and arguments that the
pods give them; their logs are served to the API server as a kubelet does; their ends are judged by the runtime's rules.
"""

from __future__ import annotations

import copy
import math
import os
import re
import secrets
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes_api import Json, KubernetesApi, self_signed
from servers import free_port

_NODE = "here"
_INDEX = "batch.kubernetes.io/job-completion-index"
_TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"
PATIENCE_S = 200.0  # for what takes seconds on a machine that does nothing else


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of `condition`."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}")


class Node:
    """A node of the cluster: runs the containers of pods as processes, and serves their logs."""

    def __init__(self, images: Mapping[str, Path], folder: Path) -> None:
        self._images, self._folder = images, folder
        self._logs: dict[tuple[str, str], list[tuple[float, str]]] = {}
        self._readers: dict[tuple[str, str], threading.Thread] = {}

    def start(self, pod: Json, hosts: Mapping[str, str]) -> subprocess.Popen[str]:
        """The process of `pod`. The names of its network do not exist here: `hosts` has other addresses for them."""
        container = pod["spec"]["containers"][0]
        variables = {each["name"]: _value(each, pod) for each in container["env"]}
        arguments = [_expanded(text, variables) for text in (*container["command"], *container["args"])]
        for name, address in hosts.items():
            arguments = [text.replace(name, address) for text in arguments]
        place = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(self._images[container["image"]]),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",  # tests share two cores
            "TERMINATION_LOG": str(self.termination_log(pod)),
        }
        self.termination_log(pod).touch()
        process = subprocess.Popen(
            arguments, env=place | variables, cwd=self._folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        self._logs[key] = []
        self._readers[key] = threading.Thread(target=self._read, args=(key, process), daemon=True)
        self._readers[key].start()
        return process

    def _read(self, key: tuple[str, str], process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._logs[key].append((time.time(), line.rstrip("\n")))

    def termination_log(self, pod: Json) -> Path:
        return self._folder / f"{pod['metadata']['name']}.termination-log"

    def end(self, pod: Json, process: subprocess.Popen[str]) -> Json:
        """The state of a container that has ended, as a kubelet writes it."""
        self._readers[pod["metadata"]["namespace"], pod["metadata"]["name"]].join()
        code = 128 - process.returncode if process.returncode < 0 else process.returncode
        message = self.termination_log(pod).read_text()
        policy = pod["spec"]["containers"][0]["terminationMessagePolicy"]
        if code and not message and policy == "FallbackToLogsOnError":
            log = self._logs[pod["metadata"]["namespace"], pod["metadata"]["name"]]
            message = "\n".join(text for _, text in log[-80:])[-2048:]
        return {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}

    @contextmanager
    def serve(self, folder: Path) -> Iterator[int]:
        """Serve /containerLogs, as kubelets do; the port."""
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                root, namespace, pod = url.path.strip("/").split("/")[:3]
                lines = node._logs.get((namespace, pod))
                found = root == "containerLogs" and lines is not None
                self.send_response(200 if found else 404)
                self.end_headers()
                if found and lines is not None:
                    query = {name: values[0] for name, values in parse_qs(url.query).items()}
                    self.wfile.write(_served(list(lines), query).encode())

            def log_message(self, *_: object) -> None:
                pass

        certificate, key = self_signed(folder, "kubelet")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()


def _served(lines: list[tuple[float, str]], query: Mapping[str, str]) -> str:
    since = time.time() - int(query["sinceSeconds"]) if "sinceSeconds" in query else 0.0
    lines = [line for line in lines if line[0] >= since]
    if "tailLines" in query:
        lines = lines[-int(query["tailLines"]) :]
    stamped = query.get("timestamps") == "true"
    return "".join(f"{_stamp(at)} {text}\n" if stamped else f"{text}\n" for at, text in lines)


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def _value(variable: Json, pod: Json) -> str:
    """The value of an environment variable; of what a pod says of itself, what the Job and our runtime name."""
    if "valueFrom" not in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    if "resourceFieldRef" in source:  # rounded up to whole processors, the divisor being 1
        limit = pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]
        return str(math.ceil(int(limit[:-1]) / 1000 if limit.endswith("m") else float(limit)))
    assert source["fieldRef"]["fieldPath"] == f"metadata.annotations['{_INDEX}']"
    return str(pod["metadata"]["annotations"][_INDEX])


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """`text` as Kubernetes gives it to a container: $(NAME) is a variable's value if there is one, $$ a dollar."""
    return re.sub(
        r"\$(\$|\(([^)]*)\))",
        lambda found: "$" if found[1] == "$" else variables.get(found[2], found[0]),
        text,
    )


class PlayedTrainer:
    """The controllers of one namespace; each step is taken when it is called."""

    def __init__(self, api: KubernetesApi, namespace: str, node: Node) -> None:
        self._api, self._node = api, node
        self.namespace = namespace
        self._jobs = _TRAINJOBS.format(namespace)
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._teams: dict[str, list[tuple[Json, subprocess.Popen[str]]]] = {}

    def jobs(self) -> list[Json]:
        """The TrainJobs there are, whoever made them."""
        return list(self._api.call("GET", self._jobs)["items"])

    def wait_for_job(self) -> Json:
        return wait_until(lambda: next((job for job in self.jobs() if not _going(job)), None), "a TrainJob")

    def schedule(self, job: Json, attempt: int = 0) -> list[Json]:
        """Make the pods of `job`, whose containers are about to be started."""
        template = self._template(job)
        nodes = range(job["spec"]["trainer"]["numNodes"])
        pods = [self._api.call("POST", self._pods, _pod(job, template, index, attempt)) for index in nodes]
        for pod in pods:
            self._report(pod, "Pending", {"waiting": {"reason": "ContainerCreating"}})
        return pods

    def start(self, job: Json, pods: list[Json] | None = None) -> list[subprocess.Popen[str]]:
        """Start the containers of `pods`, by default of new ones."""
        name = job["metadata"]["name"]
        pods = self.schedule(job) if pods is None else pods
        network = {f"{name}-node-0-{index}.{name}:2222": f"127.0.0.1:{free_port()}" for index in range(len(pods))}
        self._teams[name] = [(pod, self._node.start(pod, network)) for pod in pods]
        for pod in pods:
            self._report(pod, "Running", {"running": {}})
        return [process for _, process in self._teams[name]]

    def _runtime(self, job: Json) -> Json:
        path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{self.namespace}/trainingruntimes/"
        spec = self._api.call("GET", path + job["spec"]["runtimeRef"]["name"])["spec"]["template"]["spec"]
        return dict(spec)

    def _replicated_job(self, job: Json) -> Json:
        label = "trainer.kubeflow.org/trainjob-ancestor-step"
        jobs = self._runtime(job)["replicatedJobs"]
        return next(each["template"] for each in jobs if each["template"]["metadata"]["labels"][label] == "trainer")

    def _template(self, job: Json) -> Json:
        """The runtime's template of a pod with what the TrainJob says of it, as the Trainer joins them."""
        template = copy.deepcopy(self._replicated_job(job)["spec"]["template"])
        container = next(each for each in template["spec"]["containers"] if each["name"] == "node")
        trainer = job["spec"]["trainer"]
        container |= {name: trainer[name] for name in ("image", "command", "args") if name in trainer}
        container["resources"] = trainer["resourcesPerNode"]
        return dict(template)

    def _report(self, pod: Json, phase: str, state: Json) -> None:
        container = pod["spec"]["containers"][0]
        status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": phase == "Running"}
        body = {"status": {"phase": phase, "containerStatuses": [{**status, "restartCount": 0, "state": state}]}}
        path = f"{self._pods}/{pod['metadata']['name']}/status"
        self._api.call("PATCH", path, body, "strategic-merge-patch+json")

    def conclude(self, job: Json) -> str:
        """Wait until a worker has failed or all have ended, and do what the runtime says; what that was."""
        name = job["metadata"]["name"]
        team = self._teams[name]

        def over() -> bool:
            codes = [process.poll() for _, process in team]
            return any(codes) or None not in codes

        wait_until(over, "the end of a worker")
        codes = []
        for pod, process in team:
            if process.poll() is not None:
                end = self._node.end(pod, process)
                codes.append(end["exitCode"])
                self._report(pod, "Failed" if end["exitCode"] else "Succeeded", {"terminated": end})
        if not any(codes):
            self._condition(job, "Complete", "AllJobsCompleted", "jobset completed successfully")
            return "Complete"
        runtime, rules = self._runtime(job), self._replicated_job(job)["spec"]["podFailurePolicy"]["rules"]
        fatal = next(rule["onExitCodes"]["values"] for rule in rules if rule["action"] == "FailJob")
        reason = "PodFailurePolicy" if set(codes) & set(fatal) else "BackoffLimitExceeded"
        for pod, process in team:  # the Job controller deletes the pods that still run
            if self._end(process):
                self._remove(pod)
        if any(
            reason in r["onJobFailureReasons"] for r in runtime["failurePolicy"]["rules"] if r["action"] == "FailJobSet"
        ):
            self._condition(job, "Failed", "FailJobSetFailurePolicyAction", f"jobset failed due to {reason}")
            return "Failed"
        for pod, _ in team:
            self._remove(pod)
        return "Restart"

    def _condition(self, job: Json, kind: str, reason: str, message: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        path = f"{self._jobs}/{job['metadata']['name']}/status"
        self._api.call("PATCH", path, {"status": {"conditions": [condition]}}, "merge-patch+json")

    def is_going(self, job: Json) -> bool:
        """Whether `job` was deleted, be it that its pods are not yet gone."""
        found = self._api.find(f"{self._jobs}/{job['metadata']['name']}")
        return found is None or _going(found)

    def collect(self, job: Json) -> None:
        """Once `job` is deleted: its pods end and go before it, as it was asked to be deleted in the foreground."""
        name = job["metadata"]["name"]
        wait_until(partial(self.is_going, job), f"the deletion of TrainJob {name}")
        found = self._api.call("GET", f"{self._jobs}/{name}")
        assert found["metadata"]["finalizers"] == ["foregroundDeletion"]
        for pod, process in self._teams.pop(name, []):
            self._end(process)
            self._remove(pod)
        self._api.call("PATCH", f"{self._jobs}/{name}", {"metadata": {"finalizers": None}}, "merge-patch+json")

    def _end(self, process: subprocess.Popen[str]) -> bool:
        """End a process as a kubelet ends a container; whether it was still running."""
        if process.poll() is not None:
            return False
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return True

    def _remove(self, pod: Json) -> None:
        path = f"{self._pods}/{pod['metadata']['name']}"
        if self._api.find(path):
            self._api.call("DELETE", path, gracePeriodSeconds="0")

    def stop(self) -> None:
        """End what still runs, and clear away what is left."""
        for team in self._teams.values():
            for _, process in team:
                process.kill()
                process.wait()
        for job in self.jobs():
            path = f"{self._jobs}/{job['metadata']['name']}"
            self._api.call("PATCH", path, {"metadata": {"finalizers": None}}, "merge-patch+json")
            if self._api.find(path):
                self._api.call("DELETE", path)


def _going(job: Json) -> bool:
    return "deletionTimestamp" in job["metadata"]


def _pod(job: Json, template: Json, index: int, attempt: int) -> Json:
    """A pod of `job` as JobSet and Job make it of the template."""
    name = job["metadata"]["name"]
    labels = template["metadata"]["labels"] | {
        "jobset.sigs.k8s.io/jobset-name": name,
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        _INDEX: str(index),
    }
    spec = copy.deepcopy(template["spec"])
    field = {"fieldRef": {"fieldPath": f"metadata.annotations['{_INDEX}']"}}
    spec["containers"][0]["env"].append({"name": "JOB_COMPLETION_INDEX", "valueFrom": field})
    spec |= {"hostname": f"{name}-node-0-{index}", "subdomain": name, "nodeName": _NODE}
    metadata = {
        "name": f"{name}-node-0-{index}-{secrets.token_hex(3)[:5]}",
        "labels": labels,
        "annotations": {_INDEX: str(index)},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def register(api: KubernetesApi, kubelet_port: int) -> None:
    """Make the node known to the API server, which fetches logs from it."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NODE}}
    api.call("POST", "/api/v1/nodes", node)
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
    }
    api.call("PATCH", f"/api/v1/nodes/{_NODE}/status", {"status": status}, "strategic-merge-patch+json")
