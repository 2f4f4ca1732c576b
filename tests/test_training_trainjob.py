"""Training on several hosts, against a real API server, under the role in deploy/. Controllers are simulated."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import kube_config
from kubernetes_api import Json, KubernetesApi, install, kubernetes_api, trainer_definitions
from played_trainer import Node, PlayedTrainer, register
from servers import PATIENCE_S, together, wait_until
from showers import make_dataset, make_file
from trainings import same_training

from calopipe.errors import BAD_INPUT_EXIT_CODE
from components.image import IMAGE
from training.nodes.trainapi import TrainJobs
from training.nodes.workers import PREEMPTED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # of which a first build of the server may take most

_ROOT = Path(__file__).parent.parent
_BASE = _ROOT / "deploy" / "base"
_RUNTIME = _ROOT / "deploy" / "nodes" / "training-runtime.yaml"
_DEPLOY = [_BASE / "account.yaml", _BASE / "rbac.yaml", _RUNTIME]
_ACCOUNT = "launcher"

_LAUNCHER = """
import json, sys
from calopipe.errors import one_line_errors
from training.nodes import trainjob
trainjob._EVERY_S = 0.2
with one_line_errors():
    trainjob.launch(trainjob.manifest(**json.loads(sys.argv[1])), deadline_s=120)
