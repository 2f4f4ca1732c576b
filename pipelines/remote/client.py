"""A server of Kubeflow Pipelines: every request has a time-out, and every refusal becomes one line.

This uses the client that is generated from the API's contract (kfp-server-api), and not `kfp.Client`, which wraps it.
`kfp.Client` sets no time-outs, asks for the server's health five times, five seconds apart, and sends a credential from
the environment to any address that it is given.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import kfp_server_api as api
import urllib3
from kfp_server_api import ApiException
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError, SSLError

from calopipe.errors import InputError
from pipelines.remote.connection import Connection

CONNECT_SECONDS = 10
READ_SECONDS = 40  # creating a run writes to a database and to Kubernetes
RETRY = urllib3.Retry(
    total=4,
    connect=1,
    other=0,
    redirect=0,  # a redirect leads to a login page, and would turn a POST into a GET
    allowed_methods={"GET"},  # other requests are not repeated: the server may have done a part of them
    status_forcelist={429, 502, 503, 504},
    backoff_factor=0.5,
    retry_after_max=30,
    raise_on_redirect=False,
    raise_on_status=False,
)


class RefusalError(InputError):
    """The server, or something on the way to it, refused a request."""


class UnreachableError(RefusalError):
    """The server could not be reached, or failed; the same request may succeed later."""


class _Client(api.ApiClient):
    """The generated client. Its `request` sends everything, with a time-out and one credential."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        configuration = api.Configuration(host=connection.endpoint)
        configuration.ssl_ca_cert = connection.ca_file
        configuration.retries = RETRY
        # urllib3 warns of each retry. The client sets the level of the logger "urllib3" itself back for every model.
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
        credential = connection.credential
        secret = credential.read()
        if secret and not credential.is_cookie:
            configuration.api_key_prefix = {"authorization": "Bearer"}
            configuration.api_key = {"authorization": secret}
            configuration.refresh_api_key_hook = lambda current: current.api_key.update(authorization=credential.read())
        super().__init__(configuration, cookie=secret if credential.is_cookie else None)

    def request(self, method: str, url: str, **more: Any) -> Any:
        """The server's answer. RefusalError, in one line without secrets: no answer, or a refusal."""
        where, credential = self.connection.endpoint, self.connection.credential
        try:
            response = super().request(method, url, **more | {"_request_timeout": (CONNECT_SECONDS, READ_SECONDS)})
            json.loads(response.data)
        except ApiException as error:
            kind = UnreachableError if error.status == 429 or error.status >= 500 else RefusalError
            again = self._again(method) if error.status >= 500 else ""
            raise kind(f"{where}: {credential.hide(_refusal(error, self.connection))}{again}") from None
        except HTTPError as error:
            reason = (error.reason if isinstance(error, MaxRetryError) else None) or error
            again = "" if isinstance(reason, (NewConnectionError, SSLError)) else self._again(method)
            raise UnreachableError(f"{where}: {_failure(reason)}{again}") from None
        except ValueError:  # the answer is a page; the API answers in JSON
            raise RefusalError(f"{where}: {_login(self.connection)}") from None
        return response

    def _again(self, method: str) -> str:
        """What to do about a request that the server may have done: it stores each run and schedule in two places."""
        if method == "GET":
            return ""
        return (
            "; the request may have been done, even if no list of the server shows that; look before you repeat it, "
            "and delete what should not be there: kubectl get workflows,scheduledworkflows "
            f"--namespace {self.connection.run_namespace}"
        )


class Server:
    """The services of a Kubeflow Pipelines server."""

    def __init__(self, connection: Connection) -> None:
        client = _Client(connection)
        self.connection = connection
        self.experiments = api.ExperimentServiceApi(client)
        self.runs = api.RunServiceApi(client)
        self.schedules = api.RecurringRunServiceApi(client)
        self.pipelines = api.PipelineServiceApi(client)

    @property
    def scope(self) -> dict[str, str]:
        """The argument with which a request names the user's namespace."""
        return {"namespace": self.connection.namespace} if self.connection.namespace else {}


def named(name: str) -> str:
    """The filter of a request for objects with this name."""
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})


def _refusal(error: ApiException, connection: Connection) -> str:
    status, message, credential = error.status, _message(error), connection.credential
    if 300 <= status < 400:
        return _login(connection)
    if status in {401, 403}:
        place = f" to namespace {connection.namespace}, which may not exist," if connection.namespace else ""
        return f"access refused ({status}){place} with {credential.source}; {credential.renew}{message}"
    if status == 404:
        return f"not found (404){message}; check the id, and the address, which in a full Kubeflow ends in /pipeline"
    if status >= 500:
        return f"the server failed ({status} {error.reason}){message}; see kubectl logs deployment/ml-pipeline"
    return f"the server refused this ({status} {error.reason}){message}"


def _login(connection: Connection) -> str:
    credential = connection.credential
    return (
        "a web page answers in place of the API, a login most likely, "
        f"with {credential.source}; {credential.renew}, or check the address"
    )


def _failure(reason: Exception) -> str:
    if isinstance(reason, SSLError):
        return f"TLS failed ({reason}); give --ca-file if the certificate is the cluster's own, or check the address"
    message = str(reason).rpartition(": ")[2]
    return f"cannot be reached, or does not answer ({message}); check the address, and that a port-forward still runs"


def _message(error: ApiException) -> str:
    """The server's own message, in a form that can follow a status."""
    body = (error.body or b"").decode(errors="replace")
    try:
        text = str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        text = "" if "<" in body else body  # a gateway answers with a page, or plain text
    text = " ".join(text.split())
    return f": {text[:300]}" if text else ""
