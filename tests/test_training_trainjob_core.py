"""The parts of the launcher that need no cluster: names, the request, and which worker's end is reported."""

from __future__ import annotations

import json
import signal
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import kubernetes.client as kube
import pytest
import urllib3
import yaml
from kubernetes.client import ApiException, V1ContainerStateTerminated, V1ContainerStateWaiting, V1Pod
from kubernetes_api import kubeconfig

from calopipe import kubernetes
from calopipe.errors import InputError
from calopipe.kubernetes import Kubernetes
from training.nodes import trainapi, trainjob
from training.nodes.trainapi import TrainJobs, pod_state, this_pod, worker_end, workers
from training.nodes.trainjob import job_name, manifest
from training.nodes.workers import most_telling

_DNS_LABEL = 63
_SETTINGS: dict[str, Any] = {
    "nodes": 2, "image": "i:1", "resources": {"cpu": "4"}, "runtime": "calopipe",
    "arguments": ["fit", "--output", "/data/$(m) $$HOME $"],
}  # fmt: skip


def test_names_are_those_of_the_training_and_of_jobsets_pods() -> None:
    assert job_name("a") != job_name("b")
    # of a pod of a thousand, as JobSet names them: the longest name that is made of it
    assert len(f"{job_name('a')}-node-0-999-abcde") <= _DNS_LABEL


def test_the_request_tells_two_jobs_apart() -> None:
    changes = [{}, {"nodes": 3}, {"image": "i:2"}, {"arguments": []}, {"resources": {}}, {"runtime": "other"}]
    jobs = [manifest("job", **{**_SETTINGS, **change}) for change in (*changes, {})]
    assert len({str(job["metadata"]["annotations"]) for job in jobs}) == len(changes)


def test_each_node_is_promised_what_it_may_use_under_the_runtime_that_is_named() -> None:
    spec = json.loads(json.dumps(manifest("job", **{**_SETTINGS, "runtime": "team"})))["spec"]
    assert (spec["runtimeRef"]["name"], spec["runtimeRef"]["kind"]) == ("team", "TrainingRuntime")
    assert (spec["trainer"]["numNodes"], spec["trainer"]["image"]) == (2, "i:1")
    assert spec["trainer"]["resourcesPerNode"] == {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    hosts = "job-node-0-0.job:2222,job-node-0-1.job:2222"
    escaped = "/data/$$(m) $$$$HOME $$"  # which leaves nothing to expand
    assert spec["trainer"]["args"] == ["fit", "--output", escaped, "--hosts", hosts]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({0: 1, 1: 2}, 1),
        ({0: 76, 1: 137}, 1),  # killed
        ({0: 76, 1: 75}, 1),
        ({0: 143, 1: 1}, 1),
        ({1: 1, 0: 1}, 0),
    ],
)
def test_the_end_that_tells_most_is_that_of_the_cause(codes: dict[int, int], expected: int) -> None:
    assert most_telling(codes) == expected


def test_of_the_pods_of_a_worker_the_newest_counts() -> None:
    pods = [_worker(0, uid="new"), _worker(0, uid="old"), _worker(1, uid="other"), _worker(2, uid="no worker")]
    pods[1].metadata.creation_timestamp -= timedelta(seconds=1)
    pods[3].metadata.annotations = None
    assert {index: found.metadata.uid for index, found in workers(pods).items()} == {0: "new", 1: "other"}


def _container(name: str = "node", **state: Any) -> kube.V1ContainerStatus:
    return kube.V1ContainerStatus(
        name=name, image="", image_id="", ready=False, restart_count=0, state=kube.V1ContainerState(**state)
    )


_LACKING = kube.V1PodCondition(type="PodScheduled", status="False", message="0/3 nodes: Insufficient nvidia.com/gpu")


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"phase": "Pending", "conditions": [_LACKING]}, "waits for a node: 0/3 nodes: Insufficient nvidia.com/gpu"),
        ({"phase": "Pending"}, "pending"),
        ({"phase": "Pending", "container_statuses": [_container(waiting=V1ContainerStateWaiting(reason="Creating"))]},
         "waits: Creating"),
        # not taken by its node: a kubelet leaves the container of such a pod as it was, waiting
        ({"phase": "Failed", "message": "Pod was rejected: cpu",
          "container_statuses": [_container(waiting=V1ContainerStateWaiting(reason="PodInitializing"))]},
         "failed: Pod was rejected: cpu"),
    ],
)  # fmt: skip
def test_a_pod_that_does_not_run_says_why(status: dict[str, Any], told: str) -> None:
    pod = V1Pod(status=kube.V1PodStatus(**status))
    assert pod_state(pod) == told
    assert worker_end(pod) is None


