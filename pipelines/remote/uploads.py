"""The pipeline in the UI's list, from where people start and schedule it; each upload is a version of it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.remote.client import Server, all_pages, named


def upload(server: Server, package: Path, name: str, version: str | None) -> tuple[str, str]:
    """Upload `package` as the pipeline `name`, or as a new version of it; the pipeline's id and the version's.

    The server creates the first version together with the pipeline, and gives it the pipeline's name. If that version
    is not found, because the server has yet to write it or another upload came between, one more is uploaded.
    """

    found = server.pipelines.pipeline_service_list_pipelines(filter=named(name), **server.scope).pipelines
    if found:
        pipeline = found[0].pipeline_id
    else:
        pipeline = server.uploads.upload_pipeline(str(package), name=name, **server.scope).pipeline_id
        if first := _version(server, pipeline, name):
            if version:
                print(
                    f"the first version of a pipeline is called as the pipeline: {name}, not {version}", file=sys.stderr
                )
            return str(pipeline), str(first.pipeline_version_id)
    new = version or f"{name} {datetime.now(UTC):%Y-%m-%d %H-%M-%S}"
    made = server.uploads.upload_pipeline_version(str(package), name=new, pipelineid=pipeline)
    return str(pipeline), str(made.pipeline_version_id)


def _version(server: Server, pipeline: str, name: str) -> Any:
    list_versions = server.pipelines.pipeline_service_list_pipeline_versions
    found = all_pages(list_versions, "pipeline_versions", pipeline_id=pipeline)
    return next((one for one in found if name in {one.display_name, one.name}), None)
