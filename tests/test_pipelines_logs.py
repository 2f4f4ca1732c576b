"""Logs of a run, and why a step failed: Kubernetes's own client against a server of its routes and models."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import kubernetes.client as kube
import pytest
from kubeflow_server import STEPS, Kubeflow
from kubernetes_api import kubeconfig
from servers import Answering, Played

from calopipe.errors import InputError
from pipelines import submit
from pipelines.remote import logs, runs


@dataclass
class Cluster:
    """The pods of a namespace, and their logs."""

    pods: dict[str, kube.V1Pod] = field(default_factory=dict)
    logs: dict[str, list[bytes]] = field(default_factory=dict)
    """In chunks; between two, a log that is followed waits for `gone_on`."""
    gone_on: threading.Event = field(default_factory=threading.Event)
    workflows: list[dict[str, Any]] = field(default_factory=list)
    """As Argo keeps them, of the runs that their labels name."""
    refuse: int = 0

    def add(self, run: str, node: str, *logs: bytes, phase: str = "Running", **state: Any) -> kube.V1Pod:
        """A pod of the workflow's node, in the form in which Argo makes it."""
        name = f"calorimeter-x-{len(self.pods)}"
        status = kube.V1ContainerStatus(
            image="i", image_id="", name="main", ready=True, restart_count=0, state=kube.V1ContainerState(**state)
        )
        self.pods[name] = kube.V1Pod(
            metadata=kube.V1ObjectMeta(
                name=name,
                namespace="kubeflow",
                labels={"pipeline/runid": run},
                annotations={"workflows.argoproj.io/node-name": f"calorimeter-x.{node}"},
                creation_timestamp=f"2026-01-02T03:04:{len(self.pods):02}Z",
            ),
            status=kube.V1PodStatus(phase=phase, container_statuses=[status]),
        )
        self.logs[name] = list(logs)
        return self.pods[name]


class _Handler(Answering):
    server: Played
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802  as the library calls it
        cluster, address = self.server.state, urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        key, _, value = query.get("labelSelector", "").partition("=")
        place = address.path.removeprefix("/api/v1/namespaces/kubeflow/pods")
        if cluster.refuse:
            self._give(cluster.refuse, kube.V1Status(code=cluster.refuse, message="User cannot list resource pods"))
        elif place.endswith("/argoproj.io/v1alpha1/namespaces/kubeflow/workflows"):
            self._give(200, {"items": [one for one in cluster.workflows if one["metadata"]["labels"][key] == value]})
        elif place == "":
            found = [pod for pod in cluster.pods.values() if pod.metadata.labels[key] == value]
            self._give(200, kube.V1PodList(items=found))
        elif place.endswith("/log") and (log := cluster.logs.get(place.split("/")[1])):
            assert query["container"] == "main"
            self._stream(log, query.get("follow") == "True")
        else:  # as of a container that has not started
            self._give(400, kube.V1Status(code=400, message="container main is waiting to start"))

    def _give(self, status: int, document: Any) -> None:
        self.send(status, json.dumps(kube.ApiClient().sanitize_for_serialization(document)))
        self.close_connection = True

    def _stream(self, chunks: list[bytes], follow: bool) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, chunk in enumerate(chunks):
            if follow and number:
                self.server.state.gone_on.wait()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster()
    monkeypatch.setattr(runs, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    with Played(_Handler, cluster).serving(cluster.gone_on.set) as address:
        config = kubeconfig(tmp_path / "kubeconfig", address)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config))
        yield cluster


def ended(message: str) -> dict[str, Any]:
    return {"terminated": kube.V1ContainerStateTerminated(exit_code=2, message=message, reason="Error")}


