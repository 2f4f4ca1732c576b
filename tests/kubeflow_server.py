"""A server on loopback that speaks only the v2beta1 API of Kubeflow Pipelines, and has a state.

The published contract is the package kfp-server-api, generated from the API's OpenAPI document: its classes name every
route with its query parameters, and the models of bodies and answers. Every request of the client and every answer of
this server is checked against the contract, field by field, by code that shares nothing with the client's own. What
breaks the contract is in `Kubeflow.departures`, which the fixture of the tests expects to be empty.
"""

from __future__ import annotations

import inspect
import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kfp_server_api
from servers import Answering, Played

NOW = "2026-01-02T15:04:05Z"
LATER = "2026-01-02T15:05:04.6Z"  # 59.6 s after
NEVER = "0001-01-01T00:00:00Z"  # Go's time of nothing, which the real server gives for the end of what goes on
STEPS = ["preprocess", "train", "generate", "validate", "promote"]


def write_small(path: Path, _platform: object, _name: str = "") -> None:
    """Write a small package, which is read 100 times as fast as that of the whole pipeline (half a second)."""
    pipeline = "pipelineInfo: {name: calorimeter}\nroot: {dag: {tasks: {preprocess: {}}}}\nschemaVersion: 2.1.0\n"
    path.write_text(f"{pipeline}---\nplatforms: {{}}\n")


@dataclass(frozen=True)
class Operation:
    """One route of the contract."""

    name: str
    method: str
    path: re.Pattern[str]
    query: frozenset[str]
    body: str | None
    answer: str


def contract() -> list[Operation]:
    """Every route that the package's API classes name, those with the fewest parameters first."""
    found = []
    for service in (value for name, value in vars(kfp_server_api).items() if name.endswith("ServiceApi")):
        for name, function in inspect.getmembers(service, inspect.isfunction):
            if not name.endswith("_with_http_info"):
                continue
            source = inspect.getsource(function)
            path, method = re.search(r"call_api\(\s*'([^']+)', '([A-Z]+)'", source).groups()  # type: ignore[union-attr]
            body = re.search(r"body_params = local_var_params\['(\w+)'\]", source)
            model = re.search(rf":type {body[1]}: (\S+)", source)[1] if body else None  # type: ignore[index]
            answer = re.search(r"response_type='([^']+)'", source)[1]  # type: ignore[index]
            query = frozenset(re.findall(r"query_params.append\(\('([^']+)'", source))
            place = re.compile(re.sub(r"\{(?:\w+\.)?(\w+)\}", r"(?P<\1>[^/:]+)", path))
            found.append(Operation(name.removesuffix("_with_http_info"), method, place, query, model, answer))
    return sorted(found, key=lambda operation: operation.path.groups)


CONTRACT = contract()


def departures(value: Any, kind: str, where: str) -> Iterator[str]:
    """How `value` differs from the type `kind` of the contract."""
    if value is None:
        return
    if inner := re.fullmatch(r"list\[(.*)\]|dict\(str, (.*)\)", kind):
        values = enumerate(value) if inner[1] else value.items()
        for key, each in values:
            yield from departures(each, inner[1] or inner[2], f"{where}[{key}]")
    elif kind in {"str", "int", "bool", "datetime", "object"}:
        # a 64-bit integer is a string in JSON, and protobuf takes a number too
        python: Any = {"str": (str, int), "int": int, "bool": bool, "datetime": str, "object": object}[kind]
        if not isinstance(value, python) or (kind == "str" and isinstance(value, bool)):
            yield f"{where}: {value!r} is no {kind}"
        elif kind == "datetime":
            datetime.fromisoformat(value)
    else:
        model = getattr(kfp_server_api, kind)
        if not model.openapi_types:
            if value not in model.allowable_values:
                yield f"{where}: {value!r} is no {kind}"
            return
        fields = {key: model.openapi_types[name] for name, key in model.attribute_map.items()}
        for key, each in value.items():
            if key not in fields:
                yield f"{where}.{key}: no field of {kind}"
            else:
                yield from departures(each, fields[key], f"{where}.{key}")


@dataclass(frozen=True)
class Fault:
    """A fault of a request: a false answer, or no answer at all."""

    status: int = 0
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    hang: bool = False
    done: bool = False  # the request is done, and its answer lost


class RefusalError(Exception):
    """An error of the API: its HTTP status and its message."""


