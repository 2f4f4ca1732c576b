"""What each step asks of a cluster: processors, memory, time, attempts; and how a user changes that."""

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

    Processors and memory are both request and limit: a pod can use what it was promised, and one that needs more fails
    itself and not its neighbours.
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
        """As many as there are processors."""
        return math.ceil(int(self.cpu[:-1]) / 1000 if self.cpu.endswith("m") else float(self.cpu))


# Retries: every step can be repeated, since it writes its output whole or not at all and continues from what is there.
# Promotion too: it names the model by its content, and at a second attempt finds what the first one did. Training gets
# one retry more, since it runs long on machines that may be taken away; not more than one, because kfp cannot recognise
# bad input, which would fail every time, and the waits double from a minute. Which ends are repeated is Argo's policy,
# which kfp cannot state: failures but no deleted pods, and in Pipelines 2.17.0 as installed the reverse.
STEPS = {
    # Hashes the files, about 1 GB a second from a disk and less from a store; then 0.25 GiB a process were measured
    # with 100,000 showers.
    "preprocess": Resources("Preprocess", cpu="2", memory="2Gi", hours=12),
    # Measured on two processors: 2 GiB for the config fast, 5.6 GiB for 3dgan, whose batch is 64.
    "train": Resources("Train", cpu="4", memory="8Gi", hours=72, retries=3),
    # 0.9 GiB were measured with the model of 3dgan on a processor.
    "generate": Resources("Generate showers", cpu="4", memory="4Gi", hours=12),
    # 0.8 GiB were the most that was measured.
    "validate": Resources("Validate", cpu="2", memory="2Gi", hours=12),
    # Copies some megabytes.
    "promote": Resources("Promote", cpu="500m", memory="1Gi", hours=1),
}
# The pod that starts a training on several nodes and follows it; `hours` is what cleaning up takes after that.
LAUNCHER = Resources("Train on several nodes", cpu="500m", memory="1Gi", hours=0.5, retries=STEPS["train"].retries)


def step_of(task: str) -> str:
    """The step that a task belongs to: kfp calls several tasks of one component generate, generate-2, ...

    A flow's step, such as generate-flow, asks for what that of showers does.
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