"""

# The image of a program that does what it is told, in place of training.
_STAND_IN = "stand-in:1"
_STAND_IN_PROGRAM = """
import os, sys, time
from pathlib import Path
index, peers = os.environ["JOB_COMPLETION_INDEX"], sys.argv[sys.argv.index("--hosts") + 1].split(",")
print(f"worker {index} of {len(peers)} is up", flush=True)
exec(sys.argv[1])
"""


def _manifests(path: Path) -> list[Json]:
    return list(yaml.safe_load_all(path.read_text()))


@dataclass(frozen=True)
class Launcher:
    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    def end(self, code: int) -> str:
        """Everything that the launcher printed, after it has ended with this exit code."""
        assert self.process.wait(PATIENCE_S) == code, self.said()
        return self.said()

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.said() or self.process.poll() is not None, repr(text))
        assert text in self.said()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Place:
    """A namespace with the manifests of deploy/, and launchers in it that have no other rights."""

    api: KubernetesApi
    trainer: PlayedTrainer
    folder: Path  # in which workers and test exchange messages, too
    kubeconfig: Path
    launchers: list[Launcher] = field(default_factory=list)

    def launch(self, program: str = "", *, wrapper: Sequence[str] = (), **settings: Any) -> Launcher:
        """A launcher of a training, by default of one whose two workers run `program`; `wrapper` starts its process."""
        settings = {
            "name": "this", "nodes": 2, "image": _STAND_IN, "arguments": [program], "resources": {"cpu": "1"},
            "runtime": "calopipe", **settings,
        }  # fmt: skip
        log = self.folder / f"launcher-{len(self.launchers)}.log"
        command = [*wrapper, sys.executable, "-c", _LAUNCHER, json.dumps(settings)]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(_ROOT)}
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=_ROOT, env=environment)
        self.launchers.append(Launcher(process, log))
        return self.launchers[-1]

    def pod(self, name: str) -> tuple[str, Sequence[str]]:
        """The uid of a new pod, and the prefix that starts a launcher with the environment of Kubeflow Pipelines."""
        container = {"name": "main", "image": "step:1"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        uid = self.api.call("POST", f"/api/v1/namespaces/{self.trainer.namespace}/pods", pod)["metadata"]["uid"]
        return uid, ["env", f"KFP_POD_NAME={name}", f"KFP_POD_UID={uid}"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KubernetesApi, Node]]:
    folder = tmp_path_factory.mktemp("cluster")
    stand_in = folder / "stand-in"
    (stand_in / "training").mkdir(parents=True)
    (stand_in / "training" / "__main__.py").write_text(_STAND_IN_PROGRAM)
    node = Node({IMAGE: _ROOT, _STAND_IN: stand_in}, folder)
    with kubernetes_api(folder) as api, node.serve(folder) as port:
        for definition in trainer_definitions():
            install(api, definition)
        register(api, port)
        yield api, node


@pytest.fixture
def place(cluster: tuple[KubernetesApi, Node], tmp_path: Path) -> Iterator[Place]:
    api, node = cluster
    namespace = f"test-{secrets.token_hex(4)}"
    api.make_namespace(namespace, _ACCOUNT)
    for manifest in (manifest for path in _DEPLOY for manifest in _manifests(path)):
        api.apply(manifest, namespace)
    # An account that has no rights but the launcher's, where calopipe has more.
    _, binding = _manifests(_BASE / "rbac.yaml")
    binding |= {"metadata": {"name": _ACCOUNT}, "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT}]}
    api.apply(binding, namespace)
    kubeconfig = api.kubeconfig(tmp_path / "kubeconfig", namespace, api.token(namespace, _ACCOUNT))
    place = Place(api, PlayedTrainer(api, namespace, node), tmp_path, kubeconfig)
    _wait_for_right(place, "create", "trainer.kubeflow.org", "trainjobs", granted=True)
    try:
        yield place
    finally:
        for launcher in place.launchers:
            launcher.kill()
        place.trainer.stop()


def _wait_for_right(place: Place, verb: str, group: str, resource: str, *, granted: bool) -> None:
    """The server learns of a role a moment after it is written."""
    resource, _, part = resource.partition("/")
    about = {
        "namespace": place.trainer.namespace, "verb": verb, "group": group, "resource": resource, "subresource": part
    }  # fmt: skip
    user = f"system:serviceaccount:{place.trainer.namespace}:{_ACCOUNT}"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    review |= {"spec": {"user": user, "resourceAttributes": about}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    wait_until(lambda: place.api.call("POST", path, review)["status"]["allowed"] == granted, f"the right to {verb}")


# --- to a good end


def test_two_workers_train_together_as_two_processes_do(place: Place) -> None:
    make_file(place.folder / "mc.h5", events=60)
    dataset, output = place.folder / "dataset", place.folder / "model"
    make_dataset(dataset, place.folder / "mc.h5")
    more = ("--config", "small", "--steps", "2")
    arguments = ["fit", "--dataset", str(dataset), "--output", str(output), *more]
    launcher = place.launch(image=IMAGE, arguments=arguments)
    place.trainer.play()
    assert f"model: {output}" in launcher.end(0)  # the first worker's last line
    assert place.trainer.jobs() == []
    processes = [
        sys.executable,
        "-m",
        "training",
        "fit",
        "--dataset",
        dataset,
        "--output",
        place.folder / "alone",
        *more,
    ]
    threads = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}  # as the runtime has it of the processors
    together([str(each) for each in processes], **threads)
    same_training(output, place.folder / "alone")


def test_a_launcher_that_was_killed_goes_on_with_its_job(place: Place) -> None:
    done = place.folder / "done"
    program = f"while not Path({str(done)!r}).exists(): time.sleep(0.1)\nprint('finished')"
    first = place.launch(program)
    job = place.trainer.wait_for_job()
    first.kill()
    place.trainer.start(job)
    second = place.launch(program)
    second.wait_for("is there already; following it")
    done.touch()
    place.trainer.conclude(job)
    assert [each["metadata"]["uid"] for each in place.trainer.jobs()] == [job["metadata"]["uid"]]
    place.trainer.collect(job)
    assert "finished" in second.end(0)
    assert place.trainer.jobs() == []


def test_an_owner_that_was_not_seen_is_not_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job gets an owner after it was read: it must be read again."""
    first = place.launch(wrapper=place.pod("a")[1])
    job = place.trainer.wait_for_job()
    first.kill()
    other, mine = ({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": place.pod(name)[0]} for name in ("b", "c"))
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{place.trainer.namespace}/trainjobs/"
    path += job["metadata"]["name"]
    change = {"metadata": {"ownerReferences": [*job["metadata"]["ownerReferences"], other]}}
    changed = place.api.call("PATCH", path, change, "merge-patch+json")
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(place.kubeconfig))
    jobs = TrainJobs(lambda: None, 0.0)
    assert jobs.add_owner(job, mine) is None
    owned = jobs.add_owner(changed, mine)
    assert owned is not None
    assert [each["name"] for each in owned["metadata"]["ownerReferences"]] == ["a", "b", "c"]


def test_in_a_pod_the_credentials_are_those_of_its_service_account(place: Place) -> None:
    for name, content in {
        "namespace": place.trainer.namespace,
        "token": place.api.token(place.trainer.namespace, _ACCOUNT),
        "ca.crt": place.api.authority.read_text(),
    }.items():
        (place.folder / name).write_text(content)
    place.kubeconfig.unlink()
    address, _, port = place.api.url.removeprefix("https://").partition(":")
    # A file system of its own for the launcher, in which a pod's files are where Kubernetes puts them.
    mounted = "/run/secrets/kubernetes.io/serviceaccount"
    prepare = f'mount -t tmpfs none /run && mkdir -p {mounted} && cd "$0" && cp namespace token ca.crt {mounted}'
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c", prepare + ' && exec "$@"', str(place.folder)]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts of one's own can be made here")
    environment = ["env", f"KUBERNETES_SERVICE_HOST={address}", f"KUBERNETES_SERVICE_PORT={port}"]
    launcher = place.launch(wrapper=[*inside, *environment])
    place.trainer.play()
    launcher.end(0)


