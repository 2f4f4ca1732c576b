"""The steps of the pipeline: thin Kubeflow components, one a file, each of which calls one function of a stage.

Arguments that a step's docstring does not name are parameters of the pipeline, see `pipelines/parameters.py`.
"""
