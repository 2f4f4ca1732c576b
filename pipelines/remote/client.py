"""kfp's client with every request bounded, and what goes wrong told in one line."""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any, TypeVar

import kfp
import kfp_server_api
import urllib3
from kfp_server_api import ApiException
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError, ProtocolError, ReadTimeoutError, SSLError

from calopipe.errors import InputError
from pipelines.remote.connection import Connection

NAMESPACE = "kubeflow"  # of the runs of a server that has one user
CONNECT_SECONDS = 10
READ_SECONDS = 40  # creating a run writes to a database and to Kubernetes
LOOK_AGAIN_SECONDS = 10  # for what was being written when the connection broke
_T = TypeVar("_T")


class RefusalError(InputError):
    """The server, or the way to it, did not do what was asked."""


class UnreachableError(RefusalError):
    """The server could not be reached, or not now; the same request may succeed later."""


class FailureError(UnreachableError):
    """The server failed, and may have done a part of what was asked."""


class Retry(urllib3.Retry):
    """Reads, and deletions, which may be repeated, are; of all else only what the server put off unseen (429)."""

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        return status_code == 429 or super().is_retry(method, status_code, has_retry_after)

    def sleep_for_retry(self, response: urllib3.BaseHTTPResponse) -> bool:
        if seconds := self.get_retry_after(response):
            print(f"the server asks to wait {seconds:.0f} s", file=sys.stderr)
        return super().sleep_for_retry(response)


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


class Client(kfp.Client):
    """kfp's own sets no time-out on any request, and asks for the server's health five times, five seconds apart."""

    one_user = False
    """Whether the server has one user: it ignores namespaces, and runs are in its own."""

    def get_user_namespace(self) -> str:
        return "" if self.one_user else str(super().get_user_namespace())

    @property
    def run_namespace(self) -> str:
        """Where the pods of runs are."""
        return self.get_user_namespace() or NAMESPACE

    def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:  # noqa: ARG002  kfp's signature
        logging.getLogger("urllib3").setLevel(logging.ERROR)  # it warns of each retry; kfp's constructor lets it
        rest = self._healthz_api.api_client.rest_client
        if "retries" not in rest.pool_manager.connection_pool_kw:
            rest.pool_manager.connection_pool_kw["retries"] = RETRY
            rest.request = _bounded(rest.request)
        return self._healthz_api.healthz_service_get_healthz()


def _bounded(send: Callable[..., Any]) -> Callable[..., Any]:
    def request(method: str, url: str, **more: Any) -> Any:
        response = send(method, url, **more | {"_request_timeout": (CONNECT_SECONDS, READ_SECONDS)})
        try:
            json.loads(response.data)
        except ValueError:
            raise _NotTheApiError from None
        return response

    return request


class _NotTheApiError(Exception):
    """A page came where the API answers in JSON."""


class _UnansweredError(Exception):
    """Something was to be made, the answer was lost, and it is not there; the message says how."""


@contextmanager
def connected(connection: Connection) -> Iterator[Client]:
    """A client of a server that answers and speaks its language; what is refused becomes an InputError."""
    with told(connection):
        try:
            client = _client(connection)
            _require_compatible(client, connection)
        except ApiException as error:
            if error.status != 404:
                raise
            raise InputError(
                f"{connection.endpoint}: no API v2beta1 of Kubeflow Pipelines here (404); check the address, which in "
                "a full Kubeflow ends in /pipeline, and that the server is version 2"
            ) from None
        yield client


def _client(connection: Connection) -> Client:
    credential = connection.credential
    secret = credential.read()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # that the client is for version 2, which is what we speak
        client = Client(
            host=connection.endpoint,
            namespace=connection.namespace or NAMESPACE,  # which kfp takes for none
            existing_token=None if credential.is_cookie else secret,
            cookies=secret if credential.is_cookie else "",  # not those of kfp's own context file
            ssl_ca_cert=connection.ca_file,
        )
    if secret and not credential.is_cookie:

        def refresh(configuration: Any) -> None:
            configuration.api_key["authorization"] = credential.read()

        client._existing_config.refresh_api_key_hook = refresh  # kfp has no other way for a token
    return client


