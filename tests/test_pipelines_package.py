"""The compiled pipeline: its content for Kubeflow Pipelines, for each kind of cluster, and what it refuses."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp import components
from kfp.kubernetes.kubernetes_executor_config_pb2 import KubernetesExecutorConfig

from calopipe.errors import InputError
from calopipe.options import settings_of
from components.train import train
from pipelines import package, parameters, submit
from pipelines.cluster.platform import SINGLE_HOST, Platform, tpu
from pipelines.cluster.resources import Resources, resources_by_step, step_of
from training.configs import PARAMETERS, all_settings

STEPS = ["preprocess", "train", "generate", "validate", "promote"]
GOLDEN = Path(__file__).parent / "golden"
DIGEST = "sha256:" + "0a" * 32
IMAGE_OF_A_TEAM = f"registry.example:5000/team/calopipe@{DIGEST}"
# What several tests look at is compiled once.
CHANGED = (
    "--image", IMAGE_OF_A_TEAM, "--claim", "shared:/data/a", "--hours", "validate=.50", "--pipeline-root", "gs://b/r",
    *(f"--resources={each}" for each in ("train=2500m,32Gi", "generate=0.5,2Gi", "validate=1.5,900Mi")),
)  # fmt: skip
FANNED = ("--gpus=4", "--gpu-type=nvidia-l4", "--generation-pods", "3")
NODES = ("--nodes", "2", "--gpus", "1", "--resources", "train=8,32Gi", "--hours", "train=10")


class _Package:
    """A compiled pipeline, read back. The part on pods is read by the message into which the API server parses it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pipeline, self.platform = yaml.load_all(text, yaml.CSafeLoader)
        self.tasks = self.pipeline["root"]["dag"]["tasks"]
        before = {name: task.get("dependentTasks", []) for name, task in self.tasks.items()}
        self.steps = [*TopologicalSorter(before).static_order()]
        executors = self.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        self.pods = {step: executors[f"exec-{step}"] for step in self.steps}
        self.messages = {
            step: json_format.ParseDict(pod, KubernetesExecutorConfig()) for step, pod in self.pods.items()
        }
        self.parameters = self.pipeline["root"]["inputDefinitions"]["parameters"]
        self.containers = {
            step: self.pipeline["deploymentSpec"]["executors"][f"exec-{step}"]["container"] for step in self.steps
        }

    def made(self, step: str) -> dict[str, Any]:
        """The artifacts that `step` makes."""
        component = self.pipeline["components"][self.tasks[step]["componentRef"]["name"]]
        return dict(component["outputDefinitions"].get("artifacts", {}))

    def limits(self, step: str) -> dict[str, str]:
        """The limits of `step`, by Kubernetes's names."""
        resources = self.containers[step]["resources"]
        found = {"cpu": resources["resourceCpuLimit"], "memory": resources["resourceMemoryLimit"]}
        if accelerator := resources.get("accelerator"):
            found[accelerator["resourceType"]] = accelerator["resourceCount"]
        return found


@cache
def _compiled(*options: str) -> _Package:
    with tempfile.TemporaryDirectory() as folder:
        submit.main(["compile", "--output", f"{folder}/p.yaml", *options])
        return _Package(Path(folder, "p.yaml").read_text())


@pytest.fixture
def plain() -> _Package:
    """The package of a cluster without accelerators and with a volume."""
    return _compiled("--claim", "calopipe-data:/data")


def test_kfp_reads_what_was_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a name that ends in \.yaml"):
        package.write(tmp_path / "p.json", Platform())
    compiled = _compiled(*CHANGED)
    loaded = components.load_component_from_text(compiled.text)
    assert loaded.component_spec.inputs.keys() == compiled.parameters.keys()
    assert json_format.MessageToDict(loaded.platform_spec) == compiled.platform


def test_the_options_of_the_command_line_are_the_compiled_parameters(plain: _Package) -> None:
    stated = {each.name: each.metadata["help"] for each in settings_of(parameters.ShowerParameters)}
    assert all(stated.values())
    assert stated == {name: compiled["description"] for name, compiled in plain.parameters.items()}


def test_every_attempt_at_a_step_has_its_whole_time() -> None:
    """Argo counts the time of all attempts from the start of the first, and ends later attempts when it is over."""
    for options in (CHANGED, NODES):
        compiled = _compiled(*options)
        for step in STEPS:
            retry = compiled.tasks[step]["retryPolicy"]
            limit = compiled.messages[step].active_deadline_seconds
            attempts = retry["maxRetryCount"] + 1
            assert attempts > 1
            backoffs = sum(int(retry["backoffDuration"][:-1]) * retry["backoffFactor"] ** n for n in range(attempts))
            assert limit > 0
            assert int(retry["backoffMaxDuration"][:-1]) >= attempts * limit + backoffs


