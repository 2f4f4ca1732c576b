"""What each step asks of a cluster: processors, memory, time, attempts; and how a user says otherwise."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from calopipe.errors import InputError

_CPU = re.compile(r"[1-9][0-9]*m?|[0-9]+\.[0-9]*[1-9]")
MEMORY = re.compile(r"[1-9][0-9]*(Mi|Gi|Ti|M|G|T)")


@dataclass(frozen=True)
class Needs:
    """What a step asks for: `title` is its name in the UI, `hours` the limit of one attempt.

    Processors and memory are both request and limit: what a pod may use it has been given, and a pod that needs more
    fails by itself instead of its neighbours.
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


# Retries: every step can be repeated, since each leaves its output whole or not at all and goes on from what stands.
# Promotion too: it names the model by its content, and finds at a second attempt what the first one did. Training is
# repeated once more, being what runs long on machines that may be taken away; not more often, because kfp cannot tell
# bad input, which is as bad the next time, and the waits double from a minute.
STEPS = {
    # Hashes the files, about 1 GB a second from a disk and less from a store.
    "discover": Needs("Discover files", cpu="1", memory="1Gi", hours=2),
    # 0.25 GiB a process were measured with 100,000 showers.
    "preprocess": Needs("Preprocess", cpu="2", memory="2Gi", hours=12),
    # Measured on two processors: 2 GiB for the config fast, 5.6 GiB for 3dgan, whose batch is 64.
    "train": Needs("Train", cpu="4", memory="8Gi", hours=72, retries=3),
    # 0.9 GiB were measured with the model of 3dgan on a processor.
    "generate": Needs("Generate showers", cpu="4", memory="4Gi", hours=12),
    # 0.8 GiB were the most that was measured.
    "validate": Needs("Validate", cpu="2", memory="2Gi", hours=12),
    # Copies some megabytes.
    "promote": Needs("Promote", cpu="500m", memory="1Gi", hours=1),
}
# The pod that starts a training of several nodes and follows its log, and outlasts it by the time of cleaning up.
LAUNCHER = Needs("Train on several nodes", cpu="500m", memory="1Gi", hours=0.5, retries=STEPS["train"].retries)


def parse_resources(option: str) -> tuple[str, str, str]:
    """The step, processors and memory of "STEP=CPU,MEMORY"."""
    step, _, amounts = option.partition("=")
    cpu, _, memory = amounts.partition(",")
    if step not in STEPS or not _CPU.fullmatch(cpu) or not MEMORY.fullmatch(memory):
        raise InputError(
            f"--resources {option!r}: expected STEP=CPU,MEMORY, for example train=8,32Gi, with a step of "
            f"{', '.join(STEPS)}"
        )
    return step, cpu, memory


def parse_hours(option: str) -> tuple[str, float]:
    """The step and time of "STEP=HOURS"."""
    step, _, text = option.partition("=")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if step not in STEPS or not 0 < value <= 8760:
        raise InputError(
            f"--hours {option!r}: expected STEP=HOURS, for example train=100, up to a year, with a step of "
            f"{', '.join(STEPS)}"
        )
    return step, value
