"""The pipeline compiled for a cluster: the file that the UI takes, and the options that say what the cluster is."""

from __future__ import annotations

import argparse
from pathlib import Path

from calopipe import storage
from calopipe.errors import InputError
from pipelines.cluster.accelerators import SINGLE_HOST
from pipelines.cluster.needs import STEPS
from pipelines.cluster.platform import Platform, allow_retries


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say what the cluster is; `platform_of` reads them."""
    group = parser.add_argument_group("the cluster", f"The steps are {', '.join(STEPS)}.")
    group.add_argument("--image", default="", metavar="NAME", help="container image of the steps, NAME:TAG or, "
                       "better, NAME@sha256:DIGEST (default: components/image.py)")  # fmt: skip
    group.add_argument("--claim", default="", metavar="NAME:PATH", help="volume claim that every step mounts at PATH")
    group.add_argument("--pipeline-root", default="", metavar="ADDRESS", help="where reports and metrics are kept, "
                       "for example gs://BUCKET/runs (default: as the cluster is set up)")  # fmt: skip
    group.add_argument("--resources", action="append", default=[], metavar="STEP=CPU,MEMORY",
                       help="what a step asks for and may use, for example train=8,32Gi")  # fmt: skip
    group.add_argument("--hours", action="append", default=[], metavar="STEP=HOURS",
                       help="end an attempt at a step after so long (default for train: 72)")  # fmt: skip
    group.add_argument("--gpus", type=int, default=0, metavar="N", help="train on N NVIDIA GPUs, generate on one")
    group.add_argument("--gpu-type", default="", metavar="TYPE", help="of GKE's GPUs, for example nvidia-l4")
    group.add_argument("--tpu", default="", metavar="TYPE:TOPOLOGY", help="train on a TPU slice of one machine of GKE, "
                       f"for example tpu-v5-lite-podslice:2x4; types: {', '.join(SINGLE_HOST)}")  # fmt: skip
    group.add_argument("--shm", default="1Gi", metavar="MEMORY", help="shared memory of train (default %(default)s)")
    group.add_argument("--nodes", type=int, default=1, metavar="N", help="train on N nodes, each with these resources "
                       "and GPUs, by a TrainJob of Kubeflow Trainer")  # fmt: skip
    group.add_argument("--runtime", default="calopipe", metavar="NAME",
                       help="TrainingRuntime of that job (default %(default)s)")  # fmt: skip


def platform_of(options: argparse.Namespace) -> Platform:
    """The cluster that `add_options` let a user state; InputError for what cannot be."""
    return Platform(
        image=options.image,
        claim=options.claim,
        resources=tuple(options.resources),
        hours=tuple(options.hours),
        gpus=options.gpus,
        gpu_type=options.gpu_type,
        tpu=options.tpu,
        shm=options.shm,
        nodes=options.nodes,
        runtime=options.runtime,
        pipeline_root=options.pipeline_root,
    )


def write(path: Path, platform: Platform) -> None:
    """Compile the pipeline for `platform` to `path`."""
    if path.suffix not in {".yaml", ".yml"}:
        raise InputError(f"{path}: expected a name that ends in .yaml")

    from kfp import compiler  # noqa: PLC0415  a second that a bad name need not wait

    from pipelines.calorimeter import define  # noqa: PLC0415

    pipeline = define(platform)
    allow_retries(pipeline.pipeline_spec, platform)
    with storage.replacing(path) as temporary:
        whole = temporary.with_name(temporary.name + ".yaml")  # kfp insists on the ending of the name
        compiler.Compiler().compile(pipeline, str(whole))
        whole.replace(temporary)