def test_what_is_asked_for_a_step_is_what_its_pod_has() -> None:
    compiled = _compiled(*CHANGED)
    assert compiled.pipeline["defaultPipelineRoot"] == "gs://b/r"
    assert {container["image"] for container in compiled.containers.values()} == {IMAGE_OF_A_TEAM}
    for pod in compiled.messages.values():
        (mount,) = pod.pvc_mount
        assert (mount.constant, mount.mount_path) == ("shared", "/data/a")
    assert compiled.messages["validate"].active_deadline_seconds == 1800
    assert compiled.limits("train") == {"cpu": "2500m", "memory": "32Gi"}
    assert compiled.limits("validate") == {"cpu": "1.5", "memory": "900Mi"}
    for container in compiled.containers.values():
        resources = container["resources"]
        assert resources["resourceCpuRequest"] == resources["resourceCpuLimit"]
        assert resources["resourceMemoryRequest"] == resources["resourceMemoryLimit"]


# Labels, taints and resources as GKE documents them for pods that use GPUs and single-host TPU slices.
GPU = "nvidia.com/gpu"
TPU = "google.com/tpu"
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
V5E = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice", "cloud.google.com/gke-tpu-topology": "2x4"}


@pytest.mark.parametrize(
    ("options", "strategy", "expected"),
    [
        (["--gpus", "1"], "one-device", {"train": ({GPU: "1"}, {}), "generate": ({GPU: "1"}, {})}),
        (FANNED, "mirrored", {"train": ({GPU: "4"}, L4), "generate": ({GPU: "1"}, L4)}),
        (["--tpu", "tpu-v5-lite-podslice:2x4"], "tpu", {"train": ({TPU: "8"}, V5E)}),
        (NODES, "multi-worker", {"generate": ({GPU: "1"}, {})}),
    ],
)
def test_accelerators(
    options: Sequence[str], strategy: str, expected: dict[str, tuple[dict[str, str], dict[str, str]]]
) -> None:
    compiled = _compiled(*options)
    assert compiled.parameters["strategy"]["defaultValue"] == strategy
    for step in STEPS:
        devices, selectors = expected.get(step, ({}, {}))
        limits = compiled.limits(step)
        assert {name: limits[name] for name in limits if name not in {"cpu", "memory"}} == devices
        pod = compiled.messages[step]
        assert dict(pod.node_selector.labels) == selectors
        tolerated = [(toleration.key, toleration.operator, toleration.effect) for toleration in pod.tolerations]
        assert tolerated == [(name, "Exists", "NoSchedule") for name in devices]


