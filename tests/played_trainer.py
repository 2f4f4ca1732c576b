"""Simulated controllers for a cluster that is only an API server: the Trainer, JobSet, Job, and a node.

They do only what the launcher can see. A TrainJob and its runtime become pods, named and labelled as by JobSet. The
commands of the pods run here as processes, with the environment and arguments of the pods. Their logs are served to the
API server as by a kubelet. A worker that fails fails its job, as by the rules of the runtime for a defect or bad input.
"""

from __future__ import annotations

import copy
import math
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from kubernetes_api import Json, KubernetesApi, self_signed
from servers import Answering, Played, end, free_port, wait_until

NODE = "here"
INDEX = "batch.kubernetes.io/job-completion-index"


class PlayedTrainer:
    """The controllers of one namespace. Each method does one step of their work."""

    def __init__(self, api: KubernetesApi, namespace: str, node: Node) -> None:
        self._api, self._node = api, node
        self.namespace = namespace
        self._kinds = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}"
        self._jobs = f"{self._kinds}/trainjobs"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._teams: dict[str, list[tuple[Json, subprocess.Popen[bytes]]]] = {}

    def jobs(self) -> list[Json]:
        """The TrainJobs there are, whoever made them."""
        return list(self._api.call("GET", self._jobs)["items"])

    def wait_for_job(self) -> Json:
        return wait_until(lambda: next(iter(self.jobs()), None), "a TrainJob")

    def start(self, job: Json) -> None:
        """Make the pods of `job`, and start their containers."""
        name, template = job["metadata"]["name"], self._template(job)
        nodes = range(job["spec"]["trainer"]["numNodes"])
        pods = [self._api.call("POST", self._pods, _pod(job, template, index)) for index in nodes]
        network = {f"{name}-node-0-{index}.{name}:2222": f"127.0.0.1:{free_port()}" for index in nodes}
        self._teams[name] = [(pod, self._node.start(pod, network)) for pod in pods]
        for pod in pods:
            self._report(pod, "Running", {"running": {}})

    def play(self) -> None:
        """Play a job from its creation to its deletion."""
        job = self.wait_for_job()
        self.start(job)
        self.conclude(job)
        self.collect(job)

    def _template(self, job: Json) -> Json:
        """The runtime's template of a pod with the settings of the TrainJob, joined as by the Trainer."""
        path = f"{self._kinds}/trainingruntimes/{job['spec']['runtimeRef']['name']}"
        runtime = self._api.call("GET", path)["spec"]["template"]["spec"]
        step = "trainer.kubeflow.org/trainjob-ancestor-step"
        jobs = [each["template"] for each in runtime["replicatedJobs"]]
        template = next(each for each in jobs if each["metadata"]["labels"][step] == "trainer")["spec"]["template"]
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

    def conclude(self, job: Json) -> None:
        """Wait until a worker has failed or all have ended: then `job` has failed, or is complete."""
        team = self._teams[job["metadata"]["name"]]

        def over() -> bool:
            codes = [process.poll() for _, process in team]
            return any(codes) or None not in codes

        wait_until(over, "the end of a worker")
        codes = []
        for pod, process in team:
            if process.poll() is not None:
                ended = self._node.end(pod, process)
                codes.append(ended["exitCode"])
                self._report(pod, "Failed" if ended["exitCode"] else "Succeeded", {"terminated": ended})
            else:  # the Job controller deletes the pods that still run
                end(process)
                self._remove(pod)
        if any(codes):
            self._condition(job, "Failed", "FailJobSetFailurePolicyAction", "jobset failed due to PodFailurePolicy")
        else:
            self._condition(job, "Complete", "AllJobsCompleted", "jobset completed successfully")

    def _condition(self, job: Json, kind: str, reason: str, message: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        path = f"{self._jobs}/{job['metadata']['name']}/status"
        self._api.call("PATCH", path, {"status": {"conditions": [condition]}}, "merge-patch+json")

    def collect(self, job: Json) -> None:
        """When `job` is deleted, end and remove its pods first, as in a deletion in the foreground."""
        path = f"{self._jobs}/{job['metadata']['name']}"
        wait_until(lambda: "deletionTimestamp" in self._api.call("GET", path)["metadata"], f"the deletion of {path}")
        assert self._api.call("GET", path)["metadata"]["finalizers"] == ["foregroundDeletion"]
        for pod, process in self._teams.pop(job["metadata"]["name"], []):
            end(process)
            self._remove(pod)
        self._api.call("PATCH", path, {"metadata": {"finalizers": None}}, "merge-patch+json")

    def _remove(self, pod: Json) -> None:
        path = f"{self._pods}/{pod['metadata']['name']}"
        if self._api.find(path):
            self._api.call("DELETE", path, gracePeriodSeconds="0")

    def stop(self) -> None:
        """End all running processes, and remove what is left."""
        for _, process in (each for team in self._teams.values() for each in team):
            process.kill()
            process.wait()
        for job in self.jobs():
            path = f"{self._jobs}/{job['metadata']['name']}"
            self._api.call("PATCH", path, {"metadata": {"finalizers": None}}, "merge-patch+json")
            if self._api.find(path):
                self._api.call("DELETE", path)


def _pod(job: Json, template: Json, index: int) -> Json:
    """A pod of `job` as JobSet and Job make it of the template."""
    name = job["metadata"]["name"]
    labels = template["metadata"]["labels"] | {
        "jobset.sigs.k8s.io/jobset-name": name,
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/restart-attempt": "0",
        INDEX: str(index),
    }
    spec = copy.deepcopy(template["spec"])
    field = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    spec["containers"][0]["env"].append({"name": "JOB_COMPLETION_INDEX", "valueFrom": field})
    spec |= {"hostname": f"{name}-node-0-{index}", "subdomain": name, "nodeName": NODE}
    metadata = {
        "name": f"{name}-node-0-{index}-{secrets.token_hex(3)[:5]}",
        "labels": labels,
        "annotations": {INDEX: str(index)},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Node:
    """A node of the cluster: runs the containers of pods as processes, and serves their logs."""

    def __init__(self, images: Mapping[str, Path], folder: Path) -> None:
        self._images, self._folder = images, folder

    def start(self, pod: Json, hosts: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """The process of `pod`. The names of its network do not exist here; `hosts` has addresses in place of them."""
        container = pod["spec"]["containers"][0]
        variables = {each["name"]: _value(each, pod) for each in container["env"]}
        arguments = [*container["command"], *container["args"]]  # in which no test has a $
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
        with self.log(pod["metadata"]["name"]).open("wb") as log:
            return subprocess.Popen(
                arguments, env=place | variables, cwd=self._folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def log(self, pod: str) -> Path:
        return self._folder / f"{pod}.log"

    def termination_log(self, pod: Json) -> Path:
        return self._folder / f"{pod['metadata']['name']}.termination-log"

    def end(self, pod: Json, process: subprocess.Popen[bytes]) -> Json:
        """The state of a container that has ended, as a kubelet writes it."""
        code = 128 - process.returncode if process.returncode < 0 else process.returncode
        message = self.termination_log(pod).read_text()
        policy = pod["spec"]["containers"][0]["terminationMessagePolicy"]
        if code and not message and policy == "FallbackToLogsOnError":
            lines = self.log(pod["metadata"]["name"]).read_text().splitlines()
            message = "\n".join(lines[-80:])[-2048:]
        return {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}

    @contextmanager
    def serve(self, folder: Path) -> Iterator[int]:
        """Serve /containerLogs, as kubelets do. Yields the port."""
        server = Played(_Logs, self, self_signed(folder, "kubelet"))
        with server.serving():
            yield server.server_port


class _Logs(Answering):
    server: Played

    def do_GET(self) -> None:  # noqa: N802  as the library calls it
        url = urlsplit(self.path)
        root, _, pod = url.path.strip("/").split("/")[:3]
        log, query = self.server.state.log(pod), parse_qs(url.query)
        if root != "containerLogs" or not log.exists():
            self.send(404, "")
        else:
            # The whole log, whatever is asked for; its lines are a nanosecond apart.
            text, _, _ = log.read_text().rpartition("\n")
            stamp = ("2026-01-01T00:00:00.{:09}Z " if query.get("timestamps") == ["true"] else "").format
            self.send(200, "".join(f"{stamp(number)}{line}\n" for number, line in enumerate(text.splitlines())))


def _value(variable: Json, pod: Json) -> str:
    """The value of an environment variable. Of a pod's own fields, only those are known that Job and runtime name."""
    if "valueFrom" not in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    if "resourceFieldRef" in source:  # rounded up to whole processors, the divisor being 1
        limit = pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]
        return str(math.ceil(int(limit[:-1]) / 1000 if limit.endswith("m") else float(limit)))
    assert source["fieldRef"]["fieldPath"] == f"metadata.annotations['{INDEX}']"
    return str(pod["metadata"]["annotations"][INDEX])


def register(api: KubernetesApi, kubelet_port: int) -> None:
    """Make the node known to the API server, which fetches logs from it."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    api.call("POST", "/api/v1/nodes", node)
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
    }
    api.call("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, "strategic-merge-patch+json")