@dataclass
class Asked:
    """A request as it arrived."""

    operation: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Kubeflow:
    """The state of the server, and the faults that it is to have."""

    secret: str = ""
    multi_user: bool = False
    failing: str = ""
    """The step at which runs fail; "start" fails them before, "cancel" terminates them."""
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    """By operation, one a request; of the operation "*", for ever."""
    asked: list[Asked] = field(default_factory=list)
    departures: list[str] = field(default_factory=list)
    experiments: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    recurring: dict[str, dict[str, Any]] = field(default_factory=dict)
    ticks: Counter[str] = field(default_factory=Counter)
    released: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def sent(self, operation: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.operation == operation]

    def begun(self, steps: list[str], name: str = "calorimeter") -> str:
        """The id of a run that someone has started, of steps in a line."""
        tasks = {step: {"dependentTasks": steps[:number][-1:]} for number, step in enumerate(steps)}
        run = {"display_name": name, "state": "PENDING", "pipeline_spec": {"root": {"dag": {"tasks": tasks}}}}
        return str(self._add(self.runs, "run_id", run)["run_id"])

    # One method for each operation that a client may want; the name is that of the contract.

    def experiment_service_list_experiments(self, asked: Asked) -> dict[str, Any]:
        return self._page("experiments", self.experiments, asked)

    def experiment_service_create_experiment(self, asked: Asked) -> dict[str, Any]:
        self._allow(asked.body.get("namespace"))
        namespace = asked.body.get("namespace") if self.multi_user else ""
        return self._add(self.experiments, "experiment_id", asked.body | {"namespace": namespace})

    def run_service_create_run(self, asked: Asked) -> dict[str, Any]:
        self._known(self.experiments, asked.body["experiment_id"], "Experiment")
        return self._add(self.runs, "run_id", self._with_account(asked.body) | {"state": "PENDING"})

    def run_service_get_run(self, asked: Asked) -> dict[str, Any]:
        """Each request finds the run one step further."""
        run = self._known(self.runs, asked.query["run_id"], "Run")
        self.ticks[run["run_id"]] += 1
        version = run.get("pipeline_version_reference")
        whole = (self.versions[version["pipeline_version_id"]] if version else run)["pipeline_spec"]
        tasks = whole.get("pipeline_spec", whole)["root"]["dag"]["tasks"]  # the platform's part may be beside it
        before = {name: task.get("dependentTasks", []) for name, task in tasks.items()}
        order = [*TopologicalSorter(before).static_order()]
        run |= self._progress(run["run_id"], order, self.ticks[run["run_id"]])
        return run

    def run_service_list_runs(self, asked: Asked) -> dict[str, Any]:
        return self._page("runs", self.runs, asked)

    def recurring_run_service_create_recurring_run(self, asked: Asked) -> dict[str, Any]:
        self._known(self.experiments, asked.body["experiment_id"], "Experiment")
        assert asked.body["mode"] == "ENABLE"
        return self._add(self.recurring, "recurring_run_id", self._with_account(asked.body) | {"status": "ENABLED"})

    def recurring_run_service_list_recurring_runs(self, asked: Asked) -> dict[str, Any]:
        return self._page("recurringRuns", self.recurring, asked)

    def pipeline_service_get_pipeline_version(self, asked: Asked) -> dict[str, Any]:
        return self._known(self.versions, asked.query["pipeline_version_id"], "PipelineVersion")

    def _progress(self, run: str, order: list[str], tick: int) -> dict[str, Any]:
        """A run after so many ticks, of which each step takes two, with the nodes that Argo makes of a step.

        As the real server has it, a run that was terminated has failed, and its history alone tells the two apart; a
        step that was left out since another failed has a node without a state.
        """
        if self.failing == "start":
            return {"state": "FAILED", "run_details": {"task_details": []}}
        nodes = [_node(run, "root-driver", "SUCCEEDED"), _node(run, "root", "RUNNING")]
        state, history = "RUNNING", ["PENDING", "RUNNING"]
        for number, name in enumerate(order):
            if tick <= 2 * number:
                break
            if state == "FAILED":
                nodes.append(_node(run, name, ""))
                continue
            step = "RUNNING" if tick == 2 * number + 1 else "FAILED" if name == self.failing else "SUCCEEDED"
            nodes += [_node(run, f"{name}-driver", "SUCCEEDED"), _node(run, name, step), _node(run, "executor", step)]
            if step == "FAILED":
                state, tick = "FAILED", 2 * len(order)
        else:
            state = "SUCCEEDED" if nodes[-1].get("state") == "SUCCEEDED" else state
        if self.failing == "cancel" and tick > 2:
            state, history = "FAILED", [*history, "CANCELING"]
        passed = [{"update_time": NOW, "state": each} for each in [*history, state]]
        return {"state": state, "state_history": passed, "run_details": {"task_details": nodes}}

    def _with_account(self, body: dict[str, Any]) -> dict[str, Any]:
        """What is stored of a run or schedule: with the account of its pods, the default one where none is told."""
        return body | {"service_account": body.get("service_account") or "pipeline-runner"}

    def _add(self, table: dict[str, Any], key: str, document: dict[str, Any]) -> dict[str, Any]:
        identity = str(uuid.uuid4())
        table[identity] = document | {key: identity, "created_at": NOW}
        return table[identity]

    def _known(self, table: dict[str, Any], identity: str, what: str) -> dict[str, Any]:
        if identity not in table:
            raise RefusalError(404, f"ResourceNotFoundError: {what} {identity} not found")
        return table[identity]

    def _allow(self, namespace: str | None) -> None:
        if self.multi_user and namespace != "team":
            raise RefusalError(403, f"User 'me' is not authorized: no access (request: namespace:{namespace})")

    def _page(self, key: str, table: dict[str, Any], asked: Asked) -> dict[str, Any]:
        """The first page of what the namespace has, the newest first if asked so."""
        self._allow(asked.query.get("namespace"))
        rows = list(table.values())
        if wanted := asked.query.get("filter"):
            predicate = _predicate(wanted, self.departures)
            rows = [row for row in rows if row[predicate["key"]] == predicate["string_value"]]
        if asked.query.get("sort_by", "").endswith(" desc"):
            rows = rows[::-1]
        return {key: rows[: int(asked.query.get("page_size") or 10)], "total_size": len(rows)}


