"""The manifests of deploy/: Kubernetes takes them, they fit together, and they grant only the needed rights."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from guides import commands, guide
from kubernetes_api import Json, KubernetesApi, RefusedError, install, kubernetes_api, trainer_definitions
from servers import said, wait_until

from calopipe.errors import BAD_INPUT_EXIT_CODE
from components.image import IMAGE
from pipelines.cluster.resources import STEPS
from training.nodes.trainjob import PORT, manifest

_ROOT = Path(__file__).parent.parent
_DEPLOY = _ROOT / "deploy"
_NAMESPACE = "kubeflow"


# --- the manifests, which have to agree with each other and with the program


def _manifest(name: str, kind: str) -> Json:
    documents = yaml.safe_load_all((_DEPLOY / f"{name}.yaml").read_text())
    return next(each for each in documents if each["kind"] == kind)


def _worker_template(runtime: Json | None = None) -> Json:
    runtime = runtime or _manifest("nodes/training-runtime", "TrainingRuntime")
    [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return dict(job["template"]["spec"]["template"])


def test_only_workers_reach_workers_and_at_their_port() -> None:
    policy = _manifest("nodes/network-policy", "NetworkPolicy")["spec"]
    labels = policy["podSelector"]["matchLabels"]
    assert labels.items() <= _worker_template()["metadata"]["labels"].items()
    workers = {"from": [{"podSelector": {"matchLabels": labels}}], "ports": [{"protocol": "TCP", "port": PORT}]}
    assert policy["ingress"] == [workers]


def _command_of_the_guide(beginning: str) -> list[str]:
    (command,) = (each for each in commands(guide("docs/kubeflow.md")) if each.startswith(beginning))
    return shlex.split(command)


def _built(folder: Path) -> list[Json]:
    """The manifests of the kustomization in `folder`, in the order in which they are applied."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing, which builds what is applied")
    return list(yaml.safe_load_all(said("kubectl", "kustomize", folder)))


def _overlay(folder: Path, **more: object) -> Path:
    """A kustomization in `folder` as the guide describes one of the reader's own."""
    folder.mkdir()
    resources = [os.path.relpath(_DEPLOY / name, folder.resolve()) for name in ("base", "nodes")]
    components = [os.path.relpath(_DEPLOY / "volume", folder.resolve())]
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    overlay = kind | {"resources": resources, "components": components} | more
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return folder


def test_whoever_mounts_the_volume_finds_the_same_one_at_the_same_place(tmp_path: Path) -> None:
    built = {each["kind"]: each for each in _built(_overlay(tmp_path / "overlay"))}
    claim = built["PersistentVolumeClaim"]["metadata"]["name"]
    for spec in (_worker_template(built["TrainingRuntime"])["spec"], built["Pod"]["spec"]):
        [volume] = [each["name"] for each in spec["volumes"] if each.get("persistentVolumeClaim")]
        assert {"name": volume, "persistentVolumeClaim": {"claimName": claim}} in spec["volumes"]
        assert {"name": volume, "mountPath": "/data"} in spec["containers"][0]["volumeMounts"]


def test_without_the_volume_nothing_speaks_of_one() -> None:
    for each in [*_built(_DEPLOY / "base"), *_built(_DEPLOY / "nodes")]:
        assert "persistentVolumeClaim" not in yaml.safe_dump(each)
        assert each["kind"] not in {"PersistentVolumeClaim", "Pod"}


def test_an_overlay_may_put_all_into_another_namespace(tmp_path: Path) -> None:
    built = _built(_overlay(tmp_path / "overlay", namespace="profile"))
    assert {each["metadata"]["namespace"] for each in built} == {"profile"}
    subjects = [subject for each in built for subject in each.get("subjects", ())]
    assert {(subject["name"], subject["namespace"]) for subject in subjects} == {("calopipe", "profile")}


def test_the_overlay_of_gke_is_kubeflow_pipelines_and_the_base(tmp_path: Path) -> None:
    """A namespace, which is applied first, stands for Kubeflow Pipelines, whose manifests are on GitHub."""
    deploy = shutil.copytree(_DEPLOY, tmp_path / "deploy")
    resources = yaml.safe_load((deploy / "pipelines/kustomization.yaml").read_text())["resources"]
    assert [address.partition("?ref=")[2] for address in resources] == ["2.17.0"] * 2
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    (deploy / "pipelines/it.yaml").write_text(yaml.safe_dump(namespace))
    (deploy / "pipelines/kustomization.yaml").write_text("resources: [it.yaml]\n")
    first, *others = _built(deploy / "overlays/gke")
    assert first == namespace
    assert sorted(map(yaml.safe_dump, others)) == sorted(map(yaml.safe_dump, _built(_DEPLOY / "base")))


