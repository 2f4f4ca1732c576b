"""The pipeline compiled for a cluster, into the file that the UI takes."""

from __future__ import annotations

from pathlib import Path

from calopipe import storage
from calopipe.errors import InputError
from pipelines.cluster.platform import Platform
from pipelines.parameters import FLOW, SHOWERS


def write(path: Path, platform: Platform, name: str = SHOWERS) -> None:
    """Compile the pipeline of this name for `platform` to `path`."""
    if path.suffix not in {".yaml", ".yml"}:
        raise InputError(f"{path}: expected a name that ends in .yaml")

    from kfp import compiler  # noqa: PLC0415  a second that a bad name need not wait

    from pipelines import calorimeter, vortex  # noqa: PLC0415
    from pipelines.cluster.pods import allow_retries  # noqa: PLC0415

    pipeline = (vortex if name == FLOW else calorimeter).define(platform)
    allow_retries(pipeline.pipeline_spec, platform)
    with storage.replacing(path) as temporary:
        whole = temporary.with_name(temporary.name + ".yaml")  # kfp insists on the ending of the name
        compiler.Compiler().compile(pipeline, str(whole))
        whole.replace(temporary)