def test_logs_of_every_step_in_order_or_of_one(
    kubeflow: Kubeflow, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kubeflow.begun(STEPS)
    cluster.add(run, "root.preprocess-driver", b"a driver says nothing of interest\n")
    cluster.add(run, "root.preprocess.executor", b"found 3 files\nand\xff more")
    late = cluster.add(run, "root.train.executor(1)", b"second try\n")
    late.metadata.creation_timestamp = "2026-01-02T03:04:59Z"  # which counts, and not the name
    cluster.add(run, "root.train.executor(0)", b"first try\n")
    cluster.add("another", "root.train.executor", b"of another run\n")
    cluster.add(run, "root.generate-driver", b"no such claim\n", phase="Failed")
    submit.main(["logs", run])
    assert capsys.readouterr().out.splitlines() == [
        "--- preprocess (calorimeter-x-1)", "found 3 files", "and\N{REPLACEMENT CHARACTER} more",
        "--- train (calorimeter-x-3)", "first try", "--- generate (calorimeter-x-5)", "no such claim",
        "--- train (calorimeter-x-2)", "second try",
    ]  # fmt: skip
    submit.main(["logs", run, "--step", "preprocess"])
    assert "try" not in capsys.readouterr().out
    with pytest.raises(InputError, match="--step fit: the run has no such step, only preprocess, train"):
        submit.main(["logs", run, "--step", "fit"])
    cluster.add(run, "root.validate.executor", phase="Pending", waiting=kube.V1ContainerStateWaiting(reason="NoImage"))
    submit.main(["logs", run, "--step", "validate"])
    assert capsys.readouterr().out == "--- validate (calorimeter-x-6) is waiting: NoImage\n"
    asking = f"in namespace kubeflow; kubectl describe workflow --namespace kubeflow --selector pipeline/runid={run}"
    with pytest.raises(InputError, match=f"step promote of run {run}: no pod of it has a log {asking} says more"):
        submit.main(["logs", run, "--step", "promote"])


def test_following_prints_each_line_as_it_comes_and_ends_with_the_run(
    kubeflow: Kubeflow, cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = kubeflow.begun(STEPS)
    waiting = kube.V1ContainerStateWaiting(reason="ImagePullBackOff", message="no such image")
    cluster.add(run, "root.preprocess.executor", b"one\ntw", b"o\n")
    pod = cluster.add(run, "root.preprocess.executor", b"three\n", phase="Pending", waiting=waiting)
    printed: list[str] = []

    def keep(*words: object, **more: Any) -> None:
        printed.append(" ".join(map(str, words)))
        if printed[-1] == "one":  # before the log goes on
            cluster.gone_on.set()
        if printed[-1].endswith("is waiting: no such image"):
            waiting.message = "no node"
        elif printed[-1].endswith("is waiting: no node"):
            pod.status.phase, pod.status.container_statuses[0].state = "Running", kube.V1ContainerState()

    monkeypatch.setattr("builtins.print", keep)
    submit.main(["logs", run, "--follow"])
    assert printed == [
        "--- preprocess (calorimeter-x-0)", "one", "two",
        "--- preprocess (calorimeter-x-1) is waiting: no such image",
        "--- preprocess (calorimeter-x-1) is waiting: no node", "--- preprocess (calorimeter-x-1)", "three",
    ]  # fmt: skip
    assert kubeflow.runs[run]["state"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("node", "phase", "step"),
    [
        ("x.root.generate-2.executor", "Running", "generate-2"),
        ("x.root.train-driver", "Succeeded", ""),
        ("x.root.train-driver", "Pending", "train"),
        (None, "Running", ""),
        # As Pipelines 2.17.0 leaves them, whose templates all have a retry strategy.
        ("x(0).root(0).train(1).executor(2)", "Running", "train"),
        ("x(0).root(0).train-driver(0)", "Failed", "train"),
    ],
)
def test_the_step_of_a_pod_is_in_the_name_of_its_node(node: str | None, phase: str, step: str) -> None:
    pod = Cluster().add("r", "", phase=phase)
    pod.metadata.annotations = node and {"workflows.argoproj.io/node-name": node}
    assert logs.step_of(pod) == step


@pytest.mark.parametrize(
    ("failing", "pods", "told"),
    [
        # The steps leave their one line as the container's termination message, which the API does not hand on.
        ("train", [("root.train.executor(0)", "an earlier try"),
                   ("root.train.executor(1)", "/data/x.h5: event 11:\nECAL holds nan")],
         r"step train failed: /data/x\.h5: event 11: ECAL holds nan"),
        ("start", [("root-driver", "no such pipeline root")], "run {} failed outside its steps: no such pipeline root"),
    ],
)  # fmt: skip
def test_why_a_run_failed_is_asked_of_the_last_pod(
    kubeflow: Kubeflow, cluster: Cluster, failing: str, pods: list[tuple[str, str]], told: str
) -> None:
    kubeflow.failing = failing
    run = kubeflow.begun(STEPS)
    for node, message in pods:
        cluster.add(run, node, phase="Failed", **ended(message))
    with pytest.raises(SystemExit, match=told.format(run)):
        submit.main(["status", run, "--wait"])


# As a kubelet leaves them: a container that SIGTERM ended, and one of a pod that it did not take.
KILLED = {"terminated": kube.V1ContainerStateTerminated(exit_code=143, reason="Error")}
INITIALIZING = {"waiting": kube.V1ContainerStateWaiting(reason="PodInitializing")}


@pytest.mark.parametrize(
    ("state", "status", "why"),
    [
        (KILLED, {}, "Error (exit code 143)"),
        (KILLED, {"message": "Node is shutting down."}, "Node is shutting down."),
        (ended("a.h5: no such file"), {"message": "Node is shutting down."}, "a.h5: no such file"),
        (INITIALIZING, {"reason": "OutOfcpu"}, "OutOfcpu"),
        (INITIALIZING, {}, ""),
        ({"terminated": kube.V1ContainerStateTerminated(exit_code=0, reason="Completed")}, {}, ""),
    ],
)
def test_reasons_that_the_step_could_not_give(
    cluster: Cluster, state: dict[str, Any], status: dict[str, str], why: str
) -> None:
    pod = cluster.add("r", "root.train.executor", phase="Failed", **state)
    for name, value in status.items():
        setattr(pod.status, name, value)
    assert logs.reason("r", "train", "kubeflow") == why


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([("Pod", "Error", "before", 4), ("Pod", "Failed", "the last", 5), ("Pod", "Error", "never made", None),
          ("Pod", "Succeeded", "well", 9), ("DAG", "Failed", "child failed", 9), ("Pod", "Failed", None, 9)],
         "the last"),
        ([("Pod", "Error", "never made", None), ("DAG", "Failed", "child failed", 9)], "never made"),
        ([("DAG", "Failed", "child failed", 9)], "of the whole"),
    ],
)  # fmt: skip
def test_argo_knows_of_the_last_pod_that_failed_and_else_of_the_whole(
    cluster: Cluster, nodes: list[tuple[str, str, str | None, int | None]], why: str
) -> None:
    """If no pod could be made, for example without an account, only Argo knows the reason."""
    kept = {
        str(number): {"type": kind, "phase": phase, "message": message, "startedAt": second and f"03:04:0{second}Z"}
        for number, (kind, phase, message, second) in enumerate(nodes)
    }
    status = {"phase": "Failed", "message": "of\nthe whole", "nodes": kept}
    cluster.workflows.append({"metadata": {"labels": {"pipeline/runid": "r"}}, "status": status})
    assert logs.reason("r", None, "kubeflow") == why
    assert logs.reason("s", None, "kubeflow") == ""


