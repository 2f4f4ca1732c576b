"""Training on several hosts of a cluster: a Kubeflow TrainJob is created, followed and deleted.

Kubeflow Trainer makes a JobSet of the TrainJob. Its one job, "node", has a pod for each worker. When a worker is lost,
the JobSet restarts all of them, as the runtime says (`deploy/nodes/training-runtime.yaml`). The launcher deletes the
TrainJob at its end. The pods of the launchers own the TrainJob: if a launcher is killed, Kubernetes deletes the
TrainJob when all these pods are deleted. A pod that has only failed is still there, so the step's next attempt finds
the TrainJob. No TensorFlow in here.
"""

from __future__ import annotations

import hashlib
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kubernetes.client import V1Pod

from calopipe import storage
from calopipe.errors import BAD_INPUT_EXIT_CODE, InputError
from calopipe.kubernetes import Json
from training.nodes.trainapi import GROUP, VERSION, TrainJobs, pod_state, this_pod, worker_end, workers
from training.nodes.workers import PREEMPTED, most_telling, stop_signals

PORT = 2222  # of each worker's TensorFlow server
_JOB = "node"  # the name of the runtime's job of workers
_SPEC_HASH = "calopipe/request"  # the annotation by which two TrainJobs with one name differ

_LINES_SHOWN = 40
_LOG_OVERLAP_S = 5  # read again at each look; known lines are recognised by their time stamps, in nanoseconds
_DELETING_S = 10.0  # time to delete the job: after a signal, a pod has by default 30 s until it is killed
_EVERY_S = 5.0  # between two looks at the cluster
_PATIENCE_S = 300.0  # the longest time that the cluster may not answer
_START_S = 300.0  # a job without a pod, which Kubernetes refuses to start, has failed after this time


def job_name(training: str) -> str:
    """The name of a training's TrainJob. It is a function of `training`, so a step that is started again finds it."""
    return f"calopipe-{hashlib.sha256(training.encode()).hexdigest()[:16]}"


def manifest(
    name: str, *, nodes: int, image: str, arguments: Sequence[str], resources: Mapping[str, str], runtime: str
) -> dict[str, Any]:
    """The TrainJob in which `nodes` workers run `python -m training` with `arguments`, as one training.

    `resources` are the requests and limits of each worker, `runtime` is the TrainingRuntime in the namespace. Each
    worker finds its index in JOB_COMPLETION_INDEX, which Kubernetes sets.
    """
    # A JobSet gives its pods these names, in a headless service with the JobSet's name.
    hosts = ",".join(f"{name}-{_JOB}-0-{index}.{name}:{PORT}" for index in range(nodes))
    trainer = {
        "numNodes": nodes,
        "image": image,
        "command": ["python", "-m", "training"],
        # Kubernetes replaces $(NAME) by the value of a variable, and $$ by $.
        "args": [text.replace("$", "$$") for text in (*arguments, "--hosts", hosts)],
        "resourcesPerNode": {"requests": dict(resources), "limits": dict(resources)},
    }
    spec = {"runtimeRef": {"apiGroup": GROUP, "kind": "TrainingRuntime", "name": runtime}, "trainer": trainer}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "TrainJob",
        "metadata": {"name": name, "annotations": {_SPEC_HASH: storage.fingerprint(spec)}},
        "spec": spec,
    }


def launch(wanted: Json, deadline_s: float) -> None:
    """Run the TrainJob `wanted`, which `manifest` made, to its end. The first worker's log is repeated here.

    A launcher that was killed and is started again continues with the job it finds. The job is deleted when this
    function ends: when the job has completed or failed, after `deadline_s` seconds of this launcher, or on SIGTERM and
    SIGINT, which end this process. If this process is killed, or the API does not answer, the job goes on until the
    pods of its launchers are deleted, another launcher follows it, or it ends by itself.

    Raises InputError for what a user can correct, such as a worker's bad input, and RuntimeError for any other failure
    of a worker. Must be called from the main thread, since it handles signals.
    """
    owner = this_pod()
    with stop_signals() as signals:
        jobs = TrainJobs(_pause_until(signals, deadline_s), _PATIENCE_S)
        job = _attach(jobs, wanted, owner)
        try:
            ended = _watch(jobs, job)
            if _is(ended, "Failed"):
                raise _failure(jobs, ended)
        finally:
            _delete(job)


def _pause_until(signals: Sequence[int], deadline_s: float) -> Callable[[], None]:
    """A function that waits until the next look at the cluster; the deadline is so many seconds from now.

    The function raises SystemExit after a stop signal, InputError after the deadline.
    """
    deadline = time.monotonic() + deadline_s

    def pause() -> None:
        until = min(time.monotonic() + _EVERY_S, deadline)
        while not signals and time.monotonic() < until:
            time.sleep(0.2)
        if signals:
            raise SystemExit(130 if signals[0] == signal.SIGINT else PREEMPTED)
        if time.monotonic() >= deadline:
            raise InputError(
                f"training on several nodes did not end within {deadline_s:g} s; its checkpoints are kept: run again "
                "to go on, with more time"
            )

    return pause


