"""Runs, schedules and logs of a Kubeflow Pipelines server."""
