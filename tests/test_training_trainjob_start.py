"""A TrainJob that gets no pods: Kubernetes's own client against a server of its routes and models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kubernetes.client as kube
import pytest
from kubernetes_api import Answering, played

from calopipe.errors import InputError
from training.nodes.trainjob import job_name, launch

NAME = job_name("t")
MADE = "2026-01-02T03:04:05Z"
# As Trainer 2.2 reports what JobSet's webhook says.
REFUSED = (
    'TrainJob resources reconciliation failed: admission webhook "vjobset.kb.io" denied the request:\n'
    "invalid failure policy rule name 'a-b'"
)


@dataclass
class Cluster:
    """A namespace in which a TrainJob is kept and nothing is made of it."""

    job: dict[str, Any] | None = None
    events: list[kube.CoreV1Event] = field(default_factory=list)
    pods: list[kube.V1Pod] = field(default_factory=list)
    refuse_events: bool = False

    def warn(self, name: str, reason: str, message: str, *, kind: str = "TrainJob", made: str = MADE) -> None:
        metadata = kube.V1ObjectMeta(name=f"{name}.{len(self.events)}", creation_timestamp=made)
        about = kube.V1ObjectReference(kind=kind, name=name)
        self.events.append(kube.CoreV1Event(involved_object=about, metadata=metadata, reason=reason, message=message))

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path.endswith("/pods"):
            return 200, kube.V1PodList(items=self.pods)
        if path.endswith("/events"):
            said = kube.V1Status(code=403, message='User "u" cannot list resource "events" in API group ""')
            return (403, said) if self.refuse_events else (200, kube.CoreV1EventList(items=self.events))
        if method == "POST":
            self.job = {**body, "metadata": {**body["metadata"], "uid": "u", "creationTimestamp": MADE}}
        found, self.job = self.job, None if method == "DELETE" else self.job
        return (200, found) if found else (404, kube.V1Status(code=404))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster()

    class Handler(Answering):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send(*cluster.answer(self.command, self.path.partition("?")[0], body and json.loads(body)))

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815

    with played(ThreadingHTTPServer(("127.0.0.1", 0), Handler), tmp_path):
        yield cluster


def _launch(start_s: float, deadline_s: float = 20.0) -> None:
    launch(
        training="t", nodes=2, image="i:1", arguments=[], resources={"cpu": "1"}, deadline_s=deadline_s, every_s=0.02,
        start_s=start_s,
    )  # fmt: skip


def test_a_job_whose_jobset_is_refused_ends_with_the_reason(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.warn(NAME, "Old", "of a job of this name that is gone", made="2026-01-02T03:04:04Z")
    cluster.warn("calopipe-other", "Other", "of another job")
    cluster.warn(NAME, "TrainJobResourcesCreationFailed", REFUSED)
    with pytest.raises(InputError) as error:
        _launch(start_s=0.3)
    why = f"TrainJobResourcesCreationFailed: {' '.join(REFUSED.split())}"
    assert str(error.value) == f"TrainJob {NAME} has no pod after 0.3 s: {why}"
    assert capsys.readouterr().err.splitlines() == [
        f"TrainJob {NAME} is created in namespace default",
        f"TrainJob {NAME}: {why}",
        f"TrainJob {NAME} is deleted",
    ]
    assert cluster.job is None


def test_a_job_that_waits_for_a_quota_is_told_of_and_waits(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.warn(f"{NAME}-node-0", "FailedCreate", "exceeded quota: team", kind="Job")
    with pytest.raises(InputError, match="did not end within 1 s"):
        _launch(start_s=0.1, deadline_s=1)
    assert f"Job {NAME}-node-0: FailedCreate: exceeded quota: team\n" in capsys.readouterr().err


def test_a_job_of_which_nothing_is_said_is_told_of_once(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="did not end within 1 s"):
        _launch(start_s=0.1, deadline_s=1)
    assert capsys.readouterr().err.count("has no pod yet, and no event says why") == 1


def test_events_that_may_not_be_listed_stop_nothing(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.refuse_events = True
    with pytest.raises(InputError, match="did not end within 1 s"):
        _launch(start_s=10, deadline_s=1)
    said = "grant it as in deploy/base/rbac.yaml; training goes on without its events"
    assert capsys.readouterr().err.count(said) == 1


def test_warnings_of_a_job_with_pods_end_nothing(cluster: Cluster) -> None:
    cluster.warn(NAME, "TrainJobResourcesCreationFailed", "a conflict, once")
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    metadata = kube.V1ObjectMeta(name=f"{NAME}-node-0-0-x", uid="p", creation_timestamp=MADE, annotations=index)
    cluster.pods.append(kube.V1Pod(metadata=metadata, status=kube.V1PodStatus(phase="Running")))
    with pytest.raises(InputError, match="did not end within 1 s"):
        _launch(start_s=0.1, deadline_s=1)
