"""The steps as containers of this machine's Docker engine, confined as on a careful cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preprocessing.errors import InputError
from preprocessing.storage import expand, on_disk

if TYPE_CHECKING:
    from kfp import local


def absolute(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """`parameters` of the pipeline as they mean the same in a container, whose current folder and home are others."""
    paths = {name: _absolute(parameters[name], name) for name in ("output", "dataset") if parameters.get(name)}
    grade = parameters.get("grade", "")
    if grade.endswith(".toml"):
        paths["grade"] = _absolute(grade, "grade")
    files = [_absolute(pattern, "input") for pattern in parameters["input"]]
    return {**parameters, **paths, "input": files}


def _absolute(path: str, name: str) -> str:
    return str(on_disk(path, f"--{name}").absolute())


def runner(parameters: Mapping[str, Any], *, user: str | None = None) -> local.DockerRunner:
    """kfp's runner of containers that see what `parameters`, absolute ones, name and no more.

    They run as `user` (UID:GID; this user unless given) with no capabilities, no network and a read-only root file
    system. The folders of the input files and of the grade are read-only.
    """
    import docker  # noqa: PLC0415
    from kfp import local  # noqa: PLC0415

    try:
        docker.from_env().ping()
    except docker.errors.DockerException as error:
        raise InputError(f"no Docker engine answers ({error}); start it, or set DOCKER_HOST") from None
    readable = [Path(str(file)).parent for file in expand(parameters["input"])]
    if parameters.get("grade", "").endswith(".toml"):
        readable.append(Path(parameters["grade"]).parent)
    writable = [Path(parameters[name]) for name in ("output", "dataset") if parameters.get(name)]
    return local.DockerRunner(
        user=user or f"{os.getuid()}:{os.getgid()}",
        mounts=_mounts(readable, read_only=True) + _mounts(writable, read_only=False),
        read_only=True,
        tmpfs={"/tmp": "mode=1777"},  # noqa: S108  the one place where the image's user may write
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode="none",
    )


def _mounts(folders: Sequence[Path], *, read_only: bool) -> list[Any]:
    """Each folder under its own name."""
    from docker.types import Mount  # noqa: PLC0415

    return [Mount(str(folder), str(folder), type="bind", read_only=read_only) for folder in sorted(set(folders))]
