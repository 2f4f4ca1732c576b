"""The parts of the launcher that need no cluster: names, the request, which worker's end tells most."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes.client import (
    V1ContainerState,
    V1ContainerStateWaiting,
    V1ContainerStatus,
    V1ObjectMeta,
    V1Pod,
    V1PodCondition,
    V1PodStatus,
)

from calopipe.errors import InputError
from training.nodes.trainapi import pod_state, workers
from training.nodes.trainjob import addresses, job_name, launch, manifest
from training.nodes.workers import most_telling

_DNS_LABEL = 63
_SETTINGS: dict[str, Any] = {
    "nodes": 2,
    "image": "i:1",
    "arguments": ["fit", "--output", "/data/$(m)"],
    "resources": {"cpu": "4"},
    "runtime": "calopipe",
}


def test_a_training_has_one_name_and_two_have_two() -> None:
    assert job_name("a") == job_name("a")
    assert job_name("a") != job_name("b")
    # of a pod of a thousand, as JobSet names them: the longest name that is made of it
    assert len(f"{job_name('a')}-node-0-999-abcde") <= _DNS_LABEL


def test_workers_are_addressed_as_jobset_names_their_pods() -> None:
    assert addresses("job", 2) == ["job-node-0-0.job:2222", "job-node-0-1.job:2222"]


def test_the_request_tells_two_jobs_apart() -> None:
    def request(**changed: Any) -> str:
        return str(manifest("job", **{**_SETTINGS, **changed})["metadata"]["annotations"])

    changes = [{"nodes": 3}, {"image": "i:2"}, {"arguments": []}, {"resources": {}}, {"runtime": "other"}]
    assert request() == request()
    assert len({request(), *(request(**change) for change in changes)}) == len(changes) + 1


def test_the_manifest_is_json_and_leaves_nothing_to_expand() -> None:
    trainer = json.loads(json.dumps(manifest("job", **_SETTINGS)))["spec"]["trainer"]
    assert trainer["args"] == [
        "fit", "--output", "/data/$$(m)", "--hosts", "job-node-0-0.job:2222,job-node-0-1.job:2222"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({0: 76, 1: 2}, 1),  # the first one only saw the other end
        ({0: 76, 1: 1}, 1),
        ({0: 1, 1: 2}, 1),
        ({0: 76, 1: 137}, 1),  # killed
        ({0: 75, 1: 76}, 0),
        ({0: 76, 1: 75}, 1),
        ({0: 143, 1: 1}, 1),
        ({1: 1, 0: 1}, 0),
    ],
)
def test_the_end_that_tells_most_is_that_of_the_cause(codes: dict[int, int], expected: int) -> None:
    assert most_telling(codes) == expected


def test_of_the_pods_of_a_worker_the_newest_counts() -> None:
    def pod(name: str, index: str | None, age_s: int) -> V1Pod:
        annotations = None if index is None else {"batch.kubernetes.io/job-completion-index": index}
        made = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=age_s)
        return V1Pod(metadata=V1ObjectMeta(name=name, annotations=annotations, creation_timestamp=made))

    pods = [pod("new", "0", 1), pod("old", "0", 9), pod("other", "1", 5), pod("no worker", None, 0)]
    assert {index: found.metadata.name for index, found in workers(pods).items()} == {0: "new", 1: "other"}


def test_a_pod_that_finds_no_node_says_why() -> None:
    lacking = V1PodCondition(type="PodScheduled", status="False", message="0/3 nodes: Insufficient nvidia.com/gpu")
    pod = V1Pod(status=V1PodStatus(phase="Pending", conditions=[lacking]))
    assert pod_state(pod) == "waits for a node: 0/3 nodes: Insufficient nvidia.com/gpu"
    assert pod_state(V1Pod(status=V1PodStatus(phase="Pending"))) == "pending"


def test_a_pod_that_its_node_did_not_take_says_why() -> None:
    """A kubelet leaves the container of such a pod as it was, waiting."""
    waiting = V1ContainerState(waiting=V1ContainerStateWaiting(reason="PodInitializing"))
    node = V1ContainerStatus(name="node", image="", image_id="", ready=False, restart_count=0, state=waiting)
    said = "Pod was rejected: Node didn't have enough resource: cpu"
    pod = V1Pod(status=V1PodStatus(phase="Failed", message=said, container_statuses=[node]))
    assert pod_state(pod) == f"failed: {said}"


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"deadline_s": 0.0}])
def test_a_launch_of_nothing_is_refused_before_the_cluster_is_asked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="at least 1 node"):
        launch(**{"training": "t", "deadline_s": 1.0, **_SETTINGS, **wrong})