def test_a_log_that_is_followed_may_be_silent_for_long_and_one_that_is_read_may_not(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    pod, lines, played = cluster.add("r", "root.train.executor"), [b"  indented  \n", b"\n"], Mock()
    played.log.side_effect = [lines, lines, None]
    assert [logs._print(played, pod, follow=follow) for follow in (True, False, False)] == [True, True, False]
    asked = [call.kwargs for call in played.log.call_args_list]
    assert [which["_request_timeout"][1] is None for which in asked] == [True, False, False]
    assert [which["follow"] for which in asked] == [True, False, False]
    assert capsys.readouterr().out == 2 * "--- train (calorimeter-x-0)\n  indented  \n\n"


def test_kubernetes_that_refuses_or_is_not_there(
    kubeflow: Kubeflow, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = kubeflow.begun(STEPS)
    cluster.refuse = 403
    with pytest.raises(InputError, match=r"cannot read the logs .* \(403\); the right to list pods"):
        submit.main(["logs", run])
    assert logs.reason(run, "train", "kubeflow") == ""
    place = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    for text in ("{", "- a", "apiVersion: v1\ncurrent-context: x\ncontexts: 3"):
        (tmp_path / "config").write_text(text)
        monkeypatch.setattr(place, str(tmp_path / "config"))
        with pytest.raises(InputError, match=r"kubectl's configuration cannot be read|kubectl is not set up here"):
            submit.main(["logs", run])
        assert logs.reason(run, "train", "kubeflow") == ""
    monkeypatch.setattr(place, "/nowhere")
    with pytest.raises(InputError, match="kubectl is not set up here"):
        submit.main(["logs", run])