def _predicate(text: str, found: list[str]) -> dict[str, Any]:
    """The one predicate of a filter; its JSON may name fields as protobuf does."""
    (predicate,) = json.loads(text)["predicates"]
    plain = {re.sub("[A-Z]", lambda hit: f"_{hit[0].lower()}", key): value for key, value in predicate.items()}
    found += departures({"predicates": [plain]}, "V2beta1Filter", "filter")
    return plain


def _node(run: str, name: str, state: str) -> dict[str, Any]:
    """A node of a run; without a `state` it was left out."""
    node = {"run_id": run, "task_id": str(uuid.uuid4()), "display_name": name} | ({"state": state} if state else {})
    end = {"SUCCEEDED": LATER, "FAILED": LATER, "": NOW}.get(state, NEVER)
    times = {"create_time": NOW, "start_time": NOW, "end_time": end}
    return node | times | {"child_tasks": [{"pod_name": "calorimeter-x-1"}]}


class _Handler(Answering):
    server: Played

    def _take(self) -> None:
        kubeflow = self.server.state
        address = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        operation, query = _route(self.command, address.path)
        query |= {key: values[0] for key, values in parse_qs(address.query, keep_blank_values=True).items()}
        name = operation.name if operation else "unknown"
        headers = {key.lower(): value for key, value in self.headers.items()}
        asked = Asked(name, query, headers, json.loads(body) if body else None)
        kubeflow.asked.append(asked)
        waiting = kubeflow.faults.get(name, [])
        fault = waiting.pop(0) if waiting else next(iter(kubeflow.faults.get("*", [])), None)
        if not fault or fault.done:
            status, answer = self._answer(operation, asked)
        if fault:
            self._fail(fault)
        else:
            self.send(status, json.dumps(answer))

    do_GET = do_POST = _take  # noqa: N815

    def _answer(self, operation: Operation | None, asked: Asked) -> tuple[int, Any]:
        kubeflow = self.server.state
        try:
            if operation is None:
                raise RefusalError(404, "Not Found")
            secrets = {asked.headers.get("authorization"), asked.headers.get("cookie")}
            if kubeflow.secret and not secrets & {kubeflow.secret, f"Bearer {kubeflow.secret}"}:
                raise RefusalError(401, f"Unauthenticated: {', '.join(map(str, secrets))} is not known")
            kubeflow.departures += _departures_of(operation, asked)
            answer = getattr(kubeflow, operation.name)(asked)
        except RefusalError as error:
            status, message = error.args
            return status, {"error": message, "message": message, "details": []}
        kubeflow.departures += departures(answer, operation.answer, f"answer of {operation.name}")
        return 200, answer

    def _fail(self, fault: Fault) -> None:
        if fault.hang:
            self.server.state.released.wait()
        elif fault.status:
            self.send(fault.status, fault.body, *fault.headers)
        self.close_connection = True


def _route(method: str, path: str) -> tuple[Operation | None, dict[str, str]]:
    """The operation of a path, and the values of the path's parameters."""
    for operation in CONTRACT:
        if operation.method == method and (hit := operation.path.fullmatch(path)):
            return operation, hit.groupdict()
    return None, {}


def _departures_of(operation: Operation, asked: Asked) -> Iterator[str]:
    for key in asked.query.keys() - operation.query - operation.path.groupindex.keys():
        yield f"{operation.name}: no query parameter {key}"
    if operation.body:
        yield from departures(asked.body, operation.body, f"body of {operation.name}")
    elif asked.body is not None:
        yield f"{operation.name}: takes no body"


@contextmanager
def serve(*certificate: Path) -> Iterator[Kubeflow]:
    """The server in a thread of its own, for as long as the block; over TLS with a `certificate` and its key."""
    kubeflow = Kubeflow()
    with Played(_Handler, kubeflow, certificate).serving(kubeflow.released.set) as kubeflow.address:
        yield kubeflow