def test_training_on_several_nodes() -> None:
    """The pod of the step only waits, for longer than the job may take; the job gets the resources of the nodes."""
    compiled = _compiled(*NODES)
    job = compiled.tasks["train"]["inputs"]["parameters"]["job"]["runtimeValue"]["constant"]
    assert job["resources"] == {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"}
    assert job["deadline_s"] == 36_000
    assert compiled.messages["train"].active_deadline_seconds > job["deadline_s"]
    job = Platform(nodes=2, image="host/a:1", runtime="team").job()
    assert (job["image"], job["runtime"]) == ("host/a:1", "team")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"image": "calopipe:"}, "--image 'calopipe:': expected a name or an address"),
        ({"claim": "data:relative"}, "--claim 'data:relative': expected NAME:PATH"),
        ({"claim": "data.of.team:/data"}, "expected NAME:PATH"),
        ({"claim": "data:/data/../etc"}, "expected NAME:PATH"),
        ({"resources": ("trian=8,32Gi",)}, r"--resources 'trian=8,32Gi': expected .* a step of preprocess, train"),
        ({"resources": ("train=0,32Gi",)}, "expected STEP=CPU,MEMORY"),
        ({"resources": ("train=8,32GB",)}, "expected STEP=CPU,MEMORY"),
        ({"hours": ("train=0",)}, "--hours 'train=0': expected STEP=HOURS"),
        ({"hours": ("tune=3",)}, "expected STEP=HOURS"),
        ({"gpus": -1}, "--gpus is -1, expected at least 0"),
        ({"nodes": 0}, "--nodes is 0, expected at least 1"),
        ({"generation_pods": 0}, "--generation-pods is 0, expected at least 1"),
        ({"gpu_type": "nvidia-l4"}, "without GPUs; give --gpus too"),
        ({"gpus": 1, "tpu": "tpu-v6e-slice:2x2"}, "training uses one kind; give one of them"),
        ({"nodes": 2, "tpu": "tpu-v6e-slice:2x2"}, "training on TPUs uses one machine"),
        ({"nodes": 2, "gpus": 1, "gpu_type": "nvidia-l4"}, "the TrainingRuntime calopipe decides where nodes run"),
        ({"tpu": "v5e:2x4"}, r"--tpu 'v5e:2x4': expected the TYPE:TOPOLOGY .* tpu-v4-podslice"),
        ({"tpu": "tpu-v5-lite-podslice:4x4"}, "expected the TYPE:TOPOLOGY of one machine, of .*podslice:2x4"),
        ({"nodes": 2, "claim": "mine:/data"}, "the nodes of the TrainingRuntime calopipe mount calopipe-data:/data"),
        ({"pipeline_root": "/data/kfp"}, "--pipeline-root '/data/kfp': expected a name or an address"),
        ({"claim": f"{'a' * 64}:/data"}, "expected"),
        ({"claim": "a-:/data"}, "expected"),
        ({"hours": ("train=8760.1",)}, "expected"),
        ({"resources": ("train=1.0,2Gi",)}, "expected"),
        ({"resources": ("train=1,0Gi",)}, "expected"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Platform(**given)


def test_what_can_be_is_taken() -> None:
    for given in (
        {"nodes": 2, "claim": "calopipe-data:/data"},
        {"nodes": 2, "claim": "other:/data", "runtime": "team"},
        {"claim": f"{'a' * 63}:/data"},
        {"claim": "a:/data/runs"},
        {"hours": ("train=8760",)},
        {"resources": ("train=500m,2T", "generate=1,1Ti")},
        {"image": "calopipe:0.1.0"},
        {"image": "host.example/a/b:5000"},
        {"image": "host.example:5000/a_b/c:v1_x"},
        {"image": f"a--b:latest@{DIGEST}"},
    ):
        Platform(**given)


def test_a_setting_of_the_training_that_is_a_parameter_is_one_of_the_step() -> None:
    taken = set(inspect.signature(train.python_func).parameters)
    for pipeline in parameters.KINDS:
        stated = set(parameters.defaults(pipeline))
        assert all_settings().keys() & stated == all_settings().keys() & taken == set(PARAMETERS), "CONTRIBUTING.md"


def test_the_chips_of_a_slice_are_those_of_one_machine() -> None:
    """As in Google's documentation of its machines: four chips of v4 and v5p; one, four or eight of v5e and v6e."""
    known = {
        "tpu-v4-podslice": [4],
        "tpu-v5-lite-podslice": [1, 4, 8],
        "tpu-v5p-slice": [4],
        "tpu-v6e-slice": [1, 4, 8],
    }
    assert {kind: [tpu(f"{kind}:{form}").count for form in SINGLE_HOST[kind]] for kind in known} == known


def test_options_of_a_step_add_up_and_the_last_of_a_kind_counts() -> None:
    changed = resources_by_step(["train=9,9Gi", "train=2,3Gi"], ["train=4", "train=.5", "promote=0.0001"])
    assert changed["train"] == Resources("Train", cpu="2", memory="3Gi", hours=0.5, retries=3)
    assert (changed["promote"].seconds, changed["promote"].cpu) == (1, "500m")
    assert Platform().pod("train").cpu != "2"
    names = ["generate", "generate-2", "generate-12", "generate-flow", "generate-flow-3"]
    assert {step_of(name) for name in names} == {"generate"}
    threads = {"1": 1, "1.5": 2, "500m": 1, "1000m": 1, "1001m": 2, "16": 16}
    assert {cpu: Resources("", cpu=cpu, memory="1Gi", hours=1).threads for cpu in threads} == threads


HOSTILE = ["a'b", 'a"b', "a b", "a;b", "a\nb", "a: b", "a #b", "$(id)", "{{$.inputs}}", "--privileged", "a\n---\nb: 1"]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    ("field", "form"),
    [
        ("image", "{}:1"), ("image", "a:{}"), ("claim", "{}:/data"), ("claim", "data:/{}"), ("tpu", "{}:2x2"),
        ("resources", "train=8,{}"), ("hours", "train={}"), ("gpu_type", "{}"), ("runtime", "{}"),
        ("pipeline_root", "gs://b/{}"),
    ],
)  # fmt: skip
def test_no_option_of_the_cluster_can_say_more_than_it_should(field: str, form: str, text: str) -> None:
    value: Any = form.replace("{}", text)
    several = field in {"resources", "hours"}
    with pytest.raises(InputError, match=rf"^--{field.replace('_', '-')} ") as refusal:
        Platform(**{"gpus": int(field == "gpu_type"), field: (value,) if several else value})
    assert "\n" not in str(refusal.value)


