"""The address of Kubeflow Pipelines and the credential for it: from options, else from the environment.

The environment is used as a whole, so a token for one address is never sent to another. The token of a pod is only
sent to the address that the environment names, or inside the pod's own cluster.
docs/kubeflow-access.md says where each credential comes from.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from calopipe.errors import InputError

# The names are kfp's, but for the token's, for which it has none.
_ENVIRONMENT = {
    "endpoint": "KF_PIPELINES_ENDPOINT",
    "ui": "KF_PIPELINES_UI_ENDPOINT",
    "token": "KF_PIPELINES_TOKEN",
}
_IAP_CLIENT = "KF_PIPELINES_IAP_OAUTH2_CLIENT_ID"
_POD_TOKEN = "KF_PIPELINES_SA_TOKEN_PATH"  # noqa: S105  the name of a variable
_POD_TOKEN_PATH = "/var/run/secrets/kubeflow/pipelines/token"  # noqa: S105  where a pod finds it
_CREDENTIALS = ("token_file", "token_command", "cookie_file", "token")  # the first that is given counts
_OPTIONS = ("endpoint", "namespace", "experiment", "service_account", "ca_file", *_CREDENTIALS)
_COMMAND_SECONDS = 60.0
_KEPT_SECONDS = 300.0  # tokens live for an hour or so; a run is followed for days


@dataclass
class Credential:
    """What opens the endpoint; `source` and `renew` are for messages, the secret itself is never shown.

    A secret from `fetch` is used for `kept_s` seconds, then fetched again.
    """

    source: str
    renew: str
    fetch: Callable[[], str] | None = None
    is_cookie: bool = False
    kept_s: float = 0.0
    _secret: str = field(default="", repr=False)
    _fetched_at: float = field(default=-math.inf, repr=False)
    _seen: set[str] = field(default_factory=set, repr=False)

    def read(self) -> str:
        """The token, or the value of the header Cookie; empty for no credential."""
        if self.fetch is None or time.monotonic() - self._fetched_at < self.kept_s:
            return self._secret
        secret = self.fetch().strip()
        # also keeps line breaks out of a header, which the HTTP library would quote in its error
        if not re.fullmatch(r"[!-~]+(; ?[!-~]+)*" if self.is_cookie else r"[!-~]+", secret):
            raise InputError(f"{self.source}: not a {'cookie NAME=VALUE' if self.is_cookie else 'token'}; {self.renew}")
        self._secret, self._fetched_at = secret, time.monotonic()
        self._seen |= {secret, *(part.partition("=")[2] for part in secret.split(";") if self.is_cookie)} - {""}
        return secret

    def hide(self, text: str) -> str:
        """`text`, which may come from a server, without any secret that was read."""
        for secret in sorted(self._seen, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


@dataclass(frozen=True)
class Connection:
    """A server, and as whom and for what it is used."""

    endpoint: str
    ui: str
    namespace: str | None
    experiment: str
    service_account: str | None
    ca_file: str | None
    credential: Credential


def add_options(task: argparse.ArgumentParser) -> None:
    """The options that state a connection; `connection` reads them."""
    where = task.add_argument_group("connection (docs/kubeflow-access.md)")
    where.add_argument("--endpoint", metavar="URL", help="of Kubeflow Pipelines (default: KF_PIPELINES_ENDPOINT)")
    secret = where.add_mutually_exclusive_group()
    secret.add_argument("--token-file", metavar="FILE", help="holds a bearer token; read again for each request")
    secret.add_argument("--token-command", metavar="COMMAND", help="prints a bearer token; run without a shell")
    secret.add_argument(
        "--cookie-file", metavar="FILE", help="holds NAME=VALUE, the cookie of a session in the browser"
    )
    where.add_argument("--ca-file", metavar="FILE", help="certificates to trust in place of the public ones")
    where.add_argument("--namespace", metavar="NAME", help="of the run, where the cluster has several users")


def connection(options: argparse.Namespace) -> Connection:
    """What `options` and the environment state; InputError where that is wrong or not enough."""
    given: dict[str, str] = {name: value for name in _OPTIONS if (value := getattr(options, name, None))}
    environment = {name: os.environ[variable] for name, variable in _ENVIRONMENT.items() if os.environ.get(variable)}
    settings = environment | given
    if "endpoint" not in settings:
        raise InputError("no --endpoint, and no KF_PIPELINES_ENDPOINT; give the address of Kubeflow Pipelines")
    if not _same(settings["endpoint"], environment.get("endpoint", settings["endpoint"])):
        settings = given  # the environment is about another address
    endpoint = _address(settings["endpoint"])
    return Connection(
        endpoint=endpoint,
        ui=_address(settings.get("ui", endpoint)),
        namespace=settings.get("namespace"),
        experiment=settings.get("experiment", "calopipe"),
        service_account=settings.get("service_account"),
        ca_file=_existing(settings.get("ca_file")),
        credential=_credential(settings, endpoint),
    )


def _same(url: str, other: str) -> bool:
    return url.rstrip("/") == other.rstrip("/")


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"--endpoint {url}: expected an address such as http://localhost:8080")
    if parts.username or parts.password:
        raise InputError(
            f"the endpoint at {parts.hostname} holds a user or password; give --token-file or --cookie-file"
        )
    return url.rstrip("/")


def _existing(name: str | None) -> str | None:
    if name is not None and not Path(name).expanduser().is_file():
        raise InputError(f"--ca-file {name}: no such file")
    return name and str(Path(name).expanduser())


def _credential(settings: Mapping[str, str], endpoint: str) -> Credential:
    given = next((kind for kind in _CREDENTIALS if kind in settings), None)
    if given is None:
        return _ambient(endpoint)
    value = settings[given]
    if given == "token":
        return Credential("the token of KF_PIPELINES_TOKEN", "put a fresh one there", lambda: value)
    if given == "token_command":
        source = f"the token of `{value}`"
        return Credential(source, "run it by hand to see", lambda: _output_of(value), kept_s=_KEPT_SECONDS)
    path = Path(value).expanduser()
    if given == "token_file":
        return Credential(f"the token in {path}", "write a fresh one there", path.read_text)
    return Credential(f"the cookie in {path}", "log in again and copy the new one", path.read_text, is_cookie=True)


def _ambient(endpoint: str) -> Credential:
    """The credential that this pod or machine has by itself, if it is meant for `endpoint`."""
    named = os.environ.get(_ENVIRONMENT["endpoint"], "")
    pod = Path(os.environ.get(_POD_TOKEN) or _POD_TOKEN_PATH)
    if pod.is_file() and (_same(endpoint, named) or _in_cluster(endpoint)):
        renew = "let this pod's service account use Kubeflow Pipelines in that namespace"
        return Credential(f"the token of this pod, {pod}", renew, pod.read_text)
    if (not named or _same(endpoint, named)) and (client := os.environ.get(_IAP_CLIENT)):
        renew = "run it as a service account that IAP lets pass, or give --token-command"
        source = f"the Google identity for {_IAP_CLIENT}"
        return Credential(source, renew, lambda: _google_identity(client), kept_s=_KEPT_SECONDS)
    return Credential("no credential", "give --token-file, --token-command or --cookie-file (docs/kubeflow-access.md)")


def _in_cluster(endpoint: str) -> bool:
    """Whether `endpoint` names a service in the pod's own cluster, or this pod itself."""
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".svc", ".svc.cluster.local")) or not set(host) & set(".:")  # the last is of IPv6


def _output_of(command: str) -> str:
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--token-command {command}: cannot be run ({type(error).__name__}); run it by hand") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [""])[-1]
        raise InputError(f"--token-command {command}: ended with {done.returncode}: {said}")
    return done.stdout


def _google_identity(client: str) -> str:
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415  few need it
    from google.auth.transport.requests import Request  # noqa: PLC0415
    from google.oauth2.id_token import fetch_id_token  # noqa: PLC0415

    try:
        return str(fetch_id_token(Request(), client))  # type: ignore[no-untyped-call]
    except GoogleAuthError as error:
        raise InputError(f"{_IAP_CLIENT}: no Google identity here ({error}); give --token-command") from None
