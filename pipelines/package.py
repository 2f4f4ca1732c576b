"""A pipeline as an object of kfp, and compiled for a cluster into the file that the UI takes."""

from __future__ import annotations

from functools import partial
from typing import Any

from calopipe import storage
from calopipe.errors import InputError
from pipelines.cluster.platform import Platform
from pipelines.parameters import FLOW, KINDS, SHOWERS, function_of

_MOST_BYTES = 1_500_000  # the largest object that etcd takes


def define(name: str = SHOWERS, platform: Platform | None = None) -> Any:
    """The pipeline of this name. If it is for a cluster, its steps get what they need on `platform`."""
    from kfp import dsl  # noqa: PLC0415  loads for a second, not needed for a bad name

    from pipelines import tasks  # noqa: PLC0415

    steps = tasks.vortex if name == FLOW else tasks.calorimeter
    strategy, root = (platform.strategy, platform.pipeline_root) if platform else ("one-device", "")
    function = function_of(name, partial(steps, platform=platform), strategy)
    return dsl.pipeline(name=name, description=KINDS[name].__doc__, pipeline_root=root or None)(function)


def write(path: storage.Location, platform: Platform, name: str = SHOWERS) -> None:
    """Compile the pipeline of this name for `platform` to `path`."""
    if not path.name.endswith((".yaml", ".yml")):
        raise InputError(f"{path}: expected a name that ends in .yaml")

    from kfp import compiler  # noqa: PLC0415

    from pipelines.cluster.pods import allow_retries  # noqa: PLC0415

    pipeline = define(name, platform)
    allow_retries(pipeline.pipeline_spec, platform)
    with storage.replacing(path) as temporary:
        whole = temporary.with_name(temporary.name + ".yaml")  # kfp requires this ending of the name
        compiler.Compiler().compile(pipeline, str(whole))
        whole.replace(temporary)
        if (size := temporary.stat().st_size) > _MOST_BYTES:
            raise InputError(f"{path}: {size:,} bytes, of which Kubernetes stores 1.5 MB; give fewer --generation-pods")
