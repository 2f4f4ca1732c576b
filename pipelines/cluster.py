"""What the steps need on a cluster and a laptop has anyway: the image, storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kfp import dsl
from kfp.kubernetes import mount_pvc

from preprocessing.errors import InputError


@dataclass(frozen=True)
class Platform:
    """A cluster as the steps see it.

    `image` is the container image of every step, empty for `components.image.IMAGE`; `claim` = "NAME:PATH" a volume
    claim that every step mounts at PATH, empty for none.
    """

    image: str = ""
    claim: str = ""

    def __post_init__(self) -> None:
        if self.claim and (not all(self.claim.partition(":")) or not self.claim.partition(":")[2].startswith("/")):
            raise InputError(f"--claim {self.claim}: expected NAME:PATH, for example calopipe-data:/data")


def equip(tasks: Mapping[str, dsl.PipelineTask], platform: Platform) -> None:
    """Give each step, by its name, what it needs on `platform`."""
    for task in tasks.values():
        if platform.image:
            task.set_container_image(platform.image)
        if platform.claim:
            name, _, path = platform.claim.partition(":")
            mount_pvc(task, pvc_name=name, mount_path=path)
