"""Simulated controllers for a cluster that is only an API server: the Trainer, JobSet, Job, and a node.

They do only what the launcher can see. A TrainJob and its runtime become pods, named and labelled as by JobSet. The
commands of the pods run here as processes, with the environment and arguments of the pods. Their logs are served to the
API server as by a kubelet. A worker that fails fails its job, as by the rules of the runtime for a defect or bad input.
"""

from __future__ import annotations

import copy
import secrets
import subprocess
from datetime import UTC, datetime

from kubernetes_api import Json, KubernetesApi
from played_node import INDEX, NODE, Node
from servers import end, free_port, wait_until

_TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"


class PlayedTrainer:
    """The controllers of one namespace. Each method does one step of their work."""

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
        path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{self.namespace}/trainingruntimes/"
        runtime = self._api.call("GET", path + job["spec"]["runtimeRef"]["name"])["spec"]["template"]["spec"]
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