def _require_compatible(client: Client, connection: Connection) -> None:
    health = client.get_kfp_healthz()
    # the server says more than the model of the published contract keeps
    said = json.loads(client._healthz_api.api_client.last_response.data)
    ours = kfp_server_api.__version__
    version = str(said.get("tag_name", "unknown")).removeprefix("v")
    if health.multi_user is None or (version[:1].isdigit() and version.split(".")[0] != ours.split(".")[0]):
        raise InputError(
            f"{connection.endpoint}: the server's version is {version}, and this client speaks {ours}; "
            "install the kfp that goes with the server"
        )
    client.one_user = not health.multi_user
    if client.one_user and connection.namespace not in {None, NAMESPACE}:
        print(
            f"{connection.endpoint}: the server has one user and ignores --namespace {connection.namespace}; its runs "
            f"are in {client.run_namespace}",
            file=sys.stderr,
        )
    if health.multi_user and not client.get_user_namespace():
        raise InputError(f"{connection.endpoint}: the server has several users; give --namespace, that of your profile")


@contextmanager
def told(connection: Connection) -> Iterator[None]:
    """Whatever the server, or the way to it, refuses inside becomes an InputError of one line without secrets."""
    where = connection.endpoint
    try:
        yield
    except ApiException as error:
        kind = FailureError if error.status >= 500 else UnreachableError if error.status == 429 else RefusalError
        raise kind(connection.credential.hide(f"{where}: {_refusal(error, connection)}")) from None
    except _NotTheApiError:
        raise RefusalError(f"{where}: {_login(connection)}") from None
    except _UnansweredError as error:
        raise RefusalError(
            f"{where}: {error}; what was asked for was not found, and may come into being yet: look for it (submit.py "
            "status, schedule list, the UI) before you ask again"
        ) from None
    except HTTPError as error:
        raise UnreachableError(f"{where}: {_failure(error)}") from None


def _refusal(error: ApiException, connection: Connection) -> str:
    status, said, credential = error.status, said_by(error), connection.credential
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
    reason = error.reason if isinstance(error, MaxRetryError) and error.reason else error
    if isinstance(reason, SSLError):
        return f"TLS failed ({reason}); give --ca-file if the certificate is the cluster's own, or check the address"
    if isinstance(reason, NewConnectionError):  # which is a time-out too, by its class
        said = str(reason).rpartition(": ")[2]
        return f"cannot be reached ({said}); check the address, and that a port-forward still runs"
    if isinstance(reason, urllib3.exceptions.TimeoutError):
        return (
            f"no answer within {READ_SECONDS if isinstance(reason, ReadTimeoutError) else CONNECT_SECONDS} s; try again"
        )
    if isinstance(reason, ProtocolError):
        return "the connection was cut; try again"
    return f"the request failed ({reason}); check the address"


def said_by(error: ApiException) -> str:
    """The server's own message, ready to follow a status."""
    try:
        document = json.loads(error.body)
        text = document.get("message") or document.get("error") or document.get("error_message") or ""
    except (TypeError, ValueError, AttributeError):
        text = "" if "<" in str(error.body) else error.body or ""  # of a gateway: a page, or plain text
    text = " ".join(str(text).split())
    return f": {text[:300]}" if text else ""


def once(create: Callable[[], _T], find: Callable[[], _T | None]) -> _T:
    """What `create` makes, made once: after a request whose answer was lost, `find` looks for it, and again later.

    The request is not repeated: it may have arrived all the same, and be on its way still.
    """
    try:
        return create()
    except (ProtocolError, ReadTimeoutError, ApiException) as error:
        if isinstance(error, ApiException) and error.status not in RETRY.status_forcelist:
            raise
        lost = _UnansweredError(_loss(error))
    try:
        for pause in (0, LOOK_AGAIN_SECONDS):
            time.sleep(pause)
            made = find()
            if made is not None:
                return made
    except (HTTPError, ApiException):
        pass  # it cannot be looked for either
    raise lost


def _loss(error: Exception) -> str:
    if isinstance(error, ApiException):
        return f"something on the way to the server failed ({error.status} {error.reason})"
    return "the connection was cut" if isinstance(error, ProtocolError) else f"no answer within {READ_SECONDS} s"


def quietly(call: Callable[..., _T], /, *arguments: Any, **more: Any) -> _T:
    """The result of one of kfp's calls that print links of their own."""
    with redirect_stdout(StringIO()):
        return call(*arguments, **more)