def test_jobset_takes_the_rule_by_which_a_defect_and_bad_input_end_a_job() -> None:
    """JobSet's webhook (pkg/webhooks/jobset_webhook.go) judges the rule only when a TrainJob starts.

    A worker that was stopped, lost another, or was ended by a signal counts as BackoffLimitExceeded: all start again.
    """
    runtime = _manifest("nodes/training-runtime", "TrainingRuntime")["spec"]["template"]["spec"]
    [rule], [job] = runtime["failurePolicy"]["rules"], runtime["replicatedJobs"]
    assert re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])
    assert (rule["action"], rule["targetReplicatedJobs"]) == ("FailJobSet", [job["name"]])
    assert set(rule["onJobFailureReasons"]) == {"PodFailurePolicy", "DeadlineExceeded"}
    rules = job["template"]["spec"]["podFailurePolicy"]["rules"]
    [fatal] = [rule["onExitCodes"] for rule in rules if rule["action"] == "FailJob"]
    assert (fatal["operator"], fatal["values"]) == ("In", [1, BAD_INPUT_EXIT_CODE])


def test_the_patch_of_the_guide_leaves_no_policy_of_attempts_and_all_else(tmp_path: Path) -> None:
    """Tested by kubectl, on a config map like that of Kubeflow Pipelines 2.17.0, which also has other settings."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing")
    defaults = {
        "ttlStrategy": {"secondsAfterCompletion": 3600},
        "templateDefaults": {"retryStrategy": {"limit": 2, "retryPolicy": "OnError"}},
    }
    data = {"workflowDefaults": yaml.safe_dump({"spec": defaults}), "executor": "imagePullPolicy: IfNotPresent\n"}
    _, _, kind, name, *options = _command_of_the_guide("kubectl patch configmap ")
    metadata = {"name": name, "namespace": _NAMESPACE}
    stored = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    path = tmp_path / "map.yaml"
    path.write_text(yaml.safe_dump(stored))
    local = ["kubectl", "patch", "--local", "--filename", path, "--output", "yaml", *options]
    patched = yaml.safe_load(said(*local))
    assert (kind, patched["metadata"]["namespace"]) == ("configmap", _NAMESPACE)
    assert patched["data"]["executor"] == data["executor"]
    kept = {"spec": {"ttlStrategy": {"secondsAfterCompletion": 86400}}}
    assert yaml.safe_load(patched["data"]["workflowDefaults"]) == kept


def test_pods_have_the_image_of_the_steps_and_run_as_long_as_training_does_by_default() -> None:
    assert _manifest("volume/data-pod", "Pod")["spec"]["containers"][0]["image"] == IMAGE
    [job] = _manifest("nodes/training-runtime", "TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["activeDeadlineSeconds"] == STEPS["train"].seconds


# --- the manifests as a real API server sees them


@dataclass(frozen=True)
class Cluster:
    """An API server with the Trainer's kinds, and the namespace of Pipelines, which takes only confined pods."""

    api: KubernetesApi
    kubeconfig: Path

    def kubectl(self, *arguments: str, given: str = "") -> str:
        return said("kubectl", "--kubeconfig", self.kubeconfig, *arguments, input=given)

    def rules(self, account: str) -> set[tuple[str, ...]]:
        """What a service account may do in the namespace: group, resource, name and verb."""
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
        review |= {"spec": {"namespace": _NAMESPACE}}
        theirs = replace(self.api, admin_token=self.api.token(_NAMESPACE, account))
        answer = theirs.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
        return {
            (group, resource, name, verb)
            for rule in answer["status"]["resourceRules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for name in rule.get("resourceNames", [""])
            for verb in rule["verbs"]
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing, which builds the overlays")
    folder = tmp_path_factory.mktemp("cluster")
    with kubernetes_api(folder) as api:
        for definition in trainer_definitions():
            install(api, definition)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        api.make_namespace(_NAMESPACE, "pipeline-runner", "nobody", **labels)
        cluster = Cluster(api, api.kubeconfig(folder / "kubeconfig", _NAMESPACE, api.admin_token))
        # As the guide has it.
        for folder in ("overlays/kind", "nodes"):
            cluster.kubectl("apply", "--server-side", "--validate=strict", "-k", str(_DEPLOY / folder))
        yield cluster


@pytest.mark.slow
def test_the_api_server_takes_an_overlay_with_all(cluster: Cluster, tmp_path: Path) -> None:
    """It has names of its own, since a claim cannot be changed, and another image, as in the guide."""
    folder = _overlay(tmp_path / "overlay", namespace=_NAMESPACE)
    built = cluster.kubectl("kustomize", str(folder))
    renamed = built.replace("name: calopipe", f"name: it-{secrets.token_hex(2)}").replace(IMAGE, "elsewhere/it:1")
    done = cluster.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", given=renamed)
    assert len(done.splitlines()) == len(_built(folder))


@pytest.mark.slow
def test_every_container_requests_disk_and_has_no_limit_of_it(cluster: Cluster) -> None:
    """For a pod as Kubeflow makes it of a step. A container's own settings do not change."""
    confined = _worker_template()["spec"]["containers"][0]["securityContext"]
    amounts = {"cpu": "2", "memory": "2Gi"}
    own = {"requests": {"ephemeral-storage": "3Gi"}}
    stated = {"main": {"requests": amounts, "limits": amounts}, "wait": {}, "own": own}
    init, *others = [
        {"name": name, "image": IMAGE, "securityContext": confined, "resources": asked}
        for name, asked in {"init": {}, **stated}.items()
    ]
    spec = {"initContainers": [init], "containers": others, "serviceAccountName": "calopipe"}
    spec["securityContext"] = _worker_template()["spec"]["securityContext"]
    name = f"step-{secrets.token_hex(4)}"
    pod = cluster.api.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, _NAMESPACE)
    made = {each["name"]: each["resources"] for each in pod["spec"]["initContainers"] + pod["spec"]["containers"]}
    asked = {"requests": {"ephemeral-storage": "1Gi"}}
    main = {"requests": amounts | asked["requests"], "limits": amounts}
    assert made == {"init": asked, "main": main, "wait": asked, "own": own}


_TRAINER_RULES = {
    *(("trainer.kubeflow.org", "trainjobs", "", verb) for verb in ("create", "get", "patch", "delete")),
    ("", "pods", "", "list"),
    ("", "events", "", "list"),
    ("", "pods/log", "", "get"),
}
_RUN_RULES = {
    *(("argoproj.io", "workflowtaskresults", "", verb) for verb in ("create", "patch")),
    ("", "configmaps", "kfp-launcher", "get"),
    ("", "secrets", "mlpipeline-minio-artifact", "get"),
    *(("", "pods", "", verb) for verb in ("get", "list")),
}


@pytest.mark.slow
def test_accounts_have_their_rights_and_no_others(cluster: Cluster) -> None:
    """Every account may also ask for its own rights."""
    anybody = cluster.rules("nobody")
    reviews = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
    assert {resource for _, resource, *_ in anybody} == reviews
    wait_until(lambda: cluster.rules("calopipe") - anybody == _TRAINER_RULES | _RUN_RULES, "the rights")
    assert cluster.rules("pipeline-runner") == anybody
    cluster.kubectl(*_command_of_the_guide("kubectl create rolebinding ")[1:])
    wait_until(lambda: cluster.rules("pipeline-runner") - anybody == _TRAINER_RULES, "the rights")


def _worker_pod() -> Json:
    """The pod that Trainer and JobSet make of the runtime and a TrainJob."""
    job = manifest("job", nodes=2, image=IMAGE, arguments=[], resources={"cpu": "1"}, runtime="calopipe")
    template = _worker_template()
    template["spec"]["containers"][0] |= {"image": IMAGE, "command": job["spec"]["trainer"]["command"]}
    name = f"worker-{secrets.token_hex(4)}"
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": name}}


@pytest.mark.slow
def test_workers_pass_where_only_confined_pods_do(cluster: Cluster) -> None:
    """The pod of the volume is part of the overlay, so it has passed already."""
    worker = cluster.api.apply(_worker_pod(), _NAMESPACE)
    assert worker["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] == "1Gi"
    pod = _worker_pod()
    del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
    with pytest.raises(RefusedError, match="violates PodSecurity"):
        cluster.api.apply(pod, _NAMESPACE)
