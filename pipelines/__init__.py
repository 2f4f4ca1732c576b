"""The definition of the pipeline, and the command that runs, compiles, submits and schedules it."""
