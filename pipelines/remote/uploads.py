"""The pipeline in the UI's list, from where people start and schedule it; each upload is a version of it."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.remote.client import Client, once, quietly


def upload(client: Client, package: Path, name: str, version: str | None) -> tuple[str, str]:
    """Upload `package` as the pipeline `name`, or as a new version of it; the pipeline's id and the version's.

    The server makes the first version with the pipeline, and calls it as that. Where there is none such all the same,
    since another upload came between or the server has yet to write it, a version is uploaded as to any pipeline.
    """
    namespace = client.get_user_namespace() or None

    def pipeline() -> Any:
        wanted = {"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]}
        found = client.list_pipelines(filter=json.dumps(wanted), namespace=namespace).pipelines
        return found[0] if found else None

    there = pipeline()
    if there is None:
        there = once(lambda: quietly(client.upload_pipeline, str(package), name, namespace=namespace), pipeline)
        if first := _version(client, there.pipeline_id, name):
            if version:
                print(
                    f"the first version of a pipeline is called as the pipeline: {name}, not {version}", file=sys.stderr
                )
            return str(there.pipeline_id), str(first.pipeline_version_id)
    called = version or f"{name} {datetime.now(UTC):%Y-%m-%d %H-%M-%S}"
    made = once(
        lambda: quietly(client.upload_pipeline_version, str(package), called, pipeline_id=there.pipeline_id),
        lambda: _version(client, there.pipeline_id, called),
    )
    return str(there.pipeline_id), str(made.pipeline_version_id)


def _version(client: Client, pipeline: str, name: str) -> Any:
    found = client.list_pipeline_versions(pipeline, page_size=100, sort_by="created_at desc").pipeline_versions or []
    return next((one for one in found if name in {one.display_name, one.name}), None)
