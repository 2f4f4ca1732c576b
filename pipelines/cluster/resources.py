"""What each step asks of a cluster: processors, memory, time, attempts; and the options that change these."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from calopipe.errors import InputError

MEMORY = re.compile(r"[1-9][0-9]*(Mi|Gi|Ti|M|G|T)")
_CPU = re.compile(r"[1-9][0-9]*m?|[0-9]+\.[0-9]*[1-9]")
_HOURS_A_YEAR = 8760
_HOURS = re.compile(r"[0-9]{1,4}(\.[0-9]*)?|\.[0-9]+")


@dataclass(frozen=True)
class Resources:
    """What a step asks for: `title` is its name in the UI, `hours` the limit of one attempt.

    Processors and memory are both request and limit. A pod can use what it was promised; a pod that needs more fails
    itself and does not make its neighbours fail.
    """

    title: str
    cpu: str
    memory: str
    hours: float
    retries: int = 2

    @property
    def seconds(self) -> int:
        return math.ceil(self.hours * 3600)

    @property
    def threads(self) -> int:
        """The number of threads: one for each processor."""
        return math.ceil(int(self.cpu[:-1]) / 1000 if self.cpu.endswith("m") else float(self.cpu))


# Retries: every step can be repeated, since it writes its output whole or not at all and continues from what is there.
# Promotion can be repeated too: it names the model by its content, and a second attempt finds what the first one did.
# Training gets one retry more, since it runs long on machines that may be taken away. It gets no more than that: bad
# input fails every time, kfp cannot recognise it, and the waits double from a minute. Argo's policy decides which ends
# are repeated, and kfp cannot state it: failures but no deleted pods, in Pipelines 2.17.0 as installed the reverse.
STEPS = {
    # Hashes the files, about 1 GB a second from a disk and less from a store. With 100,000 showers, 0.25 GiB a process
    # were measured after that.
    "preprocess": Resources("Preprocess", cpu="2", memory="2Gi", hours=12),
    # Measured on two processors: 2 GiB for the config fast, 5.6 GiB for 3dgan, whose batch is 64.
    "train": Resources("Train", cpu="4", memory="8Gi", hours=72, retries=3),
    # 0.9 GiB were measured with the model of 3dgan on a processor.
    "generate": Resources("Generate showers", cpu="4", memory="4Gi", hours=12),
    # At most 0.8 GiB were measured.
    "validate": Resources("Validate", cpu="2", memory="2Gi", hours=12),
    # Copies some megabytes.
    "promote": Resources("Promote", cpu="500m", memory="1Gi", hours=1),
}
# The pod that starts a training on several nodes and follows it; `hours` is the time for cleaning up afterwards.
LAUNCHER = Resources("Train on several nodes", cpu="500m", memory="1Gi", hours=0.5, retries=STEPS["train"].retries)


def step_of(task: str) -> str:
    """The step that a task belongs to: kfp calls several tasks of one component generate, generate-2, ...

    A step of a flow, such as generate-flow, asks for the same as that step of showers.
    """
    return re.sub(r"(-flow)?(-[0-9]+)?$", "", task)


def resources_by_step(resources: Iterable[str], hours: Iterable[str]) -> dict[str, Resources]:
    """STEPS with the changes of options "STEP=CPU,MEMORY" and "STEP=HOURS"; InputError for any other form."""
    resources_of = dict(STEPS)
    for option in resources:
        step, _, amounts = option.partition("=")
        cpu, _, memory = amounts.partition(",")
        if step not in STEPS or not _CPU.fullmatch(cpu) or not MEMORY.fullmatch(memory):
            raise InputError(
                f"--resources {option!r}: expected STEP=CPU,MEMORY, for example train=8,32Gi, with a step of "
                f"{', '.join(STEPS)}"
            )
        resources_of[step] = replace(resources_of[step], cpu=cpu, memory=memory)
    for option in hours:
        step, _, amount = option.partition("=")
        if step not in STEPS or not _HOURS.fullmatch(amount) or not 0 < float(amount) <= _HOURS_A_YEAR:
            raise InputError(
                f"--hours {option!r}: expected STEP=HOURS, for example train=100, with a step of {', '.join(STEPS)}"
            )
        resources_of[step] = replace(resources_of[step], hours=float(amount))
    return resources_of
