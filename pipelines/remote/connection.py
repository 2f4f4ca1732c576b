"""The address of Kubeflow Pipelines and the credential for it; docs/kubeflow-access.md says where each comes from."""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from calopipe.errors import InputError
from calopipe.storage import Location, location

_ENDPOINT, _UI = "KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT"  # kfp's names
_COMMAND_SECONDS = 60.0
_KEPT_SECONDS = 300.0  # tokens live for an hour or so; a run is followed for days


@dataclass
class Credential:
    """The credential for the endpoint. `source` and `renew` are for messages; the secret itself is never shown.

    A secret from `fetch` is used for `kept_s` seconds, then fetched again.
    """

    source: str = "no credential"
    renew: str = "give --token-file, --token-command or --cookie-file (docs/kubeflow-access.md)"
    fetch: Callable[[], str] | None = None
    is_cookie: bool = False
    kept_s: float = 0.0
    _secret: str = field(default="", repr=False)
    _fetched_at: float = field(default=-math.inf, repr=False)

    def read(self) -> str:
        """The token, or the value of the header Cookie; empty for no credential."""
        if self.fetch is None or time.monotonic() - self._fetched_at < self.kept_s:
            return self._secret
        secret = self.fetch().strip()
        # also refuses line breaks: the HTTP library would quote such a header in its error
        if not re.fullmatch(r"[!-~]+(; ?[!-~]+)*" if self.is_cookie else r"[!-~]+", secret):
            raise InputError(f"{self.source}: not a {'cookie NAME=VALUE' if self.is_cookie else 'token'}; {self.renew}")
        self._secret, self._fetched_at = secret, time.monotonic()
        return secret

    def hide(self, text: str) -> str:
        """`text`, which comes from a server, without the secret that was read last."""
        parts = re.split("; ?", self._secret) if self.is_cookie else [self._secret]
        for secret in {part.partition("=")[2] if self.is_cookie else part for part in parts} - {""}:
            text = text.replace(secret, "***")
        return text


@dataclass(frozen=True)
class Connection:
    """A server, and the user and credential for it. `ui` is the address of its pages."""

    endpoint: str
    ui: str
    namespace: str | None
    ca_file: str | None
    credential: Credential

    @property
    def run_namespace(self) -> str:
        """The namespace of the pods of runs; a server for one user has them in its own namespace."""
        return self.namespace or "kubeflow"


def add_options(task: argparse.ArgumentParser) -> None:
    """Add the options that state a connection; `connection` reads them."""
    where = task.add_argument_group("connection (docs/kubeflow-access.md)")
    where.add_argument("--endpoint", metavar="URL", help=f"of Kubeflow Pipelines (default: {_ENDPOINT})")
    secret = where.add_mutually_exclusive_group()
    secret.add_argument("--token-file", metavar="FILE", help="holds a bearer token; read again for each request")
    secret.add_argument("--token-command", metavar="COMMAND", help="prints a bearer token; run without a shell")
    secret.add_argument(
        "--cookie-file", metavar="FILE", help="holds NAME=VALUE, the cookie of a session in the browser"
    )
    where.add_argument("--ca-file", metavar="FILE", help="certificates to trust in place of the public ones")
    where.add_argument("--namespace", metavar="NAME", help="of your profile, where the cluster has several users")


def connection(options: argparse.Namespace) -> Connection:
    """The connection that `options` and the environment state. InputError: they are wrong or not enough."""
    endpoint = options.endpoint or os.environ.get(_ENDPOINT, "")
    if not endpoint:
        raise InputError(f"no --endpoint, and no {_ENDPOINT}; give the address of Kubeflow Pipelines")
    try:
        parts = urlsplit(endpoint)
    except ValueError:  # an incomplete IPv6 address
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.password:
        shown = parts.hostname or endpoint.rpartition("@")[2]  # text before @ may be a password
        raise InputError(
            f"--endpoint {shown}: expected an address such as http://localhost:8080, without a user or password"
        )
    if options.ca_file and not Path(options.ca_file).is_file():
        raise InputError(f"--ca-file {options.ca_file}: no such file")
    ui = os.environ.get(_UI) if endpoint == os.environ.get(_ENDPOINT, endpoint) else ""
    return Connection(
        endpoint.rstrip("/"), (ui or endpoint).rstrip("/"), options.namespace, options.ca_file, _credential(options)
    )


def _credential(options: argparse.Namespace) -> Credential:
    if (command := options.token_command) is not None:
        return Credential(
            f"the token of `{command}`", "run it by hand to see", lambda: _output_of(command), kept_s=_KEPT_SECONDS
        )
    if options.token_file is not None:
        path = location(options.token_file)
        return Credential(f"the token in {path}", "write a fresh one there", partial(_text_of, path))
    if options.cookie_file is not None:
        path = location(options.cookie_file)
        renew = "log in again and copy the new one"
        return Credential(f"the cookie in {path}", renew, partial(_text_of, path), is_cookie=True)
    return Credential()


def _text_of(path: Location) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text in UTF-8") from None


def _output_of(command: str) -> str:
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (IndexError, OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--token-command {command}: cannot be run ({type(error).__name__}); run it by hand") from None
    if done.returncode:
        last_line = (done.stderr.strip().splitlines() or [""])[-1]
        raise InputError(f"--token-command {command}: ended with {done.returncode}: {last_line}")
    return done.stdout
