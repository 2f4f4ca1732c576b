"""A real kube-apiserver with a real etcd, on loopback, with RBAC and without controllers.

The program is built from its Go module, once for this environment, in minutes. It starts in seconds.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from servers import free_port, go, running, said, wait_until

TRAINER = "github.com/kubeflow/trainer/v2@v2.0.0"
_SOURCE = Path(__file__).parent / "kube-apiserver"
_FIELD_MANAGER = "calopipe-tests"

Json = dict[str, Any]


class RefusedError(Exception):
    """The API server refused a request; the message is its reason."""


@dataclass(frozen=True)
class KubernetesApi:
    """The API as the cluster's administrator sees it. It does not use the client that is tested."""

    url: str
    authority: Path
    admin_token: str

    def call(self, method: str, path: str, body: Json | None = None, kind: str = "json", **query: str) -> Json:
        """The answer to a request whose body is of the content type application/`kind`."""
        headers = {"Authorization": f"Bearer {self.admin_token}", "Content-Type": f"application/{kind}"}
        answer = requests.request(
            method, self.url + path, params=query, data=None if body is None else json.dumps(body), headers=headers,
            verify=str(self.authority), timeout=30,
        )  # fmt: skip
        if not answer.ok:
            raise RefusedError(answer.text)
        return answer.json()

    def find(self, path: str, **query: str) -> Json | None:
        """What is at `path`, or None."""
        try:
            return self.call("GET", path, **query)
        except RefusedError as error:
            if '"code":404' in str(error):
                return None
            raise

    def apply(self, manifest: Json, namespace: str, **query: str) -> Json:
        """Apply `manifest` on the server's side; a field that its kind does not have is refused."""
        kind, group = manifest["kind"], manifest["apiVersion"]
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        resources = self.call("GET", root)["resources"]
        plural, scoped = next(
            (each["name"], each["namespaced"]) for each in resources if each["kind"] == kind and "/" not in each["name"]
        )
        place = f"/namespaces/{namespace}" if scoped else ""
        return self.call(
            "PATCH", f"{root}{place}/{plural}/{manifest['metadata']['name']}", manifest, "apply-patch+yaml",
            fieldManager=_FIELD_MANAGER, fieldValidation="Strict", **query,
        )  # fmt: skip

    def make_namespace(self, name: str, *accounts: str, **labels: str) -> None:
        """Make a namespace with service accounts: the default one, which a controller would make, and `accounts`."""
        about = {"name": name, "labels": labels}
        self.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "metadata": about})
        for account in ("default", *accounts):
            body = {"apiVersion": "v1", "metadata": {"name": account}}
            self.call("POST", f"/api/v1/namespaces/{name}/serviceaccounts", body)

    def token(self, namespace: str, account: str) -> str:
        """A token of a service account, as its pods are given."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(self.call("POST", path, request)["status"]["token"])

    def kubeconfig(self, path: Path, namespace: str, token: str) -> Path:
        """A file for the holder of `token`, in whose context `namespace` is."""
        trusting = {"certificate-authority": str(self.authority)}
        return kubeconfig(path, self.url, namespace, cluster=trusting, user={"token": token})


def kubeconfig(path: Path, server: str, namespace: str = "default", **more: Any) -> Path:
    """A kubeconfig for the user of a `server`; `more` has further entries of the parts `cluster` and `user`."""
    context = {"cluster": "test", "user": "test", "namespace": namespace}
    parts = {"cluster": {"server": server} | more.get("cluster", {}), "user": more.get("user", {}), "context": context}
    document = {f"{kind}s": [{"name": "test", kind: part}] for kind, part in parts.items()}
    path.write_text(yaml.safe_dump(document | {"apiVersion": "v1", "kind": "Config", "current-context": "test"}))
    return path


def program() -> Path:
    """The built kube-apiserver. The test is skipped if it cannot be built."""
    for needed in ("etcd", "openssl"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is missing, which a Kubernetes API server for tests needs")
    built = Path(sys.prefix) / "tools" / "kube-apiserver"
    if not built.exists():
        go("build", "-ldflags=-s -w", "-o", built, "k8s.io/kubernetes/cmd/kube-apiserver", cwd=_SOURCE)
    return built


def trainer_definitions() -> list[Json]:
    """The custom resource definitions of Kubeflow Trainer, from its Go module."""
    folder = Path(json.loads(go("mod", "download", "-json", TRAINER))["Dir"]) / "manifests" / "base" / "crds"
    names = ("trainjobs", "trainingruntimes")
    return [yaml.load((folder / f"trainer.kubeflow.org_{name}.yaml").read_text(), yaml.CSafeLoader) for name in names]


def self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    """A new certificate of a server on loopback, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    said(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={name}",
        "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key,
    )  # fmt: skip
    return certificate, key


@contextmanager
def kubernetes_api(folder: Path) -> Iterator[KubernetesApi]:
    """The API of an empty cluster, whose state is under `folder`."""
    apiserver = program()
    clients, peers, secure = free_port(), free_port(), free_port()
    etcd_url, peer_url = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
    certificate, key = self_signed(folder, "apiserver")
    token = secrets.token_hex(16)
    tokens = folder / "tokens.csv"
    tokens.write_text(f'{token},admin,admin,"system:masters"\n')
    etcd = [
        "etcd", "--data-dir", folder / "etcd", "--log-level", "error",
        "--listen-client-urls", etcd_url, "--advertise-client-urls", etcd_url,
        "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
        "--initial-cluster", f"default={peer_url}",
    ]  # fmt: skip
    server = [
        apiserver, f"--etcd-servers={etcd_url}", "--bind-address=127.0.0.1", f"--secure-port={secure}",
        f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}",
        "--authorization-mode=RBAC", f"--token-auth-file={tokens}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
        "--kubelet-preferred-address-types=InternalIP",
    ]  # fmt: skip
    with (
        running(*etcd, log=folder / "etcd.log"),
        running(*server, log=folder / "apiserver.log") as process,
    ):
        api = KubernetesApi(f"https://127.0.0.1:{secure}", certificate, token)

        def ready() -> bool:
            assert process.poll() is None, (folder / "apiserver.log").read_text(errors="replace")[-2000:]
            headers = {"Authorization": f"Bearer {token}"}
            with suppress(requests.RequestException):
                return requests.get(f"{api.url}/readyz", headers=headers, verify=str(certificate), timeout=5).ok
            return False

        wait_until(ready, "kube-apiserver")
        yield api


def install(api: KubernetesApi, definition: Json) -> None:
    """Create a custom resource, and wait until it is served."""
    path, name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition["metadata"]["name"]
    api.call("POST", path, definition)

    def served() -> bool:
        conditions = api.call("GET", f"{path}/{name}").get("status", {}).get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    wait_until(served, name)