# --- looking at the workers


def _worker(index: int, code: int | None = None, reason: str = "Error", message: str = "", uid: str = "p") -> V1Pod:
    """The pod of a worker, with another container that ended well. Without a `code` the worker still runs."""
    end = V1ContainerStateTerminated(exit_code=code, reason=reason, message=message) if code is not None else None
    sidecar = _container("sidecar", terminated=V1ContainerStateTerminated(exit_code=0))
    annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
    made = datetime(2026, 1, 1, tzinfo=UTC)
    return V1Pod(
        metadata=kube.V1ObjectMeta(name=f"pod-{index}", uid=uid, annotations=annotations, creation_timestamp=made),
        status=kube.V1PodStatus(phase="Running", container_statuses=[sidecar, _container(terminated=end)]),
    )


def test_a_line_of_a_log_is_printed_once_wherever_two_looks_overlap(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a clock of the test: each request asks for all lines since the last answered request, and some before."""
    looks: list[tuple[float, list[str] | None, list[str]]] = [
        (100.0, ["1 a", "2 b"], ["a", "b"]), (112.7, ["1 a", "2 b", "3 b", "4 d"], ["b", "d"]), (120.0, None, []),
        (130.0, ["4 d"], []), (135.0, ["4 d", "5 e e", "6"], ["e e", ""]),
    ]  # fmt: skip
    clock, log = [0.0], Mock(side_effect=[*(answer for _, answer, _ in looks), ["1 f"]])
    monkeypatch.setattr(trainjob, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    shown = trainjob._Log(SimpleNamespace(log=log))  # type: ignore[arg-type]
    for moment, _, lines in looks:
        clock[0] = moment
        shown.print_new(_worker(0))
        assert capsys.readouterr().out.splitlines() == lines
    shown.print_new(_worker(0, uid="another"))  # of another attempt, whose clock may be behind
    assert capsys.readouterr().out == "f\n"
    since = [call.kwargs.get("since_seconds") for call in log.call_args_list]
    assert since[0] is since[-1] is None
    for found, least in zip(since[1:-1], (12.7, 7.3, 17.3, 5.0), strict=True):
        assert least <= found <= least + 10


@pytest.mark.parametrize(
    ("ends", "kind", "told", "log_of"),
    [
        ([(76, "Error", "lost"), (1, "Error", "x\nthe sum is off\n \n")], RuntimeError,
         r"worker 1 of TrainJob j has failed \(exit code 1\): the sum is off$", "pod-1"),
        ([(1, "Error", "the first"), (76, "Error", "lost")], RuntimeError,
         r"worker 0 of TrainJob j has failed \(exit code 1\): the first$", ""),
        ([(0, "Completed", ""), (137, "OOMKilled", "")], RuntimeError,
         r"worker 1 of TrainJob j has failed \(exit code 137, OOMKilled\): see the log above", "pod-1"),
        ([(2, "Error", "error: a.h5: no such file")], InputError, r"^a\.h5: no such file$", ""),
        ([(2, "Error", "")], InputError, "worker 0 of TrainJob j: bad input", ""),
        ([(0, "Completed", "")], RuntimeError, "no worker is left to say why: too many restarts", ""),
    ],
)  # fmt: skip
def test_a_job_fails_by_the_worker_that_caused_it(
    ends: list[tuple[int, str, str]], kind: type[Exception], told: str, log_of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [_worker(index, *end) for index, end in enumerate(ends)]
    conditions = [{"type": "Suspended", "message": "no"}, {"type": "Failed", "message": "too many restarts"}]
    job = {"metadata": {"name": "j"}, "status": {"conditions": conditions}}
    jobs = SimpleNamespace(pods=lambda _: pods, log=lambda name, tail_lines: [f"{name} of {tail_lines}"])
    with pytest.raises(kind, match=told):
        raise trainjob._failure(jobs, job)  # type: ignore[arg-type]
    shown = capsys.readouterr().err
    assert shown == (f"worker 1: {log_of} of {trainjob._LINES_SHOWN}\n" if log_of else "")


# --- taking a job up


def _job(*conditions: tuple[str, str], nodes: int = 2, **metadata: str) -> dict[str, Any]:
    job = manifest("j", **{**_SETTINGS, "nodes": nodes})
    job["status"] = {"conditions": [{"type": kind, "status": status} for kind, status in conditions]}
    return {**job, "metadata": {**job["metadata"], **metadata}}


@pytest.mark.parametrize(
    ("earlier", "done"),
    [
        (_job(), []),
        (_job(("Complete", "True")), []),
        (_job(("Failed", "False")), []),
        (None, ["create"]),
        (_job(("Failed", "True")), ["create", "delete", "pause", "create"]),
        (_job(("Complete", "True"), nodes=3), ["create", "delete", "pause", "create"]),
        (_job(nodes=3, deletionTimestamp="now"), ["create", "pause", "create"]),
    ],
)
def test_a_job_that_is_there_is_followed_or_made_anew(earlier: dict[str, Any] | None, done: list[str]) -> None:
    jobs, owner = Mock(), {"uid": "u"}
    jobs.create.side_effect, jobs.get.return_value = [*[None] * (earlier is not None), "made"], earlier
    jobs.add_owner.return_value = "owned"
    assert trainjob._attach(jobs, _job(), owner) == ("made" if done else "owned")
    assert [name for name, *_ in jobs.mock_calls if name != "get"] == (done or ["create", "add_owner"])
    assert jobs.create.call_args.args[0]["metadata"]["ownerReferences"] == [owner]
    assert done or jobs.add_owner.call_args == call(earlier, owner)
    assert all(asked == call(earlier) for asked in jobs.delete.call_args_list)


def test_a_job_that_changes_as_it_is_taken_up_is_read_again_and_one_of_another_request_left() -> None:
    jobs = Mock(namespace="team")
    jobs.create.return_value, jobs.get.return_value, jobs.add_owner.side_effect = None, _job(), [None, "owned"]
    assert trainjob._attach(jobs, _job(), {"uid": "u"}) == "owned"
    assert [name for name, *_ in jobs.mock_calls] == [
        "create",
        "get",
        "add_owner",
        "pause",
        "create",
        "get",
        "add_owner",
    ]
    assert trainjob._attach(jobs, _job(), None) is jobs.get.return_value
    jobs.get.return_value = _job(nodes=3)
    with pytest.raises(InputError, match="TrainJob j in namespace team runs this training with another image"):
        trainjob._attach(jobs, _job(), None)
    assert not jobs.delete.called


@pytest.mark.parametrize("now", [None, _job(uid="2"), _job(uid="1", deletionTimestamp="now")])
def test_a_job_that_is_deleted_or_replaced_is_told_of(now: dict[str, Any] | None) -> None:
    jobs = Mock()
    jobs.get.return_value, jobs.pods.return_value, jobs.pause.side_effect = now, [], RuntimeError("followed on")
    with pytest.raises(InputError, match="TrainJob j was deleted by somebody else"):
        trainjob._watch(jobs, _job(uid="1"))


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_a_job_is_followed_until_it_ends(end: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Changes of its workers' states are printed, in the order of workers; the log is that of the first worker."""
    looks = [_job(("Failed", "False"), uid="1"), _job(uid="1"), _job((end, "True"), uid="1")]
    teams = [[_worker(1), _worker(0)], [_worker(1, code=75), _worker(0)], [_worker(1, code=0), _worker(0, code=0)]]
    for pod, phase in ((teams[1][0], "Failed"), *((pod, "Succeeded") for pod in teams[2])):
        pod.status.phase = phase
    logs = [["1 a"], ["1 a", "2 b"], ["2 b", "3 c"]]
    jobs = Mock()
    jobs.get.side_effect, jobs.pods.side_effect, jobs.log.side_effect = looks, teams, logs
    assert trainjob._is(trainjob._watch(jobs, _job(uid="1")), end)
    assert jobs.pause.call_count == 2
    assert {call.args for call in jobs.log.call_args_list} == {("pod-0",)}
    said = capsys.readouterr()
    assert said.out.splitlines() == ["a", "b", "c"]
    assert said.err.splitlines() == [
        "worker 0 running, worker 1 running",
        "worker 0 running, worker 1 failed: Error (exit code 75)",  # after which all may be started again
        "worker 0 succeeded, worker 1 succeeded",
    ]


# --- a job that gets no pods

_REFUSED = "TrainJobResourcesCreationFailed", 'webhook "v" denied:\n  invalid name'  # as Trainer 2.2 reports JobSet's


def _look_at_start(
    monkeypatch: pytest.MonkeyPatch, *warnings: tuple[str, str, str], after_s: float, pods: tuple[V1Pod, ...] = ()
) -> None:
    """Three looks at a job that must have pods within five minutes: two at once, and one after so much time."""
    now, looks = [50.0], iter((0.0, after_s, None))
    monkeypatch.setattr(trainjob, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def pause() -> None:
        if (passed := next(looks)) is None:
            raise InputError("followed on")
        now[0] += passed

    events = [
        SimpleNamespace(involved_object=SimpleNamespace(kind=kind, name="j"), reason=reason, message=message)
        for kind, reason, message in warnings
    ]
    jobs = SimpleNamespace(get=lambda _: _job(uid="1"), pods=lambda _: pods, warnings=lambda _: events)
    jobs.log, jobs.pause = lambda *_, **__: [], pause
    trainjob._watch(jobs, _job(uid="1"))  # type: ignore[arg-type]


def test_a_job_whose_jobset_is_refused_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends when the job is late. Before, or if there are pods, the refusal may be a conflict that passes."""
    why = 'TrainJobResourcesCreationFailed: webhook "v" denied: invalid name'
    with pytest.raises(InputError) as error:
        _look_at_start(monkeypatch, ("TrainJob", *_REFUSED), after_s=300.0)
    assert str(error.value) == f"TrainJob j has no pod after 300 s: {why}"
    assert capsys.readouterr().err.splitlines() == [f"TrainJob j: {why}"]
    for after_s, pods in ((299.0, ()), (300.0, (_worker(0),))):
        with pytest.raises(InputError, match="followed on"):
            _look_at_start(monkeypatch, ("TrainJob", *_REFUSED), after_s=after_s, pods=pods)


def test_a_job_that_waits_for_a_quota_or_is_said_nothing_of_is_told_of_once_and_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for warnings, told in (
        ([("Job", "FailedCreate", "exceeded quota: team")], "Job j: FailedCreate: exceeded quota: team"),
        ([], "TrainJob j has no pod yet, and no event says why; does the Trainer's controller run?"),
    ):
        with pytest.raises(InputError, match="followed on"):
            _look_at_start(monkeypatch, *warnings, after_s=300.0)
        assert capsys.readouterr().err.splitlines() == [told]


@pytest.mark.parametrize(
    ("signals", "deadline_s", "end"),
    [
        ([], 100.0, nullcontext()),
        ([signal.SIGINT], 100.0, pytest.raises(SystemExit, match="130")),
        ([signal.SIGTERM, signal.SIGINT], 100.0, pytest.raises(SystemExit, match="75")),
        ([], 3.0, pytest.raises(InputError, match="did not end within 3 s")),
    ],
)
def test_a_pause_ends_at_the_next_look_a_signal_or_the_deadline(
    signals: list[int], deadline_s: float, end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [50.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(trainjob, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    pause = trainjob._pause_until(signals, deadline_s)
    with end:
        pause()
    assert now[0] - 50.0 == pytest.approx(0.0 if signals else min(5.0, deadline_s), abs=0.21)


# --- asking the API


def _refused(status: int, message: str = "no", kind: str = "Status") -> ApiException:
    """An error answer of the API server; without a `kind`, the answer of another program, which has no Status."""
    error = ApiException(status=status, reason="R")
    error.body = json.dumps({"kind": kind, "message": message}) if kind else "page not found"
    return error


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An API server whose routes a test sets, and a clock that each pause moves by a minute."""
    played = SimpleNamespace(core=SimpleNamespace(), objects=SimpleNamespace(), now=0.0, pauses=0)
    server = Kubernetes("https://server", "team", played.core, played.objects)
    monkeypatch.setattr("calopipe.kubernetes.connect", lambda **_: server)
    monkeypatch.setattr(trainapi, "time", SimpleNamespace(monotonic=lambda: played.now))

    def pause() -> None:
        played.now += 60.0
        played.pauses += 1

    played.jobs = lambda patience_s=150.0: TrainJobs(pause, patience_s)
    return played


def test_a_server_that_is_away_is_asked_again_for_so_long(
    api: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    away = [_refused(503), _refused(429), urllib3.exceptions.ProtocolError("cut")]
    api.objects.get_namespaced_custom_object = Mock(side_effect=[*away, {"metadata": {}}])
    assert api.jobs(patience_s=180.5).get("j") == {"metadata": {}}
    assert api.pauses == 3
    assert capsys.readouterr().err.count("trying on") == 1
    api.objects.get_namespaced_custom_object = Mock(side_effect=_refused(500))
    with pytest.raises(InputError, match="the Kubernetes API at https://server does not answer: 500 R"):
        api.jobs().get("j")
    assert api.pauses == 3 + 3  # 0, 60 and 120 s are within 150 s, 180 s are not


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (_refused(404), ""),
        (_refused(404, kind=""), "Kubeflow Trainer is not installed"),
        (_refused(409), r"cannot get TrainJob j in namespace team: no \(409\)"),
        (_refused(401), r"does not accept these credentials \(401\)"),
        (_refused(403, message='User "u" cannot get'), r"\(403\); grant it as in deploy/base/rbac\.yaml"),
        (_refused(403, message="denied by a webhook"), r"denied by a webhook \(403\)$"),
    ],
)
def test_a_refusal_is_told_of_at_once(api: SimpleNamespace, error: ApiException, told: str) -> None:
    api.objects.get_namespaced_custom_object = Mock(side_effect=error)
    if told:
        with pytest.raises(InputError, match=told):
            api.jobs().get("j")
    else:
        assert api.jobs().get("j") is None
    assert api.pauses == 0


def test_a_name_that_is_taken_makes_no_job_and_a_deletion_concerns_one_job(api: SimpleNamespace) -> None:
    api.objects.create_namespaced_custom_object = Mock(side_effect=_refused(409))
    api.objects.delete_namespaced_custom_object = Mock(side_effect=_refused(409))
    assert api.jobs().create({"metadata": {"name": "j"}}) is None
    api.jobs().delete({"metadata": {"name": "j", "uid": "u"}})
    asked = api.objects.delete_namespaced_custom_object.call_args.kwargs
    assert (asked["namespace"], asked["name"], asked["body"].preconditions.uid) == ("team", "j", "u")
    assert asked["body"].propagation_policy == "Foreground"


def test_an_owner_is_added_to_those_there_are_once(api: SimpleNamespace) -> None:
    patch = api.objects.patch_namespaced_custom_object = Mock(return_value="changed")
    first, second = {"uid": "1"}, {"uid": "2"}
    job = {"metadata": {"name": "j", "resourceVersion": "7", "ownerReferences": [first]}}
    assert api.jobs().add_owner(job, dict(first)) is job
    assert api.jobs().add_owner(job, second) == "changed"
    (asked,) = patch.call_args_list
    assert asked.kwargs["body"] == {"metadata": {"resourceVersion": "7", "ownerReferences": [first, second]}}
    for status in (404, 409):
        patch.side_effect = _refused(status)
        assert api.jobs().add_owner(job, second) is None


def test_warnings_are_those_of_the_job_and_what_is_made_of_it_since_the_oldest_first(api: SimpleNamespace) -> None:
    made = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def event(name: str, after_s: int) -> SimpleNamespace:
        metadata = SimpleNamespace(creation_timestamp=made + timedelta(seconds=after_s))
        return SimpleNamespace(involved_object=SimpleNamespace(name=name), metadata=metadata)

    events = [event("j-node-0", 2), event("j", 0), event("j", -1), event("ji", 1), event("i-j", 1), event("j", 1)]
    api.core.list_namespaced_event = Mock(return_value=SimpleNamespace(items=events))
    job = {"metadata": {"name": "j", "creationTimestamp": "2026-01-02T03:04:05Z"}}
    assert api.jobs().warnings(job) == [events[1], events[5], events[0]]
    api.core.list_namespaced_event = Mock(side_effect=urllib3.exceptions.ProtocolError("cut"))
    assert api.jobs().warnings(job) == []


def test_a_log_that_cannot_be_read_stops_nothing_and_is_told_of_once(
    api: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = api.jobs()
    denied = _refused(403, message='User "u" cannot get resource "pods/log"')
    lines = SimpleNamespace(data=b"one\ntw\xffo")
    api.core.read_namespaced_pod_log = Mock(side_effect=[_refused(400), _refused(500), denied, denied, lines])
    assert [jobs.log("p") for _ in range(5)] == [None, None, None, None, ["one", "tw\N{REPLACEMENT CHARACTER}o"]]
    assert capsys.readouterr().err.count("training goes on without its log here") == 1


def test_the_pod_of_a_step_is_known_by_its_name_and_its_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, uid in (("", ""), ("step", ""), ("", "u"), ("step", "u")):
        monkeypatch.setenv("KFP_POD_NAME", name)
        monkeypatch.setenv("KFP_POD_UID", uid)
        whole = {"apiVersion": "v1", "kind": "Pod", "name": "step", "uid": "u"}
        assert this_pod() == (whole if name and uid else None)


@pytest.mark.parametrize(("context", "namespace"), [({}, "default"), ({"namespace": "team"}, "team")])
def test_the_namespace_is_that_of_kubectls_context(
    context: dict[str, str], namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(tmp_path / "config", "http://api:1")
    config = yaml.safe_load(path.read_text())
    other, named = {"name": "other", "context": {"namespace": "other"}}, {"cluster": "test", "user": "test"}
    path.write_text(json.dumps(config | {"contexts": [other, {"name": "test", "context": named | context}]}))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    cluster = kubernetes.connect(retries=False)
    assert (cluster.server, cluster.namespace) == ("http://api:1", namespace)
