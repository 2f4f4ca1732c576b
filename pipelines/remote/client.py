"""A server of Kubeflow Pipelines: every request has a time-out, and every refusal becomes one line.

This uses the client that is generated from the API's contract (kfp-server-api) and not `kfp.Client`, which wraps it:
that one sets no time-outs, asks for the server's health five times, five seconds apart, and takes a credential from the
environment for whatever address it is given.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kfp_server_api as api
import urllib3
from kfp_server_api import ApiException
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError, ProtocolError, ReadTimeoutError, SSLError

from calopipe.errors import InputError
from pipelines.remote.connection import Connection

NAMESPACE = "kubeflow"  # of the runs of a server that has one user
CONNECT_SECONDS = 10
READ_SECONDS = 40  # creating a run writes to a database and to Kubernetes


class RefusalError(InputError):
    """The server, or something on the way to it, did not do what was asked."""


class UnreachableError(RefusalError):
    """The server could not be reached, or not now; the same request may succeed later."""


class FailureError(UnreachableError):
    """The server failed, and may have done a part of what was asked."""


class Retry(urllib3.Retry):
    """Repeats reads and deletions; anything else only if the server turned it away unseen (429)."""

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        return status_code == 429 or super().is_retry(method, status_code, has_retry_after)


RETRY = Retry(
    total=4,
    read=2,
    connect=1,
    other=0,  # TLS
    redirect=0,  # a redirect leads to a login page, and would turn a POST into a GET
    allowed_methods={"GET", "DELETE"},
    status_forcelist={502, 503, 504},
    backoff_factor=0.5,
    retry_after_max=30,
    raise_on_redirect=False,
    raise_on_status=False,
)


class _Client(api.ApiClient):
    """The generated client, whose `request` sends everything, with a time-out and one credential."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        configuration = api.Configuration(host=connection.endpoint)
        configuration.ssl_ca_cert = connection.ca_file
        configuration.retries = RETRY
        logging.getLogger("urllib3").setLevel(logging.ERROR)  # it warns of each retry; the configuration lets it
        credential = connection.credential
        secret = credential.read()
        if secret and not credential.is_cookie:
            configuration.api_key_prefix = {"authorization": "Bearer"}
            configuration.api_key = {"authorization": secret}
            configuration.refresh_api_key_hook = lambda each: each.api_key.update(authorization=credential.read())
        super().__init__(configuration, cookie=secret if credential.is_cookie else None)

    def request(self, method: str, url: str, **more: Any) -> Any:
        response = super().request(method, url, **more | {"_request_timeout": (CONNECT_SECONDS, READ_SECONDS)})
        try:
            json.loads(response.data)
        except ValueError:  # a page, where the API answers in JSON
            raise RefusalError(f"{self.connection.endpoint}: {_login(self.connection)}") from None
        return response


class Server:
    """The services of a server; `namespace` is the user's, or None if the server has one user."""

    def __init__(self, client: _Client, namespace: str | None) -> None:
        self.connection, self.namespace = client.connection, namespace
        self.experiments = api.ExperimentServiceApi(client)
        self.runs = api.RunServiceApi(client)
        self.schedules = api.RecurringRunServiceApi(client)
        self.pipelines = api.PipelineServiceApi(client)

    @property
    def scope(self) -> dict[str, str]:
        """The argument with which a request names the user's namespace."""
        return {"namespace": self.namespace} if self.namespace else {}

    @property
    def run_namespace(self) -> str:
        """Where the pods of runs are."""
        return self.namespace or NAMESPACE


def all_pages(fetch: Callable[..., Any], field: str, **which: Any) -> list[Any]:
    """What is in `field` of each page that `fetch` gives."""
    found: list[Any] = []
    token = ""
    while True:
        page = fetch(page_token=token, page_size=100, sort_by="created_at desc", **which)
        found += getattr(page, field) or []
        token = page.next_page_token or ""
        if not token:
            return found


def named(name: str) -> str:
    """The filter of a request for what has this name."""
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})


@contextmanager
def connected(connection: Connection) -> Iterator[Server]:
    """A server that answers and has our version of the API; its refusals become InputErrors."""
    with refusals(connection):
        client = _Client(connection)
        try:
            multi_user = _has_several_users(client)
        except ApiException as error:
            if error.status != 404:
                raise
            raise InputError(
                f"{connection.endpoint}: no API v2beta1 of Kubeflow Pipelines here (404); check the address, which in "
                "a full Kubeflow ends in /pipeline, and that the server is version 2"
            ) from None
        yield Server(client, connection.namespace if multi_user else None)


