"""The steps as containers of this machine's Docker engine, confined as on a cluster with strict rules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calopipe.errors import InputError
from calopipe.progress import VIEWED
from calopipe.storage import expand, location
from pipelines.paths import FOLDERS, PATTERNS, paths

if TYPE_CHECKING:
    from kfp import local


def absolute(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The pipeline's `parameters` with absolute paths, since containers have another current folder and home.

    Raises InputError for gs:// addresses, which containers without a network cannot reach.
    """
    found: dict[str, Any] = {name: _absolute(name, path) for name, path in paths(parameters)}
    lists = {name: [_absolute(name, each) for each in parameters[name]] for name in PATTERNS if name in parameters}
    return {**parameters, **found, **lists}


def runner(parameters: Mapping[str, Any], *, user: str, reason: Path) -> local.DockerRunner:
    """kfp's runner of containers that see the folders in the absolute `parameters`, and no others.

    They run as `user` (UID:GID) without capabilities or network, on a read-only root file system; folders that they
    only read are mounted read-only. A step that fails writes the line that says why to the file `reason`. Makes the
    folders to write to, since Docker would make them for root.
    """
    try:
        import docker  # noqa: PLC0415
        from kfp import local  # noqa: PLC0415

        docker.from_env().ping()
    except ImportError:
        raise InputError("the Python package docker is not installed; containers are started through it") from None
    except docker.errors.DockerException as error:
        raise InputError(f"no Docker engine answers ({error}); start it, or set DOCKER_HOST") from None
    read, written = folders(parameters)
    for folder in written:
        folder.mkdir(parents=True, exist_ok=True)

    def mount(source: Path, target: str = "", *, read_only: bool = False) -> Any:
        return docker.types.Mount(target or str(source), str(source), type="bind", read_only=read_only)

    return local.DockerRunner(
        user=user,
        environment={name: value for name, value in os.environ.items() if name == VIEWED},
        mounts=[
            *(mount(folder, read_only=True) for folder in sorted(read)),
            *(mount(folder) for folder in sorted(written)),
            mount(reason, "/dev/termination-log"),  # Kubernetes's place for the reason of a failure
        ],
        read_only=True,
        tmpfs={"/tmp": "mode=1777"},  # noqa: S108  what the image may write to
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode="none",
    )


def folders(parameters: Mapping[str, Any]) -> tuple[set[Path], set[Path]]:
    """The folders in the absolute `parameters` that are only read, and those that are written to.

    A folder inside one that is written to is mounted with it, since Docker refuses two mounts at one place.
    """
    named = {name: Path(path) for name, path in paths(parameters) if name not in PATTERNS}
    written = {path for name, path in named.items() if name in FOLDERS}
    patterns = [pattern for name, pattern in paths(parameters) if name in PATTERNS]
    read = {Path(str(file)).parent for file in expand(patterns)}
    if "grade" in named:
        read.add(named["grade"].parent)
    return {folder for folder in read if not any(map(folder.is_relative_to, written))}, written


def _absolute(name: str, path: str) -> str:
    place = location(path)
    if not isinstance(place, Path):
        raise InputError(f"--{name} {path}: containers here have no network; give a path, or leave --container out")
    return str(place.absolute())
