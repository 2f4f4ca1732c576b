"""The steps of the pipeline: thin Kubeflow components, one a file, each of which calls one function of a stage."""
