"""A run of the pipeline on this machine."""
