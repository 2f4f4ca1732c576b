"""What deploy/ and its guides promise: manifests that Kubernetes takes, rights and no more, commands that exist."""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

import pytest
import yaml
from kubernetes_api import Json, KubernetesApi, RefusedError, install, kubernetes_api, trainer_definitions
from played_trainer import wait_until

import preprocessing.__main__
import training.__main__
from components.image import IMAGE
from pipelines import parameters, submit
from pipelines.checks import check
from pipelines.cluster.platform import platform_of
from pipelines.cluster.resources import LAUNCHER, STEPS, Resources
from training.nodes.trainjob import PORT, manifest

_ROOT = Path(__file__).parent.parent
_BASE = _ROOT / "deploy" / "base"
_OVERLAYS = ("kind", "gke")
_GUIDES = ("docs/kubeflow.md", "docs/troubleshooting.md", "docs/kubeflow-access.md")
_NAMESPACE = "kubeflow"
# What the guides leave to the reader, as a shell has it.
_VARIABLES = {"PROJECT": "project", "REGION": "region", "ZONE": "zone", "BUCKET": "bucket", "IMAGE": "registry/image:1"}


# --- the guides


def _commands(document: str) -> list[str]:
    """The commands of the `bash` blocks, with continued lines joined and comments left out."""
    blocks = re.findall(r"```bash\n(.*?)```", (_ROOT / document).read_text(), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.partition(" #")[0].strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def _python(document: str) -> list[list[str]]:
    """The arguments of the commands that start with `python `, or run one in the pod of the volume."""
    found = (re.search(r"(?:^| -- )python (.*)", command) for command in _commands(document))
    return [shlex.split(Template(each[1]).substitute(_VARIABLES)) for each in found if each]


@pytest.mark.parametrize("document", _GUIDES)
def test_every_command_of_a_guide_is_understood(document: str) -> None:
    """Also what it says of the cluster, and the pipeline's parameters as far as they can be checked from afar."""
    parsers = {"training": training.__main__.parser, "preprocessing": preprocessing.__main__.parser}
    for program, *arguments in _python(document):
        if program == "-m":
            module, *rest = arguments
            parsers[module]().parse_args(rest)
            continue
        assert program == "pipelines/submit.py"
        options = submit.parser().parse_args(arguments)
        platform = platform_of(options) if "gpus" in options else None
        if platform and "input" in options:
            check(parameters.given(options), platform=platform)


def test_the_guide_goes_from_the_first_run_to_the_first_schedule_and_back() -> None:
    commands = [" ".join(arguments) for arguments in _python("docs/kubeflow.md")]
    for what in ("submit.py submit", "submit.py schedule create", "submit.py status", "submit.py logs", "rollback"):
        assert any(what in command for command in commands), what


@pytest.mark.parametrize("document", _GUIDES)
def test_every_file_that_a_guide_names_exists(document: str) -> None:
    text = (_ROOT / document).read_text()
    links = [(_ROOT / document).parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    names = re.findall(r"(?<![\w/$.-])((?:deploy|docs|pipelines|tests|components|data)/[\w./-]*\w)", text)
    for path in [*links, *(_ROOT / name for name in names)]:
        assert path.exists(), path


def test_the_guide_states_what_each_step_needs() -> None:
    def row(step: Resources) -> tuple[str, ...]:
        return (step.title, step.cpu, step.memory, f"{step.hours:g}", str(step.retries + 1))

    lines = (_ROOT / "docs/kubeflow.md").read_text().splitlines()
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines if line.startswith("|")]
    stated = {cells[0].strip("`"): cells[1:6] for cells in rows if len(cells) == 7}
    launcher = stated.pop("train, several nodes")
    assert {name: row(step) for name, step in STEPS.items()}.items() <= stated.items()
    # its time is that of the training and its own
    assert launcher == (*row(LAUNCHER)[:3], f"{STEPS['train'].hours + LAUNCHER.hours:g}", row(LAUNCHER)[4])


# --- the manifests, which have to agree with each other and with the program


def _manifest(name: str, kind: str) -> Json:
    documents = yaml.safe_load_all((_BASE / f"{name}.yaml").read_text())
    return next(each for each in documents if each["kind"] == kind)


def _worker_template() -> Json:
    [job] = _manifest("training-runtime", "TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    return dict(job["template"]["spec"]["template"])


def test_only_workers_reach_workers_and_at_their_port() -> None:
    policy = _manifest("network-policy", "NetworkPolicy")["spec"]
    labels = policy["podSelector"]["matchLabels"]
    assert labels.items() <= _worker_template()["metadata"]["labels"].items()
    assert policy["ingress"] == [
        {"from": [{"podSelector": {"matchLabels": labels}}], "ports": [{"protocol": "TCP", "port": PORT}]}
    ]


def test_whoever_mounts_the_volume_finds_the_same_one_at_the_same_place() -> None:
    claim = _manifest("claim", "PersistentVolumeClaim")["metadata"]["name"]
    for spec in (_worker_template()["spec"], _manifest("data-pod", "Pod")["spec"]):
        [volume] = [each["name"] for each in spec["volumes"] if each.get("persistentVolumeClaim")]
        assert {"name": volume, "persistentVolumeClaim": {"claimName": claim}} in spec["volumes"]
        assert {"name": volume, "mountPath": "/data"} in spec["containers"][0]["volumeMounts"]


def test_the_pod_of_the_volume_has_the_image_of_the_steps() -> None:
    assert _manifest("data-pod", "Pod")["spec"]["containers"][0]["image"] == IMAGE
    assert f"kind load docker-image {IMAGE} " in (_ROOT / "docs/kubeflow.md").read_text()


def test_jobset_takes_the_failure_policy() -> None:
    """By the rules of its webhook (pkg/webhooks/jobset_webhook.go), which speak only when a TrainJob starts."""
    spec = _manifest("training-runtime", "TrainingRuntime")["spec"]["template"]["spec"]
    jobs, rules = {job["name"] for job in spec["replicatedJobs"]}, spec["failurePolicy"]["rules"]
    reasons = {
        "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"
    }  # fmt: skip
    for rule in rules:
        assert re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])
        assert len(rule["name"]) <= 128
        assert set(rule["targetReplicatedJobs"]) <= jobs
        assert set(rule["onJobFailureReasons"]) <= reasons
    assert len({rule["name"] for rule in rules}) == len(rules)