# --- to a bad end


def test_a_job_that_fails_is_deleted_and_its_last_lines_are_shown(place: Place) -> None:
    launcher = place.launch("if index == '1': raise ArithmeticError('the sum is off')\ntime.sleep(60)")
    place.trainer.play()
    said = launcher.end(1)
    assert "worker 1: worker 1 of 2 is up\n" in said
    assert "worker 1: ArithmeticError: the sum is off\n" in said
    assert said.splitlines()[-1].endswith("has failed (exit code 1): ArithmeticError: the sum is off")
    assert place.trainer.jobs() == []


def test_a_launcher_that_is_told_to_stop_deletes_its_job(place: Place) -> None:
    launcher = place.launch("time.sleep(60)")
    job = place.trainer.wait_for_job()
    place.trainer.start(job)
    launcher.process.terminate()
    place.trainer.collect(job)
    assert "is deleted" in launcher.end(PREEMPTED)
    assert place.trainer.jobs() == []


# --- what the cluster lacks


_RIGHTS = [
    (group, resource, verb)
    for rule in _manifests(_BASE / "rbac.yaml")[0]["rules"]
    for group in rule["apiGroups"]
    for resource in rule["resources"]
    for verb in rule["verbs"]
]


@pytest.mark.parametrize(("group", "resource", "verb"), _RIGHTS)
def test_one_right_less_is_told_of(place: Place, group: str, resource: str, verb: str) -> None:
    role, _ = _manifests(_BASE / "rbac.yaml")
    role["rules"] = [
        {"apiGroups": [right[0]], "resources": [right[1]], "verbs": [right[2]]}
        for right in _RIGHTS
        if right != (group, resource, verb)
    ]
    place.api.apply(role, place.trainer.namespace)
    _wait_for_right(place, verb, group, resource, granted=False)
    done = place.folder / "done"
    program = f"while not Path({str(done)!r}).exists(): time.sleep(0.1)"
    launcher = place.launch(program, wrapper=place.pod("one")[1])
    if verb == "patch":  # to take a job up
        place.trainer.wait_for_job()
        launcher.kill()
        launcher = place.launch(program, wrapper=place.pod("two")[1])
    trained = verb == "delete" or resource in {"events", "pods/log"}  # the others are needed before there is an end
    if trained:
        job = place.trainer.wait_for_job()
        if resource == "events":  # which are asked for while there is no pod
            launcher.wait_for("training goes on without its events here")
        place.trainer.start(job)
        if resource == "pods/log":
            launcher.wait_for("training goes on without its log here")
        done.touch()
        place.trainer.conclude(job)
    said = launcher.end(0 if trained else BAD_INPUT_EXIT_CODE)
    assert said.count(f'cannot {verb} resource "{resource}" in API group "{group}"') == 1
    assert "grant it as in deploy/base/rbac.yaml" in said
    assert "Traceback" not in said


def test_a_cluster_without_the_trainer_is_told_of(place: Place) -> None:
    [definition] = [each for each in trainer_definitions() if each["spec"]["names"]["plural"] == "trainjobs"]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    place.api.call("DELETE", path)
    wait_until(lambda: place.api.find(path) is None, "the end of the definition")
    try:
        said = place.launch().end(BAD_INPUT_EXIT_CODE)
        assert "Traceback" not in said
        assert "Kubeflow Trainer is not installed" in said.splitlines()[-1]
    finally:
        install(place.api, definition)