def _attach(jobs: TrainJobs, wanted: Json, owner: Json | None) -> Json:
    """The `wanted` job, owned by `owner`: a new one, or the one that an earlier launcher has left.

    An earlier job that failed, or that is complete and had another spec, is deleted first.
    """
    name = wanted["metadata"]["name"]
    if owner is not None:
        wanted = {**wanted, "metadata": {**wanted["metadata"], "ownerReferences": [owner]}}
    while (job := jobs.create(wanted)) is None:
        earlier = jobs.get(name)
        if earlier is not None and "deletionTimestamp" not in earlier["metadata"]:
            asked = earlier["metadata"].get("annotations", {}).get(_SPEC_HASH)
            same = asked == wanted["metadata"]["annotations"][_SPEC_HASH]
            if _is(earlier, "Failed") or (_is(earlier, "Complete") and not same):
                jobs.delete(earlier)
            elif same:
                if (owned := earlier if owner is None else jobs.add_owner(earlier, owner)) is not None:
                    _say(f"TrainJob {name} is there already; following it")
                    return owned
            else:
                raise InputError(
                    f"TrainJob {name} in namespace {jobs.namespace} runs this training with another image, arguments, "
                    f"resources or number of nodes; wait for its end, or: kubectl delete trainjob {name}"
                )
        jobs.pause()
    _say(f"TrainJob {name} is created in namespace {jobs.namespace}")
    return job


def _watch(jobs: TrainJobs, job: Json) -> Json:
    """Print the first worker's log and the states of the pods until the job has ended; returns the ended job."""
    name = job["metadata"]["name"]
    log, shown, warned, since = _Log(jobs), "", set[str](), time.monotonic()
    while True:
        now = jobs.get(name)
        if now is None or "deletionTimestamp" in now["metadata"] or now["metadata"]["uid"] != job["metadata"]["uid"]:
            raise InputError(f"TrainJob {name} was deleted by somebody else; run again to go on from its checkpoints")
        team = workers(jobs.pods(name))
        state = ", ".join(f"worker {index} {pod_state(pod)}" for index, pod in sorted(team.items()))
        if state not in {"", shown}:
            _say(state)
            shown = state
        if 0 in team:
            log.print_new(team[0])
        if _is(now, "Complete") or _is(now, "Failed"):
            return now
        if not shown:  # there has been no pod so far
            _look_at_start(jobs, job, warned, late=time.monotonic() - since >= _START_S)
        jobs.pause()


def _look_at_start(jobs: TrainJobs, job: Json, warned: set[str], *, late: bool) -> None:
    """Print why `job` has no pods yet: those warnings of Kubernetes that were not `warned` before.

    InputError if it is `late` and a warning is about the job itself.
    """
    name, refused, lines = job["metadata"]["name"], "", []
    for event in jobs.warnings(job):
        why = f"{event.reason}: {' '.join((event.message or '').split())}"
        lines.append(f"{event.involved_object.kind} {event.involved_object.name}: {why}")
        refused = why if event.involved_object.kind == "TrainJob" else refused
    if late and not (warned or lines):
        lines.append(f"TrainJob {name} has no pod yet, and no event says why; does the Trainer's controller run?")
    for line in lines:
        if line not in warned:
            warned.add(line)
            _say(line)
    if late and refused:
        raise InputError(f"TrainJob {name} has no pod after {_START_S:g} s: {refused}")


def _delete(job: Json) -> None:
    """Delete `job`. An error is printed and not raised, so that it does not hide an earlier error."""
    name = job["metadata"]["name"]
    try:
        TrainJobs(partial(time.sleep, 1.0), _DELETING_S).delete(job)
    except InputError as error:
        _say(f"{error}; when it can be reached: kubectl delete trainjob {name}")
    else:
        _say(f"TrainJob {name} is deleted")


def _failure(jobs: TrainJobs, job: Json) -> Exception:
    """The error of `job`, from the worker that caused it; prints the end of that worker's log."""
    name = job["metadata"]["name"]
    ends = {
        index: (pod, end)
        for index, pod in workers(jobs.pods(name)).items()
        if (end := worker_end(pod)) and end.exit_code
    }
    if not ends:
        message = next(c["message"] for c in job["status"]["conditions"] if c["type"] == "Failed")
        return RuntimeError(f"TrainJob {name} has failed, and no worker is left to say why: {message}")
    index = most_telling({index: end.exit_code for index, (_, end) in ends.items()})
    pod, end = ends[index]
    if index != 0:  # the log of worker 0 has been shown
        for line in jobs.log(pod.metadata.name, tail_lines=_LINES_SHOWN) or ():
            _say(f"worker {index}: {line}")
    last_word = next((line for line in reversed((end.message or "").splitlines()) if line.strip()), "")
    if end.exit_code == BAD_INPUT_EXIT_CODE:
        return InputError(last_word.removeprefix("error: ") or f"worker {index} of TrainJob {name}: bad input")
    why = f"exit code {end.exit_code}" + (f", {end.reason}" if end.reason not in {None, "Error"} else "")
    return RuntimeError(f"worker {index} of TrainJob {name} has failed ({why}): {last_word or 'see the log above'}")


class _Log:
    """Prints the log of a pod, and then of the pods that replace it; each line once."""

    def __init__(self, jobs: TrainJobs) -> None:
        self._jobs = jobs
        self._pod, self._read_at, self._last = "", 0.0, ""  # `_last`: the newest time stamp

    def print_new(self, pod: V1Pod) -> None:
        """Print the lines that `pod` has written since the last call."""
        if pod.metadata.uid != self._pod:
            self._pod, self._last = pod.metadata.uid, ""
        asked_at = time.monotonic()
        since = {"since_seconds": int(asked_at - self._read_at) + _LOG_OVERLAP_S} if self._last else {}
        lines = self._jobs.log(pod.metadata.name, timestamps=True, **since)
        if lines is None:
            return
        self._read_at = asked_at
        before = self._last
        for stamp, _, text in (line.partition(" ") for line in lines):
            if stamp > before:
                self._last = stamp
                print(text, flush=True)


def _is(job: Json, condition: str) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return any(state["type"] == condition and state["status"] == "True" for state in conditions)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