def test_the_patch_of_the_guide_leaves_no_policy_of_attempts_and_all_else(tmp_path: Path) -> None:
    """By kubectl itself, on a config map like that of Kubeflow Pipelines 2.17.0, with other settings beside."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing")
    defaults = {
        "ttlStrategy": {"secondsAfterCompletion": 3600},
        "templateDefaults": {"retryStrategy": {"limit": 2, "retryPolicy": "OnError"}},
    }
    data = {"workflowDefaults": yaml.safe_dump({"spec": defaults}), "executor": "imagePullPolicy: IfNotPresent\n"}
    (command,) = (each for each in _commands("docs/kubeflow.md") if each.startswith("kubectl patch configmap"))
    _, _, kind, name, *options = shlex.split(command)
    stored = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "data": data,
    }
    path = tmp_path / "map.yaml"
    path.write_text(yaml.safe_dump(stored))
    local = ["kubectl", "patch", "--local", "--filename", str(path), "--output", "yaml", *options]
    patched = yaml.safe_load(subprocess.run(local, check=True, capture_output=True, text=True).stdout)
    assert (kind, patched["metadata"]["namespace"]) == ("configmap", _NAMESPACE)
    assert patched["data"]["executor"] == data["executor"]
    assert yaml.safe_load(patched["data"]["workflowDefaults"]) == {
        "spec": {"ttlStrategy": {"secondsAfterCompletion": 86400}}
    }


def test_a_worker_may_run_as_long_as_training_does_by_default() -> None:
    [job] = _manifest("training-runtime", "TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["activeDeadlineSeconds"] == STEPS["train"].seconds


# --- the manifests as a real API server sees them


@dataclass(frozen=True)
class Cluster:
    """An API server with the Trainer's kinds, and the namespace of Pipelines, which takes only confined pods."""

    api: KubernetesApi
    kubeconfig: Path

    def kubectl(self, *arguments: str, given: str = "") -> str:
        done = subprocess.run(
            ["kubectl", "--kubeconfig", self.kubeconfig, *arguments],
            input=given, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

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
        namespace = {"apiVersion": "v1", "metadata": {"name": _NAMESPACE, "labels": labels}}
        api.call("POST", "/api/v1/namespaces", namespace)
        # A controller makes the first, Kubeflow the second.
        for account in ("default", "pipeline-runner", "nobody"):
            body = {"apiVersion": "v1", "metadata": {"name": account}}
            api.call("POST", f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts", body)
        cluster = Cluster(api, api.kubeconfig(folder / "kubeconfig", _NAMESPACE, api.admin_token))
        # As the guide has it; the other overlay differs in what cannot be changed afterwards.
        cluster.kubectl("apply", "--server-side", "--validate=strict", "-k", str(_ROOT / "deploy/overlays/kind"))
        yield cluster


@pytest.mark.slow
@pytest.mark.parametrize("overlay", _OVERLAYS)
def test_the_api_server_takes_every_overlay(cluster: Cluster, overlay: str) -> None:
    """Each with names of its own, since a claim cannot be changed, and another image, as the guide puts it in."""
    built = cluster.kubectl("kustomize", str(_ROOT / "deploy/overlays" / overlay))
    renamed = built.replace("name: calopipe", f"name: {overlay}-{secrets.token_hex(2)}").replace(
        IMAGE, "elsewhere/it:1"
    )
    done = cluster.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", given=renamed)
    assert len(done.splitlines()) == len(list(yaml.safe_load_all(built)))


@pytest.mark.slow
def test_the_overlays_differ_in_the_volume_alone(cluster: Cluster) -> None:
    built = {
        overlay: {
            (each["kind"], each["metadata"]["name"]): each
            for each in yaml.safe_load_all(cluster.kubectl("kustomize", str(_ROOT / "deploy/overlays" / overlay)))
        }
        for overlay in _OVERLAYS
    }
    claim = built["kind"].pop(("PersistentVolumeClaim", "calopipe-data"))["spec"]
    assert claim == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
    del built["kind"]["Pod", "calopipe-data"]
    workers = [
        each["TrainingRuntime", "calopipe"]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"][
            "template"
        ]["spec"]
        for each in built.values()
    ]
    assert [[volume["name"] for volume in each["volumes"]] for each in workers] == [
        ["data", "scratch", "shm"], ["scratch", "shm"]
    ]  # fmt: skip
    del workers[0]["volumes"][0], workers[0]["containers"][0]["volumeMounts"][0]
    assert built["kind"] == built["gke"]
    assert "PersistentVolumeClaim" not in {kind for kind, _ in built["gke"]}


_TRAINER_RULES = {
    *(("trainer.kubeflow.org", "trainjobs", "", verb) for verb in ("create", "get", "patch", "delete")),
    ("", "pods", "", "list"),
    ("", "events", "", "list"),
    ("", "pods/log", "", "get"),
}  # fmt: skip
_RUN_RULES = {
    *(("argoproj.io", "workflowtaskresults", "", verb) for verb in ("create", "patch")),
    ("", "configmaps", "kfp-launcher", "get"),
    ("", "secrets", "mlpipeline-minio-artifact", "get"),
    *(("", "pods", "", verb) for verb in ("get", "list")),
}


@pytest.mark.slow
def test_accounts_have_their_rights_and_no_others(cluster: Cluster) -> None:
    """Beside those of anybody, which are to ask for one's own rights."""
    anybody = cluster.rules("nobody")
    assert {resource for _, resource, *_ in anybody} == {
        "selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"
    }  # fmt: skip
    wait_until(lambda: cluster.rules("calopipe") - anybody == _TRAINER_RULES | _RUN_RULES, "the rights")
    assert cluster.rules("pipeline-runner") == anybody
    [command] = [each for each in _commands("docs/kubeflow.md") if each.startswith("kubectl create rolebinding ")]
    cluster.kubectl(*shlex.split(command)[1:])
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
    """The pod of the volume has passed already, being part of the overlay."""
    assert cluster.api.apply(_worker_pod(), _NAMESPACE)["metadata"]["uid"]
    pod = _worker_pod()
    del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
    with pytest.raises(RefusedError, match="violates PodSecurity"):
        cluster.api.apply(pod, _NAMESPACE)
