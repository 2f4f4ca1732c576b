"""A simulated node: the containers of its pods are processes here, and their logs are served as by a kubelet."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from kubernetes_api import Json, KubernetesApi, self_signed
from servers import Answering, Played

NODE = "here"
INDEX = "batch.kubernetes.io/job-completion-index"


class Node:
    """A node of the cluster: runs the containers of pods as processes, and serves their logs."""

    def __init__(self, images: Mapping[str, Path], folder: Path) -> None:
        self._images, self._folder = images, folder
        self._logs: dict[tuple[str, str], list[tuple[float, str]]] = {}
        self._readers: dict[tuple[str, str], threading.Thread] = {}

    def start(self, pod: Json, hosts: Mapping[str, str]) -> subprocess.Popen[str]:
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
        """Serve /containerLogs, as kubelets do. Yields the port."""
        server = Played(_Logs, self, self_signed(folder, "kubelet"))
        with server.serving():
            yield server.server_port


class _Logs(Answering):
    server: Played

    def do_GET(self) -> None:  # noqa: N802  as the library calls it
        url = urlsplit(self.path)
        root, namespace, pod = url.path.strip("/").split("/")[:3]
        lines = self.server.state._logs.get((namespace, pod))
        if root != "containerLogs" or lines is None:
            self.send(404, "")
        else:
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            self.send(200, _served(list(lines), query))


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