def _has_several_users(client: _Client) -> bool:
    """Whether the server distinguishes users. InputError where it is of another version, or needs a namespace."""
    connection = client.connection
    health = api.HealthzServiceApi(client).healthz_service_get_healthz()
    version = str(json.loads(client.last_response.data).get("tag_name", "unknown")).removeprefix("v")
    ours = api.__version__
    if health.multi_user is None or (version[:1].isdigit() and version.split(".")[0] != ours.split(".")[0]):
        raise InputError(
            f"{connection.endpoint}: the server's version is {version}, and this client speaks {ours}; "
            "install the kfp that goes with the server"
        )
    if health.multi_user and not connection.namespace:
        raise InputError(f"{connection.endpoint}: the server has several users; give --namespace, that of your profile")
    if not health.multi_user and connection.namespace not in {None, NAMESPACE}:
        print(
            f"{connection.endpoint}: the server has one user and ignores --namespace {connection.namespace}; its runs "
            f"are in {NAMESPACE}",
            file=sys.stderr,
        )
    return bool(health.multi_user)


@contextmanager
def refusals(connection: Connection) -> Iterator[None]:
    """Turn what the server, or something on the way to it, refuses into an InputError of one line without secrets."""
    where = connection.endpoint
    try:
        yield
    except ApiException as error:
        kind = FailureError if error.status >= 500 else UnreachableError if error.status == 429 else RefusalError
        raise kind(connection.credential.hide(f"{where}: {_refusal(error, connection)}")) from None
    except HTTPError as error:
        raise UnreachableError(f"{where}: {_failure(error)}") from None


def _refusal(error: ApiException, connection: Connection) -> str:
    status, said, credential = error.status, _message(error), connection.credential
    namespace = f" to namespace {connection.namespace}, which may not exist," if connection.namespace else ""
    wait = (error.headers or {}).get("Retry-After")
    if 300 <= status < 400:
        return _login(connection)
    if status >= 500:
        return f"the server failed ({status} {error.reason}){said}; see kubectl logs deployment/ml-pipeline"
    known = {
        401: f"not authorised (401) with {credential.source}; {credential.renew}{said}",
        403: f"access refused (403){namespace} with {credential.source}; {credential.renew}{said}",
        404: f"not found (404){said}",
        409: f"exists already (409){said}; give another name",
        429: f"too many requests (429), also after waiting; try again in {wait + ' s' if wait else 'a while'}",
    }
    return known.get(status, f"the server refused this ({status}){said}")


def _login(connection: Connection) -> str:
    credential = connection.credential
    return (
        "a web page answers in place of the API, a login most likely, "
        f"with {credential.source}; {credential.renew}, or check the address"
    )


def _failure(error: HTTPError) -> str:
    reason: Exception = error
    again = "it may have been done all the same: look (submit.py status, schedule list) before you try again"
    if isinstance(error, MaxRetryError):  # only what can be done twice is repeated
        reason, again = error.reason or error, "try again"
    if isinstance(reason, SSLError):
        return f"TLS failed ({reason}); give --ca-file if the certificate is the cluster's own, or check the address"
    if isinstance(reason, NewConnectionError):  # a subclass of the time-outs
        said = str(reason).rpartition(": ")[2]
        return f"cannot be reached ({said}); check the address, and that a port-forward still runs"
    if isinstance(reason, urllib3.exceptions.TimeoutError):
        seconds = READ_SECONDS if isinstance(reason, ReadTimeoutError) else CONNECT_SECONDS
        return f"no answer within {seconds} s; {again}"
    if isinstance(reason, ProtocolError):
        return f"the connection was cut; {again}"
    return f"the request failed ({reason}); check the address"


def _message(error: ApiException) -> str:
    """The server's own message, ready to follow a status."""
    try:
        document = json.loads(error.body)
        text = document.get("message") or document.get("error") or document.get("error_message") or ""
    except (TypeError, ValueError, AttributeError):
        text = "" if "<" in str(error.body) else error.body or ""  # of a gateway: a page, or plain text
    text = " ".join(str(text).split())
    return f": {text[:300]}" if text else ""