def _readable(compiled: _Package) -> dict[str, Any]:
    """The content of the package, without the sources of the steps and the signatures that follow from them."""
    return {
        "parameters": {
            name: {"type": parameter["parameterType"], "default": parameter.get("defaultValue")}
            for name, parameter in compiled.parameters.items()
        },
        "steps": {
            step: {
                "title": compiled.tasks[step]["taskInfo"]["name"],
                "cached": compiled.tasks[step]["cachingOptions"].get("enableCache", False),
                "after": compiled.tasks[step].get("dependentTasks", []),
                "inputs": {
                    name: _source(value)
                    for kind in ("parameters", "artifacts")
                    for name, value in compiled.tasks[step]["inputs"].get(kind, {}).items()
                },
                "artifacts": {
                    name: f"{made['artifactType']['schemaTitle']} {made['artifactType']['schemaVersion']}"
                    for name, made in compiled.made(step).items()
                },
                "retries": compiled.tasks[step]["retryPolicy"],
                "image": compiled.containers[step]["image"],
                "environment": {entry["name"]: entry["value"] for entry in compiled.containers[step]["env"]},
                "limits": compiled.limits(step),
                "pod": compiled.pods[step],
            }
            for step in compiled.steps
        },
    }


def _source(value: dict[str, Any]) -> str:
    """Where an input comes from: a parameter of the pipeline, an output of a step, or a constant."""
    if "componentInputParameter" in value:
        return f"parameter {value['componentInputParameter']}"
    if "taskOutputParameter" in value:
        return "{producerTask}: {outputParameterKey}".format(**value["taskOutputParameter"])
    if "taskOutputArtifact" in value:
        return "{producerTask}: artifact {outputArtifactKey}".format(**value["taskOutputArtifact"])
    return f"constant {value['runtimeValue']['constant']!r}"


def _require_golden(found: dict[str, Any], name: str) -> None:
    if os.environ.get("RENEW_GOLDEN"):
        (GOLDEN / name).write_text(yaml.safe_dump(found, sort_keys=False, width=118))
    expected = yaml.safe_load((GOLDEN / name).read_text())
    again = "RENEW_GOLDEN=1 .venv/bin/python -m pytest -k golden tests/test_pipelines_package.py"
    assert found == expected, f"if this is meant: {again}"


def test_the_compiled_form_is_the_golden_one(plain: _Package) -> None:
    """So a review shows each change of the compiled form. RENEW_GOLDEN=1 in the environment writes the file anew."""
    _require_golden(_readable(plain), "calorimeter.yaml")
    assert "pip install" not in str(plain.containers)
    assert not any("triggerPolicy" in task for task in plain.tasks.values())  # no conditionals


def test_the_pipeline_of_a_flow_is_the_golden_one() -> None:
    _require_golden(_readable(_compiled("--pipeline", "vortex", "--nodes", "2")), "vortex.yaml")


def test_pods_of_generation_differ_in_their_share_alone(plain: _Package) -> None:
    """Each pod has the resources, the device, the time and the attempts of the step, which joins the shares."""
    fanned = _compiled(*FANNED)
    shares = ["generate-2", "generate-3", "generate-4"]
    assert {*fanned.steps} == {*STEPS, *shares}
    steps, alone = _readable(fanned)["steps"], _readable(plain)["steps"]["generate"]
    one = steps["generate"]
    assert one["inputs"] == alone["inputs"]
    assert set(one["after"]) == {*alone["after"], *shares}
    for number, share in enumerate(shares):
        own = {"title": f"Generate share {number + 1} of 3", "after": alone["after"]}
        assert steps[share] == one | own | {"inputs": one["inputs"] | {"share": f"constant '{number}/3'"}}
        assert fanned.containers[share] == fanned.containers["generate"]
        assert fanned.limits(share)["nvidia.com/gpu"] == "1"


def test_a_pipeline_that_kubernetes_cannot_store_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "_MOST_BYTES", 10_000)
    with pytest.raises(InputError, match=r"p\.yaml: \d\d,\d{3} bytes, of which Kubernetes stores 1\.5 MB; give fewer"):
        package.write(tmp_path / "p.yaml", Platform())
    assert list(tmp_path.iterdir()) == []


def test_bad_options_are_refused_before_anything_slow_is_loaded() -> None:
    program = (
        "import sys; from pipelines import submit\n"
        "try: submit.main(['compile', '--tpu', 'v5e'])\n"
        "except ValueError: assert not {'kfp', 'tensorflow', 'apache_beam'} & set(sys.modules)\n"
        "else: sys.exit('not refused')"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
